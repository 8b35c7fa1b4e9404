"""A program as code: for each rank a flat list of instructions, in which channels and groups are numbers.

Instructions are tuples that begin with their kind:

    (SEND, channel, operation, type)      (RECV, channel, operation, type)
    (PARTS, ((role, channel, type), ...), operation)      several ends that progress together
    (JOIN, group, operation)              (FENCE, group, operation)
    (LOOP, trip, end, tables)             (NEXT, start, plain)
    (SWITCH, table, targets)              (JUMP, target)              (END,)
    (PASS, operation)                     an operation that the rank has no part in

The first field of a channel's ends is the role: SEND or RECV. A loop is plain if no table has its number as an index.
What a rank has no part in is left out, unless it is asked for.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from peerax.diagnostics import Location
from peerax.verifier._ir import Body, Branch, Collective, Exchange, Loop, Operation, Program, Send, Table, operations

SEND, RECV, PARTS, JOIN, LOOP, NEXT, SWITCH, JUMP, END, FENCE, PASS = range(11)


class Channel(NamedTuple):
    """What the k-th send and the k-th receive have in common; pair is -1 for separate operations."""

    source: int
    destination: int
    tag: int
    path: str
    pair: int


@dataclass(frozen=True)
class Fence:
    """A part that was checked by itself; it stands for nothing, but all members must get here on their own."""

    name: str
    members: tuple[int, ...]
    location: Location


class Probe(int):
    """A trip count that stands for any other: the run notes where its iterations repeat each other."""


@dataclass
class Code:
    """The instructions of each rank, and what their numbers mean."""

    ranks: list[list[tuple]]
    channels: list[Channel]
    groups: list[tuple[int, ...]]


def lower(program: Program, passes: bool = False) -> Code:
    """Return the code of a program in which nothing is unknown, also with what a rank has no part in if passes."""
    lowering = _Lowering(program, passes)
    ranks = [lowering.rank(rank, body) for rank, body in enumerate(program.bodies())]
    return Code(ranks, list(lowering.channels), list(lowering.groups))


def key_of(operation: Operation) -> tuple[int, str, int]:
    """Return tag, path and pair."""
    return operation.tag, operation.path, operation.pair if isinstance(operation, Exchange) else -1


@dataclass
class _Lowering:
    program: Program
    passes: bool
    channels: dict[Channel, int] = field(default_factory=dict)
    groups: dict[tuple, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Where all ends of a kind of channel have equally many leaves, one message stands for all of them. A pair posts
        # all its leaves together, so there it always does.
        counts: dict[tuple, set[int]] = {}
        for process in self.program.processes:
            for operation in operations(process.body):
                if not isinstance(operation, (Collective, Fence)):
                    counts.setdefault(key_of(operation), set()).add(len(operation.types))
        self._whole = {key for key, lengths in counts.items() if len(lengths) == 1 or key[2] >= 0}
        self._ends: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
        self._members: dict[int, dict[int, tuple[int, ...]]] = {}

    def rank(self, rank: int, body: Body) -> list[tuple]:
        code: list[tuple] = []
        self._emit(code, rank, body, [])
        code.append((END,))
        return code

    def _emit(self, code: list[tuple], rank: int, body: Body, tables: list[list]) -> None:
        """Append a body; tables has, for each loop around it, a list of the tables that its number is an index of."""
        for item in body:
            if isinstance(item, Loop):
                self._emit_loop(code, rank, item, tables)
            elif isinstance(item, Branch):
                self._emit_branch(code, rank, item, tables)
            elif isinstance(item, Fence):
                code.append((FENCE, self._group(("fence", item.name, *item.members)), item))
            elif isinstance(item, Collective):
                members = self._members_of(item).get(rank)
                if members:
                    code.append((JOIN, self._group(members), item))
                elif self.passes:
                    code.append((PASS, item))
            else:
                self._emit_message(code, rank, item)

    def _emit_loop(self, code: list[tuple], rank: int, loop: Loop, tables: list[list]) -> None:
        if loop.trip == 0:
            return
        start, mine = len(code), []
        code.append(())
        self._emit(code, rank, loop.body, [*tables, mine])
        if len(code) == start + 1:
            code.pop()
            return
        if isinstance(loop.trip, Table):
            tables[-1 - loop.trip.depth].append(loop.trip.values)
        code.append((NEXT, start + 1, not mine))
        code[start] = (LOOP, loop.trip, len(code), tuple({id(values): values for values in mine}.values()))

    def _emit_branch(self, code: list[tuple], rank: int, branch: Branch, tables: list[list]) -> None:
        start, inner = len(code), [[] for _ in tables]
        code.append(())
        targets, jumps = [], []
        for body in branch.branches:
            targets.append(len(code))
            self._emit(code, rank, body, inner)
            jumps.append(len(code))
            code.append(())
        if len(code) == start + 1 + len(jumps):  # no branch does anything
            del code[start:]
            return
        for outer, more in zip(tables, inner, strict=True):
            outer += more
        tables[-1 - branch.selector.depth].append(branch.selector.values)
        code[start] = (SWITCH, branch.selector, tuple(targets))
        for jump in jumps:
            code[jump] = (JUMP, len(code))

    def _emit_message(self, code: list[tuple], rank: int, operation: Operation) -> None:
        to, origin = self._ends_of(operation)
        parts = []
        if not isinstance(operation, Send) and not isinstance(operation, Exchange):
            to = {}
        if isinstance(operation, Send):
            origin = {}
        tag, path, pair = key_of(operation)
        if rank in to:
            parts.append((SEND, self._channel(Channel(rank, to[rank], tag, path, pair))))
        if rank in origin:
            parts.append((RECV, self._channel(Channel(origin[rank], rank, tag, path, pair))))
        if not parts or not operation.types:
            if self.passes:
                code.append((PASS, operation))
            return
        for types in (operation.types,) if (tag, path, pair) in self._whole else ((t,) for t in operation.types):
            if len(parts) == 1:
                code.append((*parts[0], operation, types))
            else:
                code.append((PARTS, tuple((*part, types) for part in parts), operation))

    def _ends_of(self, operation: Operation) -> tuple[dict[int, int], dict[int, int]]:
        key = id(operation.perm)  # kept alive by the program
        if key not in self._ends:
            self._ends[key] = dict(operation.perm), {d: s for s, d in operation.perm}
        return self._ends[key]

    def _members_of(self, operation: Collective) -> dict[int, tuple[int, ...]]:
        key = id(operation.groups)
        if key not in self._members:
            self._members[key] = {rank: tuple(sorted(group)) for group in operation.groups for rank in group}
        return self._members[key]

    def _channel(self, channel: Channel) -> int:
        return self.channels.setdefault(channel, len(self.channels))

    def _group(self, members: tuple) -> int:
        return self.groups.setdefault(members, len(self.groups))
