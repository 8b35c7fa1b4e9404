"""Findings from runs that are stuck: which ranks wait for each other, where, and who waits for them."""

from collections.abc import Iterator

from peerax.diagnostics import Diagnostic, Location
from peerax.verifier._code import RECV, SEND
from peerax.verifier._cycles import Cycle, Wait
from peerax.verifier._engine import Run
from peerax.verifier._findings import in_loops, operation_name, place, plural

_MOST_WAITS = 8


Stuck = tuple[Run, list[Cycle]]


def deadlocks(rendezvous: Stuck, buffered: Stuck | None = None) -> list[Diagnostic]:
    """Return a finding for each cycle; buffered is the run of the same program with buffers, if that is stuck too.

    A cycle that is there with buffers hangs always. One that is not, is told apart by its ranks.
    """
    found = [("PX207", buffered[0], cycle) for cycle in buffered[1]] if buffered else []
    held = {rank for _, _, cycle in found for rank in cycle.ranks}
    found += [("PX208", rendezvous[0], cycle) for cycle in rendezvous[1] if not held & set(cycle.ranks)]
    groups: dict[tuple, list[tuple[Run, Cycle]]] = {}
    for code, run, cycle in found:
        if not _is_consequence(run, cycle):
            groups.setdefault((code, _lines(cycle)), []).append((run, cycle))
    return [_finding(code, *alike[0], len(alike)) for (code, _), alike in groups.items()]


def _is_consequence(run: Run, cycle: Cycle) -> bool:
    """Whether an end in the cycle met one that was not meant for it, since there are too many of them."""
    channels = {key[1] for key in run.limits if len(key) == 2}
    groups = {key[1] for key in run.limits if len(key) == 3}
    return any(wait.channel in channels or wait.group in groups for wait in cycle.waits)


def _finding(code: str, run: Run, cycle: Cycle, number: int) -> Diagnostic:
    ranks = cycle.ranks
    if len(ranks) == 1:
        message = f"rank {ranks[0]} waits for itself"
    else:
        message = f"{plural(sorted(ranks))} wait for each other"
    message += (
        ", also if every message is buffered" if code == "PX207" else "; it works only while messages fit buffers"
    )
    if number > 1:
        message += f"\nand {number - 1} more such {'cycle' if number == 2 else 'cycles'} at the same lines"
    channels = [run.code.channels[wait.channel] for wait in cycle.waits if wait.channel is not None]
    return Diagnostic(
        code,
        message,
        _lines(cycle),
        ranks,
        channels[0][:3] if channels else None,
        evidence=tuple(_evidence(cycle)),
        help=_help(cycle),
    )


def _lines(cycle: Cycle) -> tuple[Location, ...]:
    """The lines of the cycle's waits, then of what would end them."""
    lines = [wait.operation.location for wait in cycle.waits]
    lines += [wait.needed.location for wait in cycle.waits if wait.needed is not None]
    return tuple(dict.fromkeys(lines))[:_MOST_WAITS]


def _evidence(cycle: Cycle) -> Iterator[str]:
    yield "the cycle:"
    alike = {(id(wait.operation), id(wait.needed), wait.role) for wait in cycle.waits}
    if len(alike) == 1 and len(cycle.waits) > 2:
        wait, ranks = cycle.waits[0], cycle.ranks
        shown = " -> ".join(map(str, (*ranks[:_MOST_WAITS], *(["..."] if len(ranks) > _MOST_WAITS else []), ranks[0])))
        yield f"  each of {shown} waits in {_where(wait)} for the next one{_until(wait)}"
    else:
        for wait in cycle.waits[:_MOST_WAITS]:
            where = f"{_where(wait)}{in_loops(wait.iterations)}"
            yield f"  rank {wait.rank} waits in {where} for {_whom(wait)}{_until(wait)}"
        if len(cycle.waits) > _MOST_WAITS:
            yield f"  and {len(cycle.waits) - _MOST_WAITS} more"
    if cycle.victims:
        yield "waiting for these:"
        places: dict[str, list[int]] = {}
        for wait in cycle.victims:
            places.setdefault(_where(wait), []).append(wait.rank)
        for where, ranks in list(places.items())[:_MOST_WAITS]:
            yield f"  {plural(ranks)} in {where}"
        if len(places) > _MOST_WAITS:
            yield f"  and at {len(places) - _MOST_WAITS} more lines"


def _where(wait: Wait) -> str:
    return f"{operation_name(wait.operation)} at {place(wait.operation.location)}"


def _whom(wait: Wait) -> str:
    return "itself" if wait.rank == wait.peer else f"rank {wait.peer}"


def _until(wait: Wait) -> str:
    if wait.needed is None:
        return ""
    return f" to reach {operation_name(wait.needed)} at {place(wait.needed.location)}"


def _help(cycle: Cycle) -> str | None:
    roles = {wait.role for wait in cycle.waits}
    if roles == {SEND}:
        return None  # that of the code
    if roles == {RECV}:
        return "send first on one of these ranks, or make each exchange a pair by giving precv the token of its psend"
    if not roles <= {SEND, RECV}:
        return "put the collective before the psend or behind the precv of the message, on every rank"
    return "let these ranks send and receive in the same order, or make each exchange a pair"
