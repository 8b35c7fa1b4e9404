"""Findings from the totals of a program and from its run: what has no other end, what differs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from peerax.diagnostics import Diagnostic, Location, runs
from peerax.verifier._code import RECV, SEND, Channel
from peerax.verifier._engine import Iterations, Mismatch, Run
from peerax.verifier._ir import Collective, Exchange, Operation
from peerax.verifier._totals import Totals

Counted = list[tuple[Operation, int]]

_MOST_LINES = 4
_ONE_SIDED = {"PX201", "PX202", "PX210", "PX211"}


class Single(NamedTuple):
    """A finding about one channel or group, before findings with one cause are put together."""

    code: str
    locations: tuple[Location, ...]
    ranks: tuple[int, ...]
    channel: Channel | None
    message: str
    help: str | None = None


def findings(run: Run, totals: Totals) -> list[Diagnostic]:
    """Return what is wrong besides cycles."""
    singles = [*_unmatched(run, totals), *_unjoined(run, totals)]
    channels, groups = totals.unequal_channels(), totals.unequal_groups(run.code.groups)
    for found in sorted(run.mismatches.values(), key=lambda found: found.ranks):
        # Where an end has no other one, those behind it met ends that were not meant for them.
        if found.channel not in channels and found.group not in groups:
            singles.append(_differs(run, found))
    return together(singles)


def together(singles: Iterable[Single]) -> list[Diagnostic]:
    """Make one finding of those that have one cause."""
    groups: dict[tuple, list[Single]] = {}
    for single in singles:
        # Of what has no other end, the line of the end that is there tells; otherwise both do.
        cause = single.locations[:1] if single.code in _ONE_SIDED else single.locations
        groups.setdefault((single.code, cause, single.help), []).append(single)
    found = []
    for (code, _, help_text), group in groups.items():
        first = group[0]
        ranks = sorted({rank for single in group for rank in single.ranks})
        lines = sorted({line for single in group for line in single.locations[1:]} - {first.locations[0]})
        channels = {single.channel for single in group if single.channel is not None}
        more = f"\nand {len(channels) - 1} more on other channels" if len(channels) > 1 else ""
        found.append(
            Diagnostic(
                code,
                first.message + more,
                (first.locations[0], *lines[: _MOST_LINES - 1]),
                tuple(ranks),
                None if first.channel is None else first.channel[:3],
                help=help_text,
            )
        )
    return sorted(found, key=lambda finding: (finding.code, finding.locations))


def operation_name(operation: Operation) -> str:
    """Return what the user calls an operation."""
    if isinstance(operation, Collective):
        return operation.name
    if isinstance(operation, Exchange):
        return "the pair of psend and precv"
    return {"Send": "psend", "Recv": "precv"}.get(type(operation).__name__, type(operation).__name__.lower())


def place(location: Location) -> str:
    """Return "file:line"."""
    return f"{location[0]}:{location[1]}"


def lines_of(operations: Iterable[Operation]) -> tuple[Location, ...]:
    """Return the different lines of operations, a few of them."""
    lines: dict[Location, None] = {}
    for operation in operations:
        lines[operation.location] = None
        if isinstance(operation, Exchange):
            lines[operation.receive_location] = None
    return tuple(lines)[:_MOST_LINES]


def in_loops(iterations: Iterations) -> str:
    """Return ", iteration 2 of 6" for an operation inside a loop."""
    return "".join(f", iteration {iteration + 1} of {trip}" for iteration, trip in iterations)


def _unmatched(run: Run, totals: Totals) -> Iterator[Single]:
    surplus: dict[int, _Surplus] = {c: _Surplus.of(run, totals, c) for c in totals.unequal_channels()}
    crossed: set[int] = set()
    for c, send in surplus.items():
        if send.role != SEND or send.ends.pair >= 0:
            continue
        for other, receive in surplus.items():
            if receive.role == RECV and other not in crossed and _crosses(send.ends, receive.ends):
                crossed |= {c, other}
                yield _tags_crossed(send, receive)
                break
    pairs: set[int] = set()
    for c, found in surplus.items():
        # Of a pair that some rank leaves out, one half is enough to report.
        if c not in crossed and found.ends.pair not in pairs:
            yield found.single()
            pairs |= {found.ends.pair} - {-1}


def _crosses(send: Channel, receive: Channel) -> bool:
    same = (send.source, send.destination, send.path, send.pair)
    return same == (receive.source, receive.destination, receive.path, receive.pair) and send.tag != receive.tag


@dataclass(frozen=True)
class _Surplus:
    """The ends of one role on a channel that have no other end."""

    role: int
    ends: Channel
    number: int
    others: int
    operation: Operation
    iterations: Iterations
    other_lines: tuple[Location, ...]

    @classmethod
    def of(cls, run: Run, totals: Totals, c: int) -> "_Surplus":
        sends, receives = totals.ends[SEND, c], totals.ends[RECV, c]
        role, other = (SEND, RECV) if sends > receives else (RECV, SEND)
        mine, theirs = totals.operations((role, c)), totals.operations((other, c))
        operation, iterations = _blame(mine, theirs, _perm_and_types, run.dropped.get((role, c)))
        lines = lines_of(other_end for other_end, _ in theirs)
        numbers = (sends, receives) if role == SEND else (receives, sends)
        return cls(role, run.code.channels[c], *numbers, operation, iterations, lines)

    def single(self) -> Single:
        source, destination = self.ends[:2]
        what = f"{operation_name(self.operation)} at {place(self.operation.location)}{in_loops(self.iterations)}"
        if self.role == SEND:
            text = f"rank {source} sends to rank {destination} in {what}, and rank {destination} never receives it"
            counted = f"{_messages(self.number)} sent, {self.others} received"
        else:
            text = f"rank {destination} receives from rank {source} in {what}, and rank {source} never sends it"
            counted = f"{_messages(self.number)} expected, {self.others} sent"
        if self.ends.pair >= 0:
            here, there = (source, destination) if self.role == SEND else (destination, source)
            text = f"rank {here} takes part in {what}, and rank {there} does not"
        code = "PX201" if self.role == SEND else "PX202"
        lines = dict.fromkeys((*lines_of([self.operation]), *self.other_lines))
        return Single(code, tuple(lines), (source, destination), self.ends, f"{text}\non this channel: {counted}")


def _blame(mine: Counted, theirs: Counted, key: Callable, dropped: tuple | None) -> tuple[Operation, Iterations]:
    """Return the operation that most likely has no other end.

    That is one of a kind that only one side has too many of, if there is just one such kind. Otherwise it is the first
    one that was left when the other side had no more.
    """
    surplus: Counter = Counter()
    for operations, sign in ((mine, 1), (theirs, -1)):
        for operation, times in operations:
            surplus[key(operation)] += sign * times
    differing = [kind for kind, times in surplus.items() if times]
    alike = [operation for operation, _ in mine if [key(operation)] == differing]
    if dropped is None or (len(alike) == 1 and dropped[1] is not alike[0]):
        return (alike or [mine[-1][0]])[-1], ()
    return dropped[1:]


def _perm_and_types(operation: Operation) -> tuple:
    return frozenset(operation.perm), operation.types


def _tags_crossed(send: _Surplus, receive: _Surplus) -> Single:
    source, destination = send.ends[:2]
    return Single(
        "PX205",
        (send.operation.location, receive.operation.location),
        (source, destination),
        send.ends,
        f"rank {source} sends to rank {destination} with tag {send.ends.tag} in psend at "
        f"{place(send.operation.location)}, and rank {destination} waits for tag {receive.ends.tag} in precv at "
        f"{place(receive.operation.location)}",
    )


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def _unjoined(run: Run, totals: Totals) -> Iterator[Single]:
    for group, least in totals.unequal_groups(run.code.groups).items():
        members = run.code.groups[group]
        more = [rank for rank in members if totals.joins[group, rank] > least]
        fewer = [rank for rank in members if totals.joins[group, rank] == least]
        rank = more[0]
        mine, theirs = (totals.operations(("join", group, r)) for r in (rank, fewer[0]))
        operation, iterations = _blame(mine, theirs, lambda op: op.location, run.dropped.get(("join", group, rank)))
        if any(other.location == operation.location for other, _ in theirs):
            missing = f"more often than {plural(fewer)}"
        else:
            missing = f"and {plural(fewer)} never {'does' if len(fewer) == 1 else 'do'}"
        yield Single(
            "PX209",
            tuple(dict.fromkeys((operation.location, *lines_of(op for op, _ in theirs)))),
            tuple(members),
            None,
            f"{plural(more)} {'calls' if len(more) == 1 else 'call'} {operation.name} at "
            f"{place(operation.location)}{in_loops(iterations)}, {missing}\n"
            f"collectives of these ranks: {totals.joins[group, rank]} on rank {rank}, {least} on rank {fewer[0]}",
        )


def plural(ranks: Iterable[int]) -> str:
    """Return "rank 0" or "ranks 0, 2-5"."""
    ranks = list(ranks)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {runs(ranks)}"


def _differs(run: Run, mismatch: Mismatch) -> Single:
    first, second = mismatch.ranks
    one, other = mismatch.operations
    if mismatch.channel is None:
        return Single(
            "PX209",
            tuple(dict.fromkeys((one.location, other.location))),
            (first, second),
            None,
            f"rank {first} calls {_shown(mismatch.found[0])} at {place(one.location)} where rank {second} calls "
            f"{_shown(mismatch.found[1])} at {place(other.location)}",
            "let all ranks call the same collective, with the same shape and dtype",
        )
    sent, expected = (";".join(types) for types in mismatch.found)
    shapes = [[t.partition("[")[2] for t in types] for types in mismatch.found]
    return Single(
        "PX204" if shapes[0] == shapes[1] else "PX203",
        tuple(dict.fromkeys((one.location, other.location))),
        (first, second),
        run.code.channels[mismatch.channel],
        f"rank {first} sends {sent} in {operation_name(one)} at {place(one.location)}, and rank {second} expects "
        f"{expected} in {operation_name(other)} at {place(other.location)}",
    )


def _shown(kind: tuple[str, ...]) -> str:
    return f"{kind[0]}({', '.join(kind[1:])})"
