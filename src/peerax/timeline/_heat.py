"""The communication matrix as a picture: one square for each pair of ranks, the darker the more there is in it."""

from collections.abc import Iterator
from html import escape

from peerax.timeline._canvas import CHARACTER, frame, text
from peerax.timeline._matrix import Matrix, Measure, amount_of, heading_of, notes_of, value_of
from peerax.timeline._units import data, duration

_TOP = 76
_LEAST_WIDTH = 420
_FAINTEST = 0.12


def to_svg(matrix: Matrix, measure: Measure, most: int) -> str:
    """Return the picture."""
    shown = matrix.folded(most)
    count = max(1, len(shown.names))
    side = 58 if count <= 8 else 48 if count <= 16 else 22 if count <= 32 else 12
    longest = max(map(len, shown.names), default=1)
    left = 26 + max(24.0, longest * CHARACTER)
    bottom = _TOP + count * side
    notes = [*_folded(matrix, shown), *notes_of(matrix)]
    width = max(_LEAST_WIDTH, left + count * side + 20)
    parts = [*_names(shown, left, side), *_squares(shown, measure, left, side), *_scale(shown, measure, left, bottom)]
    parts += [text(left, bottom + 46 + 16 * i, note, "n") for i, note in enumerate(notes)]
    height = bottom + 40 + 16 * len(notes) + 8 * bool(notes)
    return frame(width, height, heading_of(matrix, measure), parts, patterns=False)


def _names(matrix: Matrix, left: float, side: int) -> Iterator[str]:
    count = len(matrix.names)
    yield text(left, 42, "rows send to columns", "l")
    # So many that they do not touch each other.
    widest = max(map(len, matrix.names), default=1) * CHARACTER + 4
    across, down = (next(n for n in (1, 2, 4, 8, 16, 32, 64) if n * side >= room) for room in (widest, 11))
    for i in range(0, count, across):
        yield text(left + (i + 0.5) * side, _TOP - 6, matrix.names[i], "l", "middle")
    for i in range(0, count, down):
        yield text(left - 6, _TOP + (i + 0.5) * side + 3.5, matrix.names[i], "l", "end")


def _squares(matrix: Matrix, measure: Measure, left: float, side: int) -> Iterator[str]:
    count = len(matrix.names)
    # What is empty is one square, with lines where there is room for them.
    yield f'<rect class="c0" x="{left:.1f}" y="{_TOP}" width="{count * side}" height="{count * side}"/>'
    if side > 12:
        for i in range(count + 1):
            yield f'<path class="g" d="M{left:.1f} {_TOP + i * side}h{count * side}"/>'
            yield f'<path class="g" d="M{left + i * side:.1f} {_TOP}v{count * side}"/>'
    largest = _largest(matrix, measure)
    for (row, column), traffic in sorted(matrix.cells.items()):
        amount = amount_of(traffic, measure)
        part = amount / largest if largest else 0.0
        x, y = left + column * side, _TOP + row * side
        title = (
            f"{matrix.names[row]} > {matrix.names[column]}: {traffic.messages:,} messages, "
            f"{data(traffic.size_bytes)}, longest wait {duration(traffic.longest_wait_s)}"
        )
        yield (
            f'<rect class="c" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{side - 1}" height="{side - 1}" '
            f'fill-opacity="{_opacity(part):.2f}"><title>{escape(title)}</title></rect>'
        )
        value = value_of(traffic, measure)
        if value and side > 24:
            number, _, unit = value.partition(" ")
            look = "ct" if _opacity(part) > 0.68 else "tw"
            for i, words in enumerate(filter(None, (number, unit))):
                at = y + side / 2 + (3.5 if not unit else -2 + 12 * i)
                yield text(x + side / 2, at, words, look, "middle")


def _scale(matrix: Matrix, measure: Measure, left: float, bottom: float) -> Iterator[str]:
    """What the darkest square stands for, and that half of it looks half as dark."""
    largest = _largest(matrix, measure)
    if not largest:
        yield text(left, bottom + 20, "nothing was sent" if measure != "waits" else "nobody waited", "n")
        return
    shown = {"data": data, "messages": lambda n: f"{n:,}", "waits": duration}[measure]
    yield text(left, bottom + 20, "0", "l")
    for i in range(12):
        x = left + 12 + 9 * i
        opacity = _opacity((i + 1) / 12)
        yield f'<rect class="c" x="{x:.1f}" y="{bottom + 11}" width="9" height="11" fill-opacity="{opacity:.2f}"/>'
    yield text(left + 12 + 9 * 12 + 6, bottom + 20, shown(largest), "l")


def _largest(matrix: Matrix, measure: Measure) -> float:
    return max((amount_of(traffic, measure) for traffic in matrix.cells.values()), default=0)


def _opacity(part: float) -> float:
    # What is there at all can be told from what is not.
    return _FAINTEST + (1 - _FAINTEST) * part


def _folded(matrix: Matrix, shown: Matrix) -> Iterator[str]:
    if len(shown.names) < len(matrix.names):
        yield f"of the {len(matrix.names):,} ranks, neighbours are put together"
