"""A replay as plain text: a row for each rank, time to the right, in cells of the shortest action."""

from collections.abc import Iterator
from itertools import groupby
from math import floor

from peerax.pipeline.schedules._action import COMPUTE, Action
from peerax.pipeline.schedules._replay import Replay
from peerax.timeline._units import duration

_MOST_CELLS, _LEAST_WIDTH = 1200, 40

Piece = tuple[str, str]  # the text, and the kind of the action that it belongs to, "idle" or ""


def to_text(replay: Replay, width: int) -> str:
    """Return the text, without a newline at its end."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines(replay, width))


def lines(replay: Replay, width: int) -> Iterator[list[Piece]]:
    """Yield the lines in pieces that look alike."""
    if width < _LEAST_WIDTH:
        raise ValueError(f"width is in characters, {_LEAST_WIDTH} or more, not {width!r}")
    yield [(replay.heading, "")]
    shortest = min((t.end_s - t.start_s for row in replay.times for t in row if t.end_s > t.start_s), default=0.0)
    names = [f"rank {rank}" for rank in range(replay.schedule.ranks)]
    left = len(names[-1]) + 2
    if not shortest or replay.makespan_s / shortest > _MOST_CELLS:
        yield [("times differ too much to be drawn as text; in their order:", "")]
        for name, row in zip(names, replay.times, strict=True):
            shown = [(f"{label(replay, timed.action)} ", timed.action.kind) for timed in row]
            yield [(name.ljust(left), ""), *shown]
        return
    cells = [_cells(replay, rank, shortest) for rank in range(replay.schedule.ranks)]
    wide = 1 + max(len(word) for row in cells for word, _, _ in row)
    count = max(map(len, cells))
    blocks = -(-count // max(1, (width - left) // wide))
    step = max(1, -(-count // max(1, blocks)))  # as long as each other
    for first in range(0, count, step):
        if first:
            yield []
        if count > step:
            yield [(f"from {duration(first * shortest)}".rjust(left), "")]
        for name, row in zip(names, cells, strict=True):
            yield [(name.ljust(left), ""), *_joined(row[first : first + step], count - first, step, wide)]


def label(replay: Replay, action: Action) -> str:
    """Return what an action is; the stage only where a rank has several."""
    of_stage = replay.schedule.chunks > 1
    words = [f"{leaf.stage if of_stage else ''}{leaf.kind}{leaf.microbatch}" for leaf in action.leaves]
    return "+".join(words)


def _cells(replay: Replay, rank: int, shortest: float) -> list[tuple[str, str, bool]]:
    """Return for each cell the text, the kind, and whether it goes on with what is in the one before."""
    row: list[tuple[str, str, bool]] = []
    for timed in replay.times[rank]:
        if timed.action.leaves[0].kind not in COMPUTE:
            continue
        start, end = (floor(time / shortest + 0.5 + 1e-6) for time in (timed.start_s, timed.end_s))
        row += [(".", "idle", False)] * (start - len(row))
        # Both parts of an overlap are named, in cells of their own.
        words = label(replay, timed.action).split("+")[: max(1, end - start)]
        for number in range(end - start):
            row.append((words[number] if number < len(words) else "-", timed.action.kind, number > 0))
    return row


def _joined(row: list[tuple[str, str, bool]], left: int, step: int, wide: int) -> Iterator[Piece]:
    """Yield the cells of a line; what goes on fills the room up to the next cell."""
    row = row + [(".", "idle", False)] * (min(left, step) - len(row))
    shown = []
    for (word, kind, _), behind in zip(row, [*row[1:], ("", "", False)], strict=True):
        # The second part of an overlap is behind a plus.
        filler = "+" if behind[2] and behind[0] != "-" else "-" if behind[2] else " "
        cell = word.ljust(wide, filler)
        # The gap between two actions is of neither.
        shown += [(kind, cell)] if behind[2] else [(kind, cell[:-1]), ("", " ")]
    for kind, words in groupby(shown, key=lambda cell: cell[0]):
        yield "".join(word for _, word in words), kind
