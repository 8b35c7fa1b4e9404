"""A pipeline as it is written for GPUs, on jax.lax's names, 100 times.

A receive before the loop meets its first send, a send after the loop meets its last receive. Each run must
have a difference of 0.0 to the same pipeline with ppermute.
"""

import jax
import jax.numpy as jnp
from jax import lax
from rig import CHAIN, RANKS, check_nothing_left, numbers, on_ranks

import peerax

peerax.install()

WIDTH, ROWS, CHUNKS = 48, 16, 6
TICKS = CHUNKS + RANKS - 1
TO_FIRST = [(RANKS - 1, 0)]


def layer(weights, x):
    return jnp.tanh(x @ weights[0])


def enter(chunks, t, arrived, returned):
    """The first rank takes a new chunk, mixed with what came back; the others go on with what arrived."""
    new = lax.dynamic_index_in_dim(chunks, t % CHUNKS, keepdims=False) + 0.1 * returned
    return jnp.where(lax.axis_index("r") == 0, new, arrived)


def ours(weights, chunks):
    chunks = chunks[0]
    shape = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)

    def tick(carry, t):
        out, arrived, returned, result = carry
        token = lax.psend(result, "r", CHAIN)
        result = layer(weights, enter(chunks, t, arrived, returned))
        back, _ = lax.optimization_barrier((result, token))
        returned = lax.ppermute(back, "r", TO_FIRST)
        token, _ = lax.optimization_barrier((lax.create_token(), returned))
        arrived = lax.precv(token, shape, "r", CHAIN)
        return (lax.dynamic_update_index_in_dim(out, result, t, 0), arrived, returned, result), None

    zeros = jnp.zeros(shape.shape)
    first = lax.precv(lax.create_token(), shape, "r", CHAIN)
    carry = jnp.zeros((TICKS, ROWS, WIDTH)), first, zeros, zeros
    (out, _, _, last), _ = lax.scan(tick, carry, jnp.arange(TICKS))
    lax.psend(last, "r", CHAIN)
    return out[None]


def theirs(weights, chunks):
    chunks = chunks[0]

    def tick(carry, t):
        out, returned, result = carry
        arrived = lax.ppermute(result, "r", CHAIN)
        result = layer(weights, enter(chunks, t, arrived, returned))
        returned = lax.ppermute(result, "r", TO_FIRST)
        return (lax.dynamic_update_index_in_dim(out, result, t, 0), returned, result), None

    zeros = jnp.zeros((ROWS, WIDTH))
    return lax.scan(tick, (jnp.zeros((TICKS, ROWS, WIDTH)), zeros, zeros), jnp.arange(TICKS))[0][0][None]


weights = numbers(RANKS, WIDTH, WIDTH) / WIDTH**0.5
chunks = jnp.broadcast_to(numbers(1, CHUNKS, ROWS, WIDTH, seed=1), (RANKS, CHUNKS, ROWS, WIDTH))
wanted = on_ranks(theirs, check_vma=False)(weights, chunks)
run = on_ranks(ours, check_vma=False)
differences = [float(jnp.abs(run(weights, chunks) - wanted).max()) for _ in range(100)]
assert differences == [0.0] * 100, differences
assert float(jnp.abs(wanted).max()) > 0.1
check_nothing_left()
