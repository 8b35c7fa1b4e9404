"""How many bytes the types of a program take, such as "float32[8,3]"."""

import re
from functools import lru_cache
from math import prod

_TYPE = re.compile(r"(.+?)\[((?:\d+(?:,\d+)*)?)\]")
_FLOATS_OF_EIGHT_BITS = "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu".split()
_BITS = {
    "bool": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (1, 2, 4, 8, 16, 32, 64)},
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    **{f"float8_{form}": 8 for form in _FLOATS_OF_EIGHT_BITS},
    "bfloat16": 16,
    "float16": 16,
    "float32": 32,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
    # The data of a PRNG key: threefry has two words, rbg and unsafe_rbg have four.
    "key<fry>": 64,
    "key<rbg>": 128,
    "key<urbg>": 128,
}


@lru_cache(maxsize=65536)
def size_bytes(name: str) -> int:
    """Return the size of an array of that type; elements narrower than a byte are packed. Raises ValueError."""
    match = _TYPE.fullmatch(name)
    if not match:
        raise ValueError(f"{name!r} is not the name of a type, such as 'float32[8,3]'")
    if match[1] not in _BITS:
        raise ValueError(f"the size of the dtype {match[1]!r} is not known; known are {', '.join(_BITS)}")
    elements = prod(map(int, match[2].split(","))) if match[2] else 1
    return -(-elements * _BITS[match[1]] // 8)
