"""Programs for the tests of what is checked; those of the tests follow behind PRELUDE."""

PRELUDE = """\
import functools, itertools, sys
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

RIGHT = [(0, 1), (1, 2), (2, 3)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
on_ranks = functools.partial(
    jax.shard_map, mesh=Mesh(np.array(jax.devices()[:4]), ("x",)), in_specs=P("x"), out_specs=P("x"), check_vma=False
)
x = jnp.arange(4.0)


def shift(x):
    return lax.precv(lax.psend(x, "x", RIGHT), x, "x", RIGHT)


def separate(x):
    lax.psend(x, "x", RIGHT)
    return lax.precv(lax.create_token(), x, "x", RIGHT)


def cycle(x):
    lax.psend(x, "x", RING)
    return lax.precv(lax.create_token(), x, "x", RING)


def receive_first(x):
    y = lax.precv(lax.create_token(), x, "x", RING)
    lax.psend(y, "x", RING)
    return y


def lone_send(x):
    lax.psend(x, "x", RIGHT)
    return x


def shapes_differ(x):
    lax.psend(x, "x", RIGHT)
    return x + lax.precv(lax.create_token(), jax.ShapeDtypeStruct((2,), x.dtype), "x", RIGHT).sum()


def nobody_knows(x, number=lambda: np.int32(0)):
    n = jax.pure_callback(number, jax.ShapeDtypeStruct((), jnp.int32))
    return lax.cond(n == 0, shift, lambda x: x, x)


"""
START = PRELUDE.count("\n") + 1  # the line of what follows
