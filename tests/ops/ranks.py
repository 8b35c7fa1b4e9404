"""Run functions on the ranks of a mesh, compare arrays bit for bit, and look at the errors of runs."""

import functools
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from tests.ranks import chain, line, pair, ring, site

__all__ = [
    "assert_same_bits",
    "bits",
    "chain",
    "grid",
    "line",
    "on_ranks",
    "pair",
    "ring",
    "run_time_error",
    "site",
]

_ALONG_X = P("x")
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@functools.cache
def grid(*sizes, names="abc"):
    """Return a mesh with axes "a", "b" and so on."""
    devices = np.array(jax.devices()[: int(np.prod(sizes))])
    return Mesh(devices.reshape(sizes), tuple(names[: len(sizes)]))


def on_ranks(body, size=4, *, in_specs=_ALONG_X, out_specs=_ALONG_X, **options):
    """Return the jitted program that runs body on every rank of a line."""
    return jax.jit(jax.shard_map(body, mesh=line(size), in_specs=in_specs, out_specs=out_specs, **options))


def bits(x):
    """Return an array's bits as unsigned integers; those of a key are its data."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(x))
    x = np.asarray(x)
    if x.dtype.name.startswith(("int", "uint")) and x.dtype.itemsize == 1:  # narrower ones have no other bits
        return x.astype(np.int16)
    if x.dtype.kind == "c":
        x = np.stack([x.real, x.imag], -1)
    return x.view(BITS[x.dtype.itemsize])


def assert_same_bits(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(bits(a), bits(b))


def run_time_error(program, *args, times=2):
    """Return the text of the error that a program ends with each time, soon and without harm to what comes next."""
    waits_s = []
    for _ in range(times):
        start = time.monotonic()
        with pytest.raises(jax.errors.JaxRuntimeError) as info:
            jax.block_until_ready(program(*args))
        waits_s.append(time.monotonic() - start)
        x = jax.numpy.arange(8.0)
        np.testing.assert_array_equal(_AFTERWARDS(x), np.roll(x, 2))
    # The first run compiles. The median, since a busy machine may hold up any single run.
    assert sorted(waits_s[1:])[len(waits_s[1:]) // 2] < 1.0, waits_s
    return str(info.value)


_AFTERWARDS = on_ranks(lambda x: pair(x, "x", ring(4)))
