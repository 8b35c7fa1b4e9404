"""How much each rank does in all, without running the program: loops count as often as they run."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from peerax.verifier._code import END, FENCE, JOIN, JUMP, LOOP, NEXT, PARTS, RECV, SEND, SWITCH, Code
from peerax.verifier._ir import Operation, Table


@dataclass
class Totals:
    """Numbers of messages and collectives, and what they are like.

    Args:
        ends: by (role, channel), the number of ends.
        types: by (role, channel), the types of the ends.
        joins: by (group, rank), how often the rank joins a collective of the group.
        kinds: by group, the collectives that are joined.
    """

    ends: Counter = field(default_factory=Counter)
    types: defaultdict = field(default_factory=lambda: defaultdict(set))
    joins: Counter = field(default_factory=Counter)
    kinds: defaultdict = field(default_factory=lambda: defaultdict(set))
    _noted: defaultdict = field(default_factory=lambda: defaultdict(dict))

    def note(self, end: tuple, operation: Operation, times: int) -> None:
        """Count an operation; it is known by its identity, since comparing large perms takes long."""
        self._noted[end].setdefault(id(operation), [operation, 0])[1] += times

    def operations(self, end: tuple) -> list[tuple[Operation, int]]:
        """Return the operations of (role, channel) or ("join", group, rank), and how often they run, in order."""
        return [(operation, times) for operation, times in self._noted[end].values()]

    def unequal_channels(self) -> dict[int, int]:
        """Return, for each channel with more ends of one role than of the other, the smaller number."""
        channels = {channel for _, channel in self.ends}
        both = {channel: (self.ends[SEND, channel], self.ends[RECV, channel]) for channel in channels}
        return {channel: min(counts) for channel, counts in sorted(both.items()) if counts[0] != counts[1]}

    def mixed_channels(self) -> set[int]:
        """Return the channels whose messages are not all of one type."""
        channels = {channel for _, channel in self.ends}
        return {c for c in channels if len(self.types[SEND, c] | self.types[RECV, c]) > 1}

    def unequal_groups(self, groups: list[tuple[int, ...]]) -> dict[int, int]:
        """Return, for each group that some members join more often than others, the smallest number."""
        numbers = {group: [self.joins[group, rank] for rank in groups[group]] for group, _ in self.joins}
        return {group: min(counts) for group, counts in sorted(numbers.items()) if len(set(counts)) > 1}

    def mixed_groups(self) -> set[int]:
        """Return the groups that join more than one kind of collective."""
        return {group for group, kinds in self.kinds.items() if len(kinds) > 1}


def kind_of(operation: Operation) -> tuple:
    """Return what all members of a collective must agree on."""
    return operation.name, operation.types


def count(code: Code) -> Totals:
    """Return the totals of a program."""
    totals = Totals()
    for rank, instructions in enumerate(code.ranks):
        _count(totals, rank, instructions, 0, 1, [])
    return totals


def _count(totals: Totals, rank: int, code: list[tuple], pc: int, times: int, indices: list[dict]) -> None:
    """Count from pc to the end of the loop or program, times as often.

    indices has, for each loop around, the values of its tables in the iteration that is counted.
    """
    while True:
        instruction = code[pc]
        kind = instruction[0]
        if kind in (SEND, RECV):
            _count_end(totals, instruction[:2], instruction[3], instruction[2], times)
        elif kind == PARTS:
            for role, channel, types in instruction[1]:
                _count_end(totals, (role, channel), types, instruction[2], times)
        elif kind == JOIN:
            group, operation = instruction[1:]
            totals.joins[group, rank] += times
            totals.kinds[group].add(kind_of(operation))
            totals.note(("join", group, rank), operation, times)
        elif kind == LOOP:
            _, trip, end, tables = instruction
            trip = _value(trip, indices) if isinstance(trip, Table) else trip
            if not tables:
                if trip:
                    _count(totals, rank, code, pc + 1, times * trip, [*indices, {}])
            else:
                # Iterations in which all tables have equal values are equal.
                alike = Counter(zip(*(values[:trip] for values in tables), strict=True))
                for values, how_often in alike.items():
                    index = {id(table): value for table, value in zip(tables, values, strict=True)}
                    _count(totals, rank, code, pc + 1, times * how_often, [*indices, index])
            pc = end
            continue
        elif kind == SWITCH:
            pc = instruction[2][_value(instruction[1], indices)]
            continue
        elif kind == JUMP:
            pc = instruction[1]
            continue
        elif kind in (NEXT, END):
            return
        else:
            assert kind == FENCE
        pc += 1


def _count_end(totals: Totals, end: tuple[int, int], types: tuple[str, ...], operation: Operation, times: int) -> None:
    totals.ends[end] += times
    totals.types[end].add(types)
    totals.note(end, operation, times)


def _value(table: Table, indices: list[dict]) -> int:
    return indices[-1 - table.depth][id(table.values)]
