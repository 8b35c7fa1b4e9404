"""What is drawn in the row of a rank: boxes of time, in which what is too narrow to be seen is put together."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from peerax.timeline._timeline import Pause, Span, Timeline
from peerax.timeline._transfers import ends
from peerax.timeline._units import data, duration, line_of, share


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a row.

    Args:
        kind: "compute", the kind of an operation, "stuck", "more" for operations that are not kept, or "several".
        waits: whether the rank waits for another one.
        span: the operation, if it is one.
        number: how many operations it stands for, if it is "more" or "several".
        shares: of several pieces that are drawn together, (kind, waits, share of the time) of each look.
    """

    rank: int
    start_s: float
    end_s: float
    kind: str
    waits: bool = False
    span: Span | None = None
    number: int = 0
    shares: tuple[tuple[str, bool, float], ...] = ()

    def label(self) -> str:
        """Return what is shown in the box if there is room."""
        if self.span is not None:
            return describe(self.span)
        return duration(self.end_s - self.start_s) if self.kind == "compute" else f"{self.number:,} more operations"

    def title(self) -> str:
        """Return what is shown when the box is pointed at."""
        times = f"{duration(self.start_s)} to {duration(self.end_s)}"
        if self.span is not None:
            return _title(self.span)
        if self.kind == "compute":
            return f"rank {self.rank} computes for {duration(self.end_s - self.start_s)}\n{times}"
        if self.kind == "more":
            return f"rank {self.rank}: {self.label()}, {times}"
        parts = [f"rank {self.rank}: {self.number:,} operations, {times}"]
        for kind, waits, part in self.shares:
            what = "computes" if kind == "compute" else f"{'waits' if waits else 'moves data'} in {kind}"
            parts.append(f"{what} {share(part)}")
        return "\n".join(parts)


def boxes(timeline: Timeline, rank: int, spans: list[Span], least_s: float) -> Iterator[Box]:
    """Yield the boxes of a rank in order; successive ones shorter than least_s are one."""
    short: list[Box] = []
    for box in _pieces(timeline, rank, spans):
        if short and box.start_s > short[-1].end_s:  # a pause
            yield from _together(short)
            short = []
        if box.end_s - box.start_s >= least_s or box.kind == "stuck":
            yield from _together(short)
            short = []
            yield box
        else:
            short.append(box)
            if box.end_s - short[0].start_s >= least_s:
                yield from _together(short)
                short = []
    yield from _together(short)


def describe(span: Span) -> str:
    """Return what an operation is, in a few characters."""
    others = (f"> {destination}" if sends else f"< {source}" for (source, destination, _), sends in ends(span))
    tag = next((f" tag {tag}" for _, _, tag in span.channels if tag), "")
    return f"{' '.join([span.name, *others])}{tag}"


def _title(span: Span) -> str:
    what = f"rank {span.rank}: {describe(span)}, {data(span.size_bytes)}, {line_of(span.location)}"
    if span.iterations:
        what += "\niteration " + " of ".join(f"{i + 1}/{trip}" for i, trip in reversed(span.iterations))
    if not span.complete:
        return f"{what}\nstuck from {duration(span.start_s)} on"
    waits, moves = span.matched_s - span.start_s, span.end_s - span.matched_s
    times = f"{duration(span.start_s)} to {duration(span.end_s)}"
    return f"{what}\n{times}: waits {duration(waits)}, moves data {duration(moves)}"


def _pieces(timeline: Timeline, rank: int, spans: list[Span]) -> Iterator[Box]:
    pauses = deque(pause for pause in timeline.pauses if pause.rank == rank)
    missing = timeline.ranks[rank].operations - len(spans)
    at = 0.0
    if missing and timeline.origin == "measured" and spans:
        yield Box(rank, at, spans[0].start_s, "more", number=missing)
        at, missing = spans[0].start_s, 0
    for span in spans:
        start, matched, end = span.start_s, span.matched_s, span.end_s
        if start > at:
            yield from _computing(rank, at, start, pauses)
        if not span.complete:
            yield Box(rank, start, end, "stuck", True, span)
        else:
            if matched > start:
                yield Box(rank, start, matched, span.kind, True, span)
            # What takes no time at all has a box too.
            if end > matched or end == start:
                yield Box(rank, matched, end, span.kind, False, span)
        at = end
    end = timeline.ranks[rank].end_s
    if missing:
        yield Box(rank, at, end, "more", number=missing)
    elif end > at:
        yield from _computing(rank, at, end, pauses)


def _computing(rank: int, start_s: float, end_s: float, pauses: deque[Pause]) -> Iterator[Box]:
    """What is between two operations, and in no pause. Takes away the pauses that it has come by."""
    at = start_s
    while pauses and pauses[0].start_s < end_s:
        pause = pauses.popleft()
        if pause.start_s > at:
            yield Box(rank, at, pause.start_s, "compute")
        at = max(at, pause.end_s)
    if end_s > at:
        yield Box(rank, at, end_s, "compute")


def _together(short: list[Box]) -> list[Box]:
    """One box for several, with the share that each look has of their time: first computing, at last waiting."""
    if len(short) < 2:
        return short
    first, start, end = short[0], short[0].start_s, short[-1].end_s
    if start == end:
        return short[:1]
    times: dict[tuple[bool, bool, str], float] = {}
    for box in short:
        look = box.waits, box.kind != "compute", box.kind
        times[look] = times.get(look, 0.0) + box.end_s - box.start_s
    shares = tuple((kind, waits, seconds / (end - start)) for (waits, _, kind), seconds in sorted(times.items()))
    operations = len({id(box.span) for box in short if box.span is not None})
    return [Box(first.rank, start, end, "several", number=operations, shares=shares)]
