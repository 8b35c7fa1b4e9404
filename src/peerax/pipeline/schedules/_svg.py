"""A replay as a picture: ranks as rows, time to the right, a box for each action with the number of its microbatch.

The colour is that of the kind, and the paler it is, the later is the stage among those of its rank. What is hatched is
idle.
"""

from collections.abc import Iterator
from html import escape

from peerax.pipeline.schedules._action import COMPUTE, Action
from peerax.pipeline.schedules._replay import Replay, Timed
from peerax.timeline._canvas import CHARACTER, Axis, frame, text
from peerax.timeline._units import duration, share

_LEFT, _RIGHT, _TOP = 64, 108, 64
_BOX, _LEAST_PLOT, _MOST_PLOT, _LEAST_WIDTH = 15, 700, 6000, 480
_PALEST = 0.34
_MEANINGS = {"F": "forward", "B": "backward", "I": "backward of the input", "W": "backward of the weights"}
_STYLE = """<style>
.pxt .pF{fill:#2f6fb3}
.pxt .pB{fill:#b5541c}
.pxt .pI{fill:#a03a6b}
.pxt .pW{fill:#6b7f1f}
.pxt .idle{fill:url(#pxt-more);opacity:.6}
@media (prefers-color-scheme:dark){
.pxt .pF{fill:#3b82cc}
.pxt .pB{fill:#c8642a}
.pxt .pI{fill:#b84f81}
.pxt .pW{fill:#7f9628}
}
</style>"""


def to_svg(replay: Replay, width: int | None) -> str:
    """Return the picture; by default it is so wide that the shortest action has room for its number."""
    if width is not None and width < _LEAST_WIDTH:
        raise ValueError(f"width is in pixels, {_LEAST_WIDTH} or more, not {width!r}")
    shortest = min((t.end_s - t.start_s for row in replay.times for t in row if t.end_s > t.start_s), default=1.0)
    if width is None:
        plot = min(_MOST_PLOT, max(_LEAST_PLOT, round(replay.makespan_s / shortest * _BOX)))
    else:
        plot = width - _LEFT - _RIGHT
    return _Picture(replay, plot).draw()


class _Picture:
    """What is drawn, and where."""

    def __init__(self, replay: Replay, plot: int) -> None:
        self._replay = replay
        count = replay.schedule.ranks
        halves = any(action.parts for row in replay.schedule.actions for action in row)
        self._pitch, self._bar = (
            (42, 32) if halves and count <= 16 else (34, 24) if count <= 16 else (24, 17) if count <= 64 else (14, 10)
        )
        self._bottom = _TOP + count * self._pitch
        self._axis = Axis(_LEFT, plot, 0.0, replay.makespan_s or 1.0)
        self._width = _LEFT + plot + _RIGHT

    def draw(self) -> str:
        """Return the picture."""
        parts = [_STYLE, *self._legend()]
        parts += self._axis.draw(self._replay.makespan_s, _TOP, self._bottom, self._bottom + 14)
        right = _LEFT + self._axis.plot
        parts += [text(right + 8, _TOP - 4, "busy", "l"), text(right + 52, _TOP - 4, "keeps", "l")]
        for rank in range(self._replay.schedule.ranks):
            parts += self._row(rank)
        return frame(self._width, self._bottom + 26, self._replay.heading, parts)

    def _legend(self) -> Iterator[str]:
        replay = self._replay
        kinds = {leaf.kind for rank in range(replay.schedule.ranks) for leaf in replay.schedule.leaves(rank)}
        x = 12.0
        for kind, meaning in _MEANINGS.items():
            if kind in kinds:
                yield f'<rect class="p{kind}" x="{x:.0f}" y="34" width="13" height="11"/>'
                yield text(x + 18, 44, meaning, "l")
                x += 36 + len(meaning) * CHARACTER * 0.9
        yield f'<rect class="idle" x="{x:.0f}" y="34" width="13" height="11"/>'
        yield text(x + 18, 44, "idle", "l")
        x += 60
        chunks = replay.schedule.chunks
        if chunks > 1:
            shown = min(chunks, 8)
            yield text(x, 44, "stages of a rank, in their order", "l")
            x += 31 * CHARACTER * 0.9 + 8
            for chunk in range(shown):
                opacity = self._opacity(round(chunk * (chunks - 1) / (shown - 1)))
                yield f'<rect class="pF" fill-opacity="{opacity:.2f}" x="{x:.0f}" y="34" width="13" height="11"/>'
                x += 14

    def _row(self, rank: int) -> Iterator[str]:
        replay, whole = self._replay, self._replay.makespan_s
        y = _TOP + rank * self._pitch + (self._pitch - self._bar) / 2
        middle = y + self._bar / 2 + 3.5
        yield text(_LEFT - 8, middle, f"rank {rank}", "l", "end")
        # Or the lines of the times would be seen through pale boxes.
        yield f'<rect class="bg" x="{_LEFT}" y="{y:.1f}" width="{self._axis.plot}" height="{self._bar}"/>'
        at = 0.0
        for timed in replay.times[rank]:
            if timed.action.leaves[0].kind not in COMPUTE:
                continue
            yield from self._idle(rank, at, timed.start_s, y)
            yield from self._box(timed, y)
            at = timed.end_s
        yield from self._idle(rank, at, whole, y)
        right = _LEFT + self._axis.plot
        yield text(right + 8, middle, share(replay.busy_s[rank] / whole) if whole else "", "l")
        yield text(right + 52, middle, str(replay.peaks[rank]), "l")

    def _idle(self, rank: int, start_s: float, end_s: float, y: float) -> Iterator[str]:
        x, end = self._axis.x(start_s), self._axis.x(end_s)
        if end - x > 0.05:
            title = f"rank {rank} is idle for {duration(end_s - start_s)}, from {duration(start_s)} on"
            yield _rect("idle", x, y, end - x, self._bar, 1.0, title)

    def _box(self, timed: Timed, y: float) -> Iterator[str]:
        x, end = self._axis.x(timed.start_s), self._axis.x(timed.end_s)
        leaves = timed.action.leaves
        title = f"{self._title(timed.action)}\n{duration(timed.start_s)} to {duration(timed.end_s)}"
        # A gap between boxes, unless they are so narrow that it would be all there is.
        wide = end - x - (0.8 if end - x > 4 else 0.0)
        height = self._bar / len(leaves)
        for number, leaf in enumerate(leaves):
            opacity = self._opacity(self._replay.schedule.chunk_of(leaf.stage))
            top = y + number * height
            yield _rect(f"p{leaf.kind}", x, top, max(wide, 0.3), height, opacity, title)
            words = str(leaf.microbatch)
            if height > 9 and wide > len(words) * CHARACTER + 1:
                look = "t" if opacity > 0.7 else "tw"
                yield text(x + wide / 2, top + height / 2 + 3.5, words, look, "middle")

    def _title(self, action: Action) -> str:
        words = [f"{_MEANINGS[leaf.kind]}, stage {leaf.stage}, microbatch {leaf.microbatch}" for leaf in action.leaves]
        return "\nand at the same time ".join(words)

    def _opacity(self, chunk: int) -> float:
        last = self._replay.schedule.chunks - 1
        return 1 - (1 - _PALEST) * chunk / last if last else 1.0


def _rect(look: str, x: float, y: float, width: float, height: float, opacity: float, title: str) -> str:
    pale = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    return (
        f'<rect class="{look}"{pale} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{escape(title)}</title></rect>"
    )
