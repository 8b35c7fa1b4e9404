"""What reads a program needs of its equations: which of them communicate, in which order, and what belongs together."""

from peerax.ops._communication import axes_of, call_of, has_peerax, has_sums, is_collective
from peerax.ops._late_sums import are_in_the_way, put_sums_last
from peerax.ops._leaves import type_name
from peerax.ops._order import order_p
from peerax.ops._pairs import find_pairs
from peerax.ops._parts import Part, uses
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p
from peerax.ops._ranks import Ranks
from peerax.ops._site import as_site
from peerax.ops._token import link_p

__all__ = [
    "Part",
    "Ranks",
    "are_in_the_way",
    "as_site",
    "axes_of",
    "call_of",
    "find_pairs",
    "has_peerax",
    "has_sums",
    "is_collective",
    "link_p",
    "order_p",
    "precv_p",
    "psend_p",
    "put_sums_last",
    "type_name",
    "uses",
]
