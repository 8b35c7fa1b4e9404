"""What all pictures have in common: where a time is, the axis, boxes, texts, and the frame around them."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil, floor, log10

from peerax.timeline._boxes import Box
from peerax.timeline._style import DEFS, LEGEND, STYLE
from peerax.timeline._timeline import Span, Timeline
from peerax.timeline._units import digits, unit_of

CHARACTER = 5.9  # the width of a wide one, in pixels


class Axis:
    """Where a time is.

    Args:
        left, plot: where the axis begins, and how long it is, in pixels.
        from_s, until_s: the times at its ends.
    """

    def __init__(self, left: float, plot: float, from_s: float, until_s: float) -> None:
        self.left, self.plot, self.from_s, self.until_s = left, plot, from_s, until_s

    def x(self, seconds: float) -> float:
        """Return where a time is; what is outside is at the edge."""
        part = (seconds - self.from_s) / (self.until_s - self.from_s)
        return self.left + self.plot * min(1.0, max(0.0, part))

    def draw(self, end_s: float, top: float, bottom: float, labels: float) -> Iterator[str]:
        """Yield a line from top to bottom for each round time up to the end, and its label."""
        end = min(end_s, self.until_s)
        name, unit = unit_of(end)
        step = _tick((end - self.from_s) / (self.plot / 100)) if end > self.from_s else 1.0
        for i in range(ceil(self.from_s / step * (1 - 1e-9)), floor(end / step * (1 + 1e-9)) + 1):
            x = self.x(i * step)
            yield f'<path class="g" d="M{x:.1f} {top}V{bottom}"/>'
            yield text(x, labels, f"{digits(i * step / unit)} {name}" if i else "0", "l", "middle")

    def box(self, box: Box, y: float, bar: float) -> str:
        """Return a box of a row that is at y, and so high."""
        x, end = self.x(box.start_s), self.x(box.end_s)
        side = "th" if box.kind in ("stuck", "more") else "tw" if box.waits else "t"
        if box.kind == "stuck":
            end = self.left + self.plot
        # What takes no time is still seen.
        wide = max(end - x, 1.2)
        title = f"<title>{escape(box.title())}</title>"
        if box.shares:
            drawn, at = f"<g>{title}", y + bar
            for kind, waits, part in box.shares:
                at -= part * bar
                if part * bar > 0.2:
                    # A little wider, or there is a seam between it and the next one.
                    drawn += f"{_rect(_look(kind, waits), x, at, wide + 0.3, part * bar)}/>"
            return f"{drawn}</g>"
        drawn = f"{_rect(_look(box.kind, box.waits), x, y, wide, bar)}>{title}</rect>"
        if bar > 12 and wide > 24 and wide > len(label := box.label()) * CHARACTER + 6:
            drawn += text(x + wide / 2, y + bar / 2 + 3.5, label, side, "middle")
        return drawn


class Rows:
    """The ranks that are drawn, each in a row of its own.

    Args:
        size: how many ranks there are.
        ranks: which of them, in this order; all of them if None.
        most_ranks: at most so many.

    Raises:
        ValueError: there are no such ranks, or there is no room for one.
    """

    def __init__(self, size: int, ranks: Sequence[int] | None, most_ranks: int, width: int) -> None:
        if most_ranks < 1:
            raise ValueError(f"most_ranks is a number of rows, 1 or more, not {most_ranks!r}")
        if width < 640:
            raise ValueError(f"width is in pixels, 640 or more, not {width!r}")
        chosen = list(range(size)) if ranks is None else list(dict.fromkeys(ranks))
        if wrong := [rank for rank in chosen if not 0 <= rank < size]:
            raise ValueError(f"the ranks are 0..{size - 1}, not {wrong}")
        self.of_rank = {rank: row for row, rank in enumerate(chosen[:most_ranks])}
        more = len(chosen) - len(self.of_rank)
        self.notes = [f"{more:,} more ranks are not drawn; ranks=[...] chooses others"] if more else []

    def spans(self, timeline: Timeline) -> dict[int, list[Span]]:
        """Return the operations of the ranks that are drawn."""
        spans: dict[int, list[Span]] = {rank: [] for rank in self.of_rank}
        for span in timeline.spans:
            if span.rank in spans:
                spans[span.rank].append(span)
        return spans


def legend(kinds: set[str], stuck: bool, messages: bool) -> Iterator[str]:
    """Yield what the looks of boxes mean, below the heading."""
    x = 12.0
    for look, meaning, needs in LEGEND:
        if needs in kinds or not needs or (needs == "stuck" and stuck):
            yield f'<rect class="{look}" x="{x:.0f}" y="34" width="13" height="11" rx="2"/>'
            yield text(x + 18, 44, meaning, "l")
            x += 36 + len(meaning) * CHARACTER * 0.9
    if messages:
        yield f'<path class="a" d="M{x:.0f} 40h18" marker-end="url(#pxt-head)"/>'
        yield text(x + 26, 44, "message", "l")


def frame(width: float, height: float, heading: str, parts: Iterable[str], patterns: bool = True) -> str:
    """Return the picture; `patterns` are what stuck boxes and arrows need."""
    most = int((width - 16) / (CHARACTER * 1.35))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pxt" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(heading)}</title>",
            STYLE,
            *([DEFS] if patterns else []),
            '<rect class="bg" width="100%" height="100%"/>',
            text(12, 22, shortened(heading, most), "h"),
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, look: str, anchor: str = "start") -> str:
    """Return a text that begins at x, or has its middle or its end there."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'


def shortened(words: str, most: int) -> str:
    """Return a text of at most so many characters."""
    return words if len(words) <= most else words[: most - 1] + "…"


def _look(kind: str, waits: bool) -> str:
    return f"k-{kind} w" if waits and kind != "stuck" else f"k-{kind}"


def _rect(look: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.4g}"'


def _tick(least: float) -> float:
    """The next of ..., 1, 2, 5, 10, ... that is not smaller."""
    power = 10.0 ** floor(log10(least))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= least * (1 - 1e-9))
