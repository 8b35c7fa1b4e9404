"""A timeline as a picture: ranks as rows, time to the right, messages as arrows.

The size of the picture is bounded, whatever that of the timeline is: of many ranks the first are drawn, what is too
narrow is put together, and more messages than can be told apart are not drawn. The picture says so below its axis.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from peerax.timeline._boxes import boxes
from peerax.timeline._canvas import CHARACTER, Axis, Rows, frame, legend, text
from peerax.timeline._table import heading_of
from peerax.timeline._timeline import Message, Timeline
from peerax.timeline._units import channel_text, data, duration, share

_LEFT, _RIGHT, _TOP = 78, 58, 62
_MOST_BOXES, _MOST_ARROWS = 8000, 1200
_FOR_EVER = 0.2  # how much of the time is added to show who is stuck


@dataclass(frozen=True)
class Extent:
    """What is drawn of a timeline: which ranks, at most how many, from when to when, and how many pixels wide."""

    ranks: Sequence[int] | None
    most_ranks: int
    between_s: tuple[float, float] | None
    width: int


def to_svg(timeline: Timeline, extent: Extent) -> str:
    """Return the picture. Raises ValueError for an extent that the timeline does not have."""
    return _Picture(timeline, extent).draw()


class _Picture:
    """What is drawn, and where."""

    def __init__(self, timeline: Timeline, extent: Extent) -> None:
        rows = Rows(timeline.size, extent.ranks, extent.most_ranks, extent.width)
        self._timeline, self._width = timeline, extent.width
        self._rows, self._notes, self._spans = rows.of_rank, rows.notes, rows.spans(timeline)
        count = len(self._rows)
        self._pitch, self._bar = (44, 26) if count <= 16 else (28, 17) if count <= 32 else (18, 11)
        self._bottom = _TOP + max(1, count) * self._pitch
        self._axis = Axis(_LEFT, extent.width - _LEFT - _RIGHT, *self._window(extent.between_s))

    def _window(self, between_s: tuple[float, float] | None) -> tuple[float, float]:
        """From when to when it is drawn; where ranks are stuck, some time is added to show it."""
        whole = self._timeline.makespan_s
        if between_s is not None:
            start, end = between_s
            if not 0 <= start < end:
                raise ValueError(f"between_s is (from, until), in seconds and in this order, not {between_s!r}")
            return start, end
        kept = [spans[-1].end_s for spans in self._spans.values() if spans]
        if self._timeline.left_out:
            self._notes.append(
                f"{self._timeline.left_out:,} operations are not kept, behind the first ones of each rank"
            )
            if kept and 0 < max(kept) < whole:
                self._notes.append(f"drawn until {duration(max(kept))} of {duration(whole)}, where what is kept ends")
                return 0.0, max(kept)
        return 0.0, whole * (1 + _FOR_EVER * bool(self._timeline.stuck)) or 1.0

    def draw(self) -> str:
        kinds = {span.kind for spans in self._spans.values() for span in spans if span.complete}
        head = legend(kinds, bool(self._timeline.stuck), bool(self._timeline.messages))
        parts = [*head, *self._times(), *self._boxes(), *self._arrows()]
        height = self._bottom + 26 + 16 * len(self._notes) + 8 * bool(self._notes)
        parts += [text(_LEFT, self._bottom + 36 + 16 * i, note, "n") for i, note in enumerate(self._notes)]
        return frame(self._width, height, heading_of(self._timeline), parts)

    def _y(self, rank: int) -> float:
        return _TOP + self._rows[rank] * self._pitch + (self._pitch - self._bar) / 2

    def _times(self) -> Iterator[str]:
        axis, whole = self._axis, self._timeline.makespan_s
        yield from axis.draw(whole, _TOP, self._bottom, self._bottom + 14)
        # What is behind the end is no time any more.
        if self._timeline.stuck and axis.until_s > whole:
            x = axis.x(whole)
            yield f'<path class="e" d="M{x:.1f} {_TOP - 4}V{self._bottom + 4}"/>'
            words = "nothing happens any more"
            if _LEFT + axis.plot - x > len(words) * CHARACTER + 20:
                yield text(_LEFT + axis.plot, self._bottom + 14, words, "s", "end")

    def _boxes(self) -> Iterator[str]:
        least_px = 0.5
        start, end = self._axis.from_s, self._axis.until_s
        seen = sum(s.end_s >= start and s.start_s <= end for spans in self._spans.values() for s in spans)
        if 3 * seen > _MOST_BOXES:
            least_px = max(least_px, self._axis.plot * len(self._rows) / _MOST_BOXES)
        least_s = least_px * (end - start) / self._axis.plot
        together = False
        for rank in self._rows:
            stuck = rank in self._timeline.stuck
            y = self._y(rank)
            middle = y + self._bar / 2 + 3.5
            yield text(_LEFT - 8, middle, f"rank {rank}", "s" if stuck else "l", "end")
            for box in boxes(self._timeline, rank, self._spans[rank], least_s):
                if box.end_s >= start and box.start_s <= end:
                    together |= bool(box.shares)
                    yield self._axis.box(box, y, self._bar)
            whole = self._timeline.makespan_s
            busy = share(self._timeline.ranks[rank].busy_s / whole) if whole else ""
            yield text(self._width - _RIGHT + 8, middle, "stuck" if stuck else busy, "s" if stuck else "l")
        yield text(self._width - _RIGHT + 8, _TOP - 4, "busy", "l")
        if together:
            self._notes.append(
                f"what is shorter than {duration(least_s)} is drawn together with its neighbours: "
                "the height of a colour is its share of the time"
            )

    def _arrows(self) -> Iterator[str]:
        rows, start, end = self._rows, self._axis.from_s, self._axis.until_s
        drawn = [m for m in self._timeline.messages if m.source in rows and m.destination in rows]
        if hidden := len(self._timeline.messages) - len(drawn):
            self._notes.append(f"{hidden:,} messages from or to ranks that are not drawn")
        seen = [m for m in drawn if m.received_s >= start and m.posted_s <= end]
        if len(seen) > _MOST_ARROWS:
            self._notes.append(
                f"{len(seen):,} messages are too many to be drawn; ranks=[...] and between_s=(from, until) draw fewer"
            )
            return
        if not seen:
            return
        faint = 0.9 if len(seen) <= 150 else 0.55 if len(seen) <= 500 else 0.3
        yield f'<g opacity="{faint}">'
        for message in seen:
            yield self._arrow(message)
        yield "</g>"

    def _arrow(self, message: Message) -> str:
        x, end = self._axis.x(message.posted_s), self._axis.x(message.received_s)
        top, to = self._y(message.source), self._y(message.destination)
        channel = channel_text((message.source, message.destination, message.tag))
        times = f"posted at {duration(message.posted_s)}, received at {duration(message.received_s)}"
        title = f"message {channel}, {data(message.size_bytes)}\n{times}"
        if message.source == message.destination:
            path = f"M{x:.1f} {top:.1f}q{(end - x) / 2:.1f} -9 {end - x:.1f} 0"
        elif to > top:
            path = f"M{x:.1f} {top + self._bar:.1f}L{end:.1f} {to:.1f}"
        else:
            path = f"M{x:.1f} {top:.1f}L{end:.1f} {to + self._bar:.1f}"
        return f'<path class="a" d="{path}" marker-end="url(#pxt-head)"><title>{escape(title)}</title></path>'
