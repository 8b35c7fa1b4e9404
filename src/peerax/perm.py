"""Perms: sequences of (source, destination) pairs of ranks along one axis or tuple of axes."""

import operator
from collections.abc import Iterable

from peerax.diagnostics import Location, PeeraxError

Perm = tuple[tuple[int, int], ...]

_FORM = "a perm is a sequence of (source, destination) pairs of ints, for example [(0, 1), (1, 2)]"


def check_perm(perm: Iterable, size: int, location: Location) -> Perm:
    """Return perm as a tuple of pairs of ints, or raise.

    Args:
      perm: pairs in any order; a list, tuple, array or generator of pairs.
      size: number of ranks along the axis.
      location: the user's file and line, for the error.

    Raises:
      PeeraxError: PX105 if it is not pairs of ints, PX102 if a rank is outside 0..size-1, PX103 if a source or a
        destination comes twice.
    """
    pairs = _as_pairs(perm, location)
    for source, destination in pairs:
        for rank in (source, destination):
            if not 0 <= rank < size:
                ranks = f"ranks 0..{size - 1}" if size > 1 else "one rank only, 0"
                raise PeeraxError.of(
                    "PX102",
                    f"the pair ({source}, {destination}) names rank {rank}, but the axis has {ranks}",
                    locations=(location,),
                    help=_help_for(rank, size),
                )
    for role, ranks in (("source", [s for s, _ in pairs]), ("destination", [d for _, d in pairs])):
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        if twice:
            where = ", ".join(str(pair) for pair in pairs if pair[role == "destination"] in twice)
            raise PeeraxError.of(
                "PX103",
                f"rank {twice[0]} is a {role} more than once: {where}",
                locations=(location,),
                ranks=twice,
            )
    return pairs


def _help_for(rank: int, size: int) -> str | None:
    if rank < 0:
        return "negative ranks do not wrap; write (rank + offset) % size for a ring"
    if size == 1:  # most often the program was started without devices
        return "give the program more devices, for example with peerax run --devices 4 script.py"
    return None


def inverse(perm: Perm) -> Perm:
    """Return the perm that sends every message back."""
    return tuple((destination, source) for source, destination in perm)


def _as_pairs(perm, location: Location) -> Perm:
    if isinstance(perm, (str, bytes, dict)) or not isinstance(perm, Iterable):
        raise PeeraxError.of("PX105", f"got {_shown(perm)}; {_FORM}", locations=(location,))
    pairs = []
    try:
        listed = list(perm)
    except TypeError:  # an array without a dimension
        raise PeeraxError.of("PX105", f"got {_shown(perm)}; {_FORM}", locations=(location,)) from None
    for pair in listed:
        try:
            if isinstance(pair, (set, frozenset, dict, str, bytes)):
                raise TypeError
            source, destination = pair
            if isinstance(source, bool) or isinstance(destination, bool):
                raise TypeError
            pairs.append((operator.index(source), operator.index(destination)))
        except (TypeError, ValueError):
            raise PeeraxError.of(
                "PX105", f"{_shown(pair)} is not a pair of ints; {_FORM}", locations=(location,)
            ) from None
    return tuple(pairs)


def _shown(value) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
