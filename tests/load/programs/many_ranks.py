"""32 ranks on few cores: parallel matmuls, and receives in branches that differ by rank."""

import functools

import jax.numpy as jnp
from jax import lax
from rig import CHAIN, check_nothing_left, exchange, numbers, on_ranks, permute, receive, send

EVEN = CHAIN[::2]  # even ranks send, odd ones receive
STEPS = 20


def body(x, w, *, even, ring):
    def step(carry, _):
        x, total = carry
        work = [jnp.tanh(x[0] @ (w[0] * k)) for k in (0.5, 1.0, 1.5, 2.0)]  # independent of each other
        neighbour = even(work[0][None])
        x = ring(jnp.stack([sum(work[1:])]) + neighbour)
        return (x, total + neighbour), jnp.sum(x)

    (x, total), sums = lax.scan(step, (x, jnp.zeros_like(x)), length=STEPS)
    return x + total, sums[None]


def even_by_branches(y):
    def sender(y):
        send(y, EVEN, tag=3)
        return jnp.zeros_like(y)

    return lax.cond(lax.axis_index("r") % 2 == 0, sender, lambda y: receive(y, EVEN, tag=3), y)


x, w = numbers(32, 96, 96), numbers(32, 96, 96, seed=1) / 10
ours = on_ranks(functools.partial(body, even=even_by_branches, ring=exchange))(x, w)
theirs = on_ranks(functools.partial(body, even=functools.partial(permute, perm=EVEN), ring=permute))(x, w)
for a, b in zip(ours, theirs, strict=True):
    assert float(jnp.abs(a - b).max()) == 0.0, float(jnp.abs(a - b).max())
    assert float(jnp.abs(a).max()) > 0
check_nothing_left()
