"""10,000 iterations with a pair and a separate message each."""

import jax.numpy as jnp
from jax import lax
from rig import RANKS, assert_same, check_nothing_left, exchange, on_ranks, receive, send

STEPS = 10_000


@on_ranks
def run(x):
    def step(carry, t):
        x, seen = carry
        send(x + t)
        x = exchange(x) + 1
        return (x, seen ^ receive(x)), None

    return lax.scan(step, (x, jnp.zeros_like(x)), jnp.arange(STEPS, dtype=x.dtype))[0]


start = [1_000_000 * rank for rank in range(RANKS)]
seen = [0] * RANKS
x = list(start)
for t in range(STEPS):
    seen = [0] + [seen[rank] ^ (x[rank - 1] + t) for rank in range(1, RANKS)]
    x = [x[rank - 1] + 1 for rank in range(RANKS)]
result = run(jnp.array(start, jnp.int32))
assert_same(result[0], x)
assert_same(result[1], seen)
check_nothing_left()
