"""Times, sizes, lines and tables as people read them."""

from math import floor, log10

from peerax.diagnostics import Channel, Location

UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
NOTHING_S = 1e-13  # what is far below a nanosecond is rounding
_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def unit_of(seconds: float) -> tuple[str, float]:
    """Return the largest unit of which a time is at least one, and its seconds."""
    return next((unit for unit in UNITS if seconds >= unit[1] * (1 - 1e-9)), UNITS[-1] if seconds else UNITS[0])


def duration(seconds: float) -> str:
    """Return for example "1.235 ms": four digits that count."""
    if seconds < NOTHING_S:
        return "0 s"
    name, unit = unit_of(seconds)
    return f"{digits(seconds / unit)} {name}"


def digits(value: float) -> str:
    """Return a number with four digits that count, and all that are before the point."""
    if not value:
        return "0"
    places = max(0, 3 - floor(log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def data(size_bytes: int) -> str:
    """Return for example "12 MiB"."""
    name, unit = next((unit for unit in _BYTES if size_bytes >= unit[1]), ("B", 1))
    return f"{digits(size_bytes / unit)} {name}"


def share(part: float) -> str:
    """Return for example "57 %"."""
    return f"{100 * part:.0f} %"


def line_of(location: Location | None) -> str:
    """Return for example "train.py:12"."""
    return "?" if location is None else f"{location[0]}:{location[1]}"


def channel_text(channel: Channel) -> str:
    """Return for example "0 > 1 tag 3"."""
    source, destination, tag = channel
    return f"{source} > {destination}" + (f" tag {tag}" if tag else "")


def heading(origin: str, size: int, semantics: str, makespan_s: float, bubble: float) -> str:
    """Return what a timeline is of, in a line."""
    ranks = "1 rank" if size == 1 else f"{size:,} ranks"
    return f"{origin}: {ranks}, {semantics} sends, {duration(makespan_s)} in all, bubble {share(bubble)}"


def in_columns(rows: list[list[str]]) -> str:
    """Return rows as plain text, each column as wide as what is in it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)
