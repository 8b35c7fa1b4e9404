"""What a schedule demands of its numbers, and how it is said if they do not fit."""

from collections.abc import Callable


def require_counts(name: str, ranks: int, microbatches: int, chunks: int = 1) -> None:
    """Raise ValueError for a number that is no count."""
    for what, count in (("ranks", ranks), ("microbatches", microbatches), ("chunks", chunks)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name}: {what} is a whole number, 1 or more, not {count!r}")


def require(name: str, microbatches: int, valid: Callable[[int], bool], demand: str, instead: str) -> None:
    """Raise ValueError if a number of microbatches is not valid, with the nearest ones that are.

    Args:
        valid: whether a number is.
        demand: which ones are, in words.
        instead: another schedule that takes any number.
    """
    if valid(microbatches):
        return
    below = next((count for count in range(microbatches - 1, 0, -1) if valid(count)), None)
    above = next(count for count in range(microbatches + 1, 1_000_000_000) if valid(count))
    nearest = f"{above}" if below is None else f"{below} or {above}"
    raise ValueError(f"{name} needs {demand}; there are {microbatches}\n  help: take {nearest} of them, or {instead}")
