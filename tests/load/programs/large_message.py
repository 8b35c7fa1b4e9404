"""One message of 1 GiB, as a pair and as a separate message."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from rig import MESH, RANKS, check_nothing_left, exchange, receive, send

WORDS = 2**28
assert RANKS == 2


def separate(x):
    send(x, [(0, 1)])
    return receive(x, [(0, 1)])


def body(move):
    def run(step):
        x = (jnp.arange(WORDS, dtype=jnp.uint32) * step) ^ lax.axis_index("r").astype(jnp.uint32)
        y = move(x)
        wanted = jnp.where(lax.axis_index("r") == 1, jnp.arange(WORDS, dtype=jnp.uint32) * step, 0)
        return jnp.sum(y != wanted)[None], y[-1:]

    return jax.jit(jax.shard_map(run, mesh=MESH, in_specs=P(), out_specs=P("r")))


step = jnp.uint32(2654435761)
last = np.uint32((WORDS - 1) * 2654435761 % 2**32)
for move in (lambda x: exchange(x, [(0, 1)]), separate):
    different, ends = body(move)(step)
    assert different.tolist() == [0, 0], different
    assert ends.tolist() == [0, last], (ends, last)
check_nothing_left()
