"""Two timelines in one picture: for each rank the first one above the second one."""

from collections.abc import Iterator, Sequence

from peerax.timeline._boxes import boxes
from peerax.timeline._canvas import CHARACTER, Axis, Rows, frame, legend, text
from peerax.timeline._compare import Compared, Comparison, heading_of_both, ratio_of
from peerax.timeline._units import duration

_LEFT, _RIGHT, _TOP = 122, 58, 104
_GAP = 2  # between the two of a rank
_MOST_BOXES = 8000
_FAR_APART = 4  # so many times as long, and one axis would show nothing of the shorter one


def to_svg(
    comparison: Comparison, ranks: Sequence[int] | None, normalised: bool | None, most_ranks: int, width: int
) -> str:
    """Return the picture. Raises ValueError for ranks that there are not."""
    return _Overlay(comparison, Rows(comparison.first.size, ranks, most_ranks, width), normalised, width).draw()


class _Overlay:
    """What is drawn, and where."""

    def __init__(self, comparison: Comparison, rows: Rows, normalised: bool | None, width: int) -> None:
        self._comparison, self._width = comparison, width
        self._timelines = comparison.first, comparison.second
        self._rows, self._notes = rows.of_rank, rows.notes
        self._spans = [rows.spans(timeline) for timeline in self._timelines]
        count = len(self._rows)
        self._pitch, self._bar = (46, 17) if count <= 16 else (34, 13) if count <= 32 else (22, 8)
        self._bottom = _TOP + max(1, count) * self._pitch
        ends = [timeline.makespan_s * (1.2 if timeline.stuck else 1) for timeline in self._timelines]
        if normalised is None:
            normalised = min(ends) * _FAR_APART < max(ends) and min(ends) > 0
        self._normalised = normalised
        ends = [end or 1.0 for end in ends] if normalised else [max(ends) or 1.0] * 2
        self._axes = [Axis(_LEFT, width - _LEFT - _RIGHT, 0.0, end) for end in ends]
        if normalised:
            self._notes.append("each timeline has an axis of its own: lengths of the two do not compare")
        for name, timeline in zip(comparison.names, self._timelines, strict=True):
            if timeline.left_out:
                self._notes.append(f"{name}: {timeline.left_out:,} operations are not kept")

    def draw(self) -> str:
        parts = [*self._head(), *self._times()]
        for which in (0, 1):
            parts += self._boxes(which)
        parts += [*self._labels(), *self._ends()]
        parts += [text(_LEFT, self._bottom + 36 + 16 * i, note, "n") for i, note in enumerate(self._notes)]
        height = self._bottom + 26 + 16 * len(self._notes) + 8 * bool(self._notes)
        return frame(self._width, height, heading_of_both(self._comparison), parts)

    def _head(self) -> Iterator[str]:
        spans = [span for timeline in self._timelines for span in timeline.spans if span.rank in self._rows]
        yield from legend({s.kind for s in spans if s.complete}, any(t.stuck for t in self._timelines), False)
        first, second = self._comparison.names
        yield text(12, 64, f"of each rank: {first} above, {second} below", "l")

    def _times(self) -> Iterator[str]:
        first, second = self._axes
        if not self._normalised:
            end = max(timeline.makespan_s for timeline in self._timelines)
            yield from first.draw(end, _TOP, self._bottom, self._bottom + 14)
            return
        yield from first.draw(self._comparison.first.makespan_s, _TOP - 5, _TOP, _TOP - 8)
        yield from second.draw(self._comparison.second.makespan_s, self._bottom, self._bottom + 4, self._bottom + 14)

    def _ends(self) -> Iterator[str]:
        """Where each timeline ends, if they have one axis."""
        if self._normalised:
            return
        lines, labels = [], []
        for which, (name, timeline) in enumerate(zip(self._comparison.names, self._timelines, strict=True)):
            x, y = self._axes[which].x(timeline.makespan_s), _TOP - 18 + 13 * which
            lines.append(f'<path class="e" d="M{x:.1f} {y - 9}V{self._bottom + 4}"/>')
            words = f"{name}: {duration(timeline.makespan_s)}"
            right = x > _LEFT + len(words) * CHARACTER
            labels.append(text(x - 4 if right else x + 4, y, words, "th", "end" if right else "start"))
        yield from (*lines, *labels)

    def _boxes(self, which: int) -> Iterator[str]:
        timeline, axis = self._timelines[which], self._axes[which]
        spans = self._spans[which]
        least_px = 0.5
        if 3 * sum(map(len, spans.values())) > _MOST_BOXES // 2:
            least_px = max(least_px, axis.plot * len(self._rows) / (_MOST_BOXES // 2))
            shortest = duration(least_px * axis.until_s / axis.plot)
            name = self._comparison.names[which]
            self._notes.append(f"{name}: what is shorter than {shortest} is drawn together with its neighbours")
        for rank in self._rows:
            y = self._y(rank) + which * (self._bar + _GAP)
            for box in boxes(timeline, rank, spans[rank], least_px * axis.until_s / axis.plot):
                yield axis.box(box, y, self._bar)

    def _labels(self) -> Iterator[str]:
        yield text(self._width - _RIGHT + 8, _TOP - 5, "ratio", "l")
        for rank in self._rows:
            y = self._y(rank)
            stuck = [rank in timeline.stuck for timeline in self._timelines]
            yield text(12, y + self._bar + 4.5, f"rank {rank}", "s" if any(stuck) else "l")
            if self._bar > 12:
                for which, name in enumerate(self._comparison.names):
                    middle = y + which * (self._bar + _GAP) + self._bar / 2 + 3.5
                    yield text(_LEFT - 8, middle, name, "s" if stuck[which] else "n", "end")
            ends = Compared(*(timeline.ranks[rank].end_s for timeline in self._timelines))
            yield text(self._width - _RIGHT + 8, y + self._bar + 4.5, "stuck" if any(stuck) else ratio_of(ends), "l")

    def _y(self, rank: int) -> float:
        return _TOP + self._rows[rank] * self._pitch + (self._pitch - 2 * self._bar - _GAP) / 2
