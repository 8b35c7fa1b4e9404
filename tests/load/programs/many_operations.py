"""Hundreds of independent operations between exchanges, so that XLA runs them in parallel, whatever waits."""

import functools

import jax.numpy as jnp
from jax import lax
from rig import (
    CHAIN,
    RANKS,
    assert_same,
    check_nothing_left,
    exchange,
    numbers,
    on_ranks,
    permute,
    receive,
    send,
)

ROUNDS, LANES, RUNS = 8, 16, 50


def body(x, w, *, ring, chain):
    lanes = [x[0] * (1 + i) / LANES for i in range(LANES)]
    for step in range(ROUNDS):
        lanes = [jnp.sin(lane @ w[0]) + jnp.cos(lane) * lanes[i - 1] for i, lane in enumerate(lanes)]
        lanes[step % LANES] = ring(lanes[step % LANES][None])[0]
        lanes[(step + 5) % LANES] += chain(lanes[(step + 3) % LANES][None])[0]
        lanes[(step + 9) % LANES] += lax.psum(lanes[(step + 7) % LANES], "r") / RANKS
    return jnp.stack(lanes)[None]


def separate(x):
    send(x)
    return receive(x)


x, w = numbers(RANKS, 48, 48), numbers(RANKS, 48, 48, seed=1) / 7
wanted = on_ranks(functools.partial(body, ring=permute, chain=functools.partial(permute, perm=CHAIN)))(x, w)
assert float(jnp.abs(wanted).max()) > 0 and bool(jnp.isfinite(wanted).all())
run = on_ranks(functools.partial(body, ring=exchange, chain=separate))
for _ in range(RUNS):
    assert_same(run(x, w), wanted)
check_nothing_left()
