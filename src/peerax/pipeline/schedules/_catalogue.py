"""The schedules by their names."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from peerax.pipeline.schedules._flat import eager_1f1b, gpipe, one_forward_one_backward, zb_h1, zb_h2
from peerax.pipeline.schedules._folded import dualpipev, zbv
from peerax.pipeline.schedules._looped import (
    circular,
    combined_tick,
    interleaved_1f1b,
    interleaved_zero_bubble,
    looped_bfs,
)
from peerax.pipeline.schedules._schedule import Schedule


@dataclass(frozen=True)
class Known:
    """A schedule that has a name.

    Args:
        make: from ranks and microbatches, and from chunks as well if these may be chosen.
        chunks: how many stages a rank has, by default if these may be chosen.
        any_chunks: whether they may.
        any_group: whether the size of a group may be chosen.
        what: what is said of it in a list.
    """

    make: Callable[..., Schedule]
    chunks: int
    any_chunks: bool
    what: str
    any_group: bool = False


KNOWN = {
    "gpipe": Known(gpipe, 1, False, "all forwards, then all backwards"),
    "1f1b": Known(one_forward_one_backward, 1, False, "one forward, one backward: keeps at most one for each rank"),
    "eager-1f1b": Known(eager_1f1b, 1, False, "1F1B with more time for messages, and up to twice the memory"),
    "interleaved-1f1b": Known(
        interleaved_1f1b, 2, True, "1F1B with several chunks: a smaller bubble, more messages", True
    ),
    "looped-bfs": Known(looped_bfs, 2, True, "GPipe with several chunks, one after the other"),
    "combined-tick": Known(combined_tick, 1, True, "a forward and a backward in each step, for ranks that run in step"),
    "circular": Known(circular, 2, True, "forwards in a ring, and what their derivative does"),
    "zb-h1": Known(zb_h1, 1, False, "backwards in halves fill a part of the bubble"),
    "zb-h2": Known(zb_h2, 1, False, "backwards in halves fill all of it, for nearly twice the memory"),
    "interleaved-zb": Known(interleaved_zero_bubble, 2, True, "interleaved 1F1B with backwards in halves", True),
    "zbv": Known(zbv, 2, False, "two chunks in a V: fills the bubble with the memory of 1F1B"),
    "dualpipev": Known(dualpipev, 2, False, "two chunks in a V, a forward and a backward at the same time"),
}


def schedule(
    name: str, ranks: int, microbatches: int, chunks: int | None = None, *, group: int | None = None
) -> Schedule:
    """Make a schedule by its name.

    Args:
        name: such as "1f1b"; `SCHEDULES` are all of them.
        ranks: number of ranks.
        microbatches: number of microbatches.
        chunks: how many stages each rank has, where that may be chosen; by default 2, and 1 for "combined-tick".
        group: how many microbatches go through a chunk before the next one, for the interleaved schedules.

    Returns:
        A Schedule.

    Raises:
        ValueError: there is no schedule of this name, or none for these numbers; the message says which there are.

    Example:
        >>> print(schedule("1f1b", ranks=4, microbatches=8).replay())
    """
    known = KNOWN.get(name)
    if known is None:
        close = get_close_matches(name.lower(), KNOWN, n=1, cutoff=0.5)
        help_ = f"\n  help: take {close[0]}" if close else ""
        raise ValueError(f"there is no schedule {name!r}; there are {', '.join(KNOWN)}{help_}")
    options = {} if group is None else {"group": group}
    if options and not known.any_group:
        others = " and ".join(other for other, record in KNOWN.items() if record.any_group)
        raise ValueError(f"{name} has no groups\n  help: leave group out; it is for {others}")
    if known.any_chunks:
        return known.make(ranks, microbatches, known.chunks if chunks is None else chunks, **options)
    if chunks not in (None, known.chunks):
        others = ", ".join(other for other, record in KNOWN.items() if record.any_chunks)
        raise ValueError(
            f"{name} has {known.chunks} stage{'s' * (known.chunks > 1)} on each rank, not {chunks!r}"
            f"\n  help: leave chunks out, or take one of {others}"
        )
    return known.make(ranks, microbatches)


def described() -> list[tuple[str, str]]:
    """Return the name of each schedule, and what it is in a few words."""
    return [(name, known.what) for name, known in KNOWN.items()]
