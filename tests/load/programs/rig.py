"""What the programs of the load tests share; each of them runs in a process of its own."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from peerax.runtime import extension, load

RANKS = jax.device_count()
MESH = Mesh(np.array(jax.devices()), ("r",))
RING = [(i, (i + 1) % RANKS) for i in range(RANKS)]
CHAIN = RING[:-1]
load()  # so that settings can be changed before the first program runs


def on_ranks(body, *, check_vma=True, **options):
    """Compile a body whose arrays have one row per rank."""
    specs = {"in_specs": P("r"), "out_specs": P("r")}
    return jax.jit(jax.shard_map(body, mesh=MESH, check_vma=check_vma, **specs), **options)


def exchange(x, perm=RING):
    return peerax.precv(peerax.psend(x, "r", perm), x, "r", perm)


def send(x, perm=CHAIN, tag=0):
    return peerax.psend(x, "r", perm, tag=tag)


def receive(like, perm=CHAIN, tag=0):
    """Receive separately: whatever comes next on the channel."""
    return peerax.precv(peerax.create_token(), like, "r", perm, tag=tag)


def permute(x, perm=RING):
    return lax.ppermute(x, "r", perm)


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def assert_same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def failure(call):
    """Return the text of the error that a call raises."""
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    raise AssertionError("no error was raised")


@on_ranks
def lone_receive(x):
    """Fail with PX202: rank 1 expects what rank 0 does not send. Other messages are left over."""
    send(x, RING[1:], tag=7)
    return lax.cond(lax.axis_index("r") == 1, lambda: receive(x, [(0, 1)]), lambda: x)


@on_ranks
def lone_send(x):
    """Fail with PX201: nobody receives these messages, and a later program uses the same channels."""
    send(-x)
    return exchange(x)


@on_ranks
def shifted(x):
    """Move x by one rank with separate operations; the first rank has zeros."""
    send(x)
    return receive(x)


def check_shifted(x, y):
    assert_same(y, jnp.concatenate([jnp.zeros_like(x[: x.shape[0] // RANKS]), x[: -(x.shape[0] // RANKS)]]))


def check_nothing_left(limit_s=5.0):
    """Sessions and buffers go with the last rank, which may still be on its way out."""
    end = time.monotonic() + limit_s
    while extension().open_sessions() or extension().buffered_bytes():
        assert time.monotonic() < end, (extension().open_sessions(), extension().buffered_bytes())
        time.sleep(0.01)


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
