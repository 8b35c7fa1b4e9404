"""The timeline of what ranks really did, recorded by the transport while it is asked for."""

import contextlib
import operator
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from peerax.diagnostics import Location
from peerax.runtime._exclusive import ExclusiveRun
from peerax.runtime._loading import extension
from peerax.runtime._settings import read_settings
from peerax.timeline import Message, Pause, RankTime, Span, Timeline

_SPAN = struct.Struct("9q")
_KINDS = ("send", "recv", "exchange", "collective")
_END_S = 1.0


class Trace:
    """What a `trace()` records.

    Args:
        timeline: of all programs with operations of peerax that ran inside, when it has ended; None before.
    """

    def __init__(self) -> None:
        self.timeline: Timeline | None = None


@contextlib.contextmanager
def trace(*, most_spans: int = 1_000_000) -> Iterator[Trace]:
    """Record what each rank does, in all programs with operations of peerax that run inside on this process's CPU.

    Work that is still under way at its end is waited for. One trace may be open at a time.

    Args:
      most_spans: how many operations are kept, of all ranks together; of more than that the last ones of each run, and
        the last runs, and of the last run at least one of each rank. One takes 72 bytes. What is not kept is still
        counted in the time of its rank.

    Returns:
      A context manager. What it gives has the Timeline in its attribute `timeline`, from its end on. Times count from
      when the first rank began.

    Raises:
      RuntimeError: another trace is open.
      TypeError, ValueError: most_spans is no whole number of 1 or more.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> with peerax.trace() as trace:
      ...     step(x).block_until_ready()
      >>> print(trace.timeline)
    """
    if operator.index(most_spans) < 1:
        raise ValueError(f"most_spans is 1 or more, not {most_spans}")
    module = extension()
    if not _open.acquire(blocking=False):
        raise RuntimeError(
            "another trace is open already, a peerax.trace() or that of peerax run --trace; open one of them only"
        )
    try:
        recorded = Trace()
        module.start_trace(most_spans)
        try:
            yield recorded
        finally:
            try:
                with ExclusiveRun.enter():
                    _wait_for_ends(module)
            finally:
                module.stop_trace()
                taken = module.take_trace()
            recorded.timeline = to_timeline(taken, read_settings().rendezvous)
    finally:
        _open.release()


_open = threading.Lock()


def _wait_for_ends(module: Any) -> None:
    """A run hands over what it has recorded when its last thread has left it, shortly after its results are there."""
    until_s = time.monotonic() + _END_S
    while module.open_sessions() and time.monotonic() < until_s:
        time.sleep(0.001)


def to_timeline(recorded: dict[str, Any], rendezvous: bool) -> Timeline:
    """Return the timeline of what the transport has recorded."""
    operations, runs = recorded["operations"], recorded["runs"]
    begin_ns = min((rank[0] for ranks in runs for rank in ranks if rank[0]), default=0)
    size = max(map(len, runs), default=0)
    spans: list[list[Span]] = [[] for _ in range(size)]
    ends: dict[tuple, dict[str, Span]] = {}
    stuck: set[int] = set()
    inside: list[list[tuple[float, float]]] = [[] for _ in range(size)]
    times = [[0, 0, 0, 0, 0] for _ in range(size)]  # end, inside, waiting, moving, operations
    for number, ranks in enumerate(runs):
        for rank, (rank_begin, rank_end, in_runs, waiting, moving, count, data) in enumerate(ranks):
            if not rank_begin:  # it was in none of them
                continue
            total = times[rank]
            total[0] = max(total[0], rank_end - begin_ns)
            for i, more in enumerate((in_runs, waiting, moving, count), 1):
                total[i] += more
            inside[rank].append(((rank_begin - begin_ns) / 1e9, (rank_end - begin_ns) / 1e9))
            mine = sorted(_SPAN.iter_unpack(data), key=lambda fields: fields[1])
            trips = {fields[0]: fields[4] for fields in mine}  # the last number is the largest
            for fields in mine:
                span = _span(rank, operations[fields[0]], fields, begin_ns, trips[fields[0]])
                spans[rank].append(span)
                _note_ends(ends, number, span, operations[fields[0]], fields)
                if not span.complete:
                    stuck.add(rank)
    return Timeline(
        tuple(
            RankTime(end / 1e9, max(in_runs - waiting - moving, 0) / 1e9, waiting / 1e9, moving / 1e9, count)
            for end, in_runs, waiting, moving, count in times
        ),
        tuple(span for mine in spans for span in sorted(mine, key=lambda span: span.start_s)),
        _messages(ends),
        tuple(sorted(stuck)),
        "measured",
        "rendezvous" if rendezvous else "buffered",
        tuple(pause for rank, stays in enumerate(inside) for pause in _pauses(rank, stays)),
    )


def _pauses(rank: int, stays: list[tuple[float, float]]) -> Iterator[Pause]:
    at = 0.0
    for begin, end in sorted(stays):
        if begin > at:
            yield Pause(rank, at, begin)
        at = max(at, end)


def _span(rank: int, operation: dict[str, Any], fields: tuple[int, ...], begin_ns: int, trips: int) -> Span:
    _, start, matched, end, number, _, _, size_bytes, complete = fields
    return Span(
        rank,
        _KINDS[operation["kind"]],
        operation["name"],
        (start - begin_ns) / 1e9,
        (matched - begin_ns) / 1e9,
        (end - begin_ns) / 1e9,
        _location(operation["site"]),
        _channels(rank, operation),
        size_bytes,
        ((number - 1, trips),) if trips > 1 else (),
        operation["path"],
        bool(complete),
    )


def _location(site: str) -> Location | None:
    file, _, line = site.rpartition(":")
    return (file, int(line)) if file and file != "<unknown>" else None


def _channels(rank: int, operation: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    to = operation["destination"][rank] if operation["destination"] else -1
    origin = operation["source"][rank] if operation["source"] else -1
    channels = [(rank, to, operation["tag"])] if to >= 0 and _KINDS[operation["kind"]] != "recv" else []
    if origin >= 0 and _KINDS[operation["kind"]] != "send":
        channels.append((origin, rank, operation["tag"]))
    return tuple(channels)


def _note_ends(
    ends: dict[tuple, dict[str, Span]], run: int, span: Span, operation: dict[str, Any], fields: tuple[int, ...]
) -> None:
    """Note both ends of each message under what they have in common."""
    identity, number, sent, received = fields[0], fields[4], fields[5], fields[6]
    for channel in span.channels:
        here = [("sent", sent)] if channel[0] == span.rank and span.kind != "recv" else []
        here += [("received", received)] if channel[1] == span.rank and span.kind != "send" else []
        for role, on_channel in here:
            if span.name == "ppermute":  # ranks may call it at different lines
                key = (run, tuple(operation["destination"]), on_channel, channel)
            elif span.kind == "exchange":
                key = (run, identity, number, channel)
            else:
                key = (run, operation["path"], operation["pair"], on_channel, channel)
            ends.setdefault(key, {})[role] = span


def _messages(ends: dict[tuple, dict[str, Span]]) -> tuple[Message, ...]:
    found = []
    for key, roles in ends.items():
        if len(roles) == 2 and all(span.complete for span in roles.values()):
            sent, received = roles["sent"], roles["received"]
            found.append(Message(*key[-1], sent.start_s, max(received.end_s, sent.start_s), sent.size_bytes))
    return tuple(sorted(found, key=lambda message: message.posted_s))
