"""Programs with jax.lax.psend and precv, which fail on a CPU; fixed, they run. Each ends with a check of its values."""

_HEAD = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P
{imports}

on_ranks = jax.shard_map(mesh=Mesh(np.array(jax.devices()[:4]), ("x",)), in_specs=P("x"), out_specs=P("x"))
right = [(0, 1), (1, 2), (2, 3)]
"""

_SHIFT = """\

@jax.jit
@on_ranks
def shift(x):
    token = {psend}(x, "x", right)
    return {precv}(token, jax.ShapeDtypeStruct(x.shape, x.dtype), axis_name="x", perm=right)


assert shift(jnp.arange(4.0)).tolist() == [0, 0, 1, 2]
"""


def _program(imports, psend, precv, shift=_SHIFT):
    return _HEAD.format(imports=imports) + shift.format(psend=psend, precv=precv)


_PIPELINE = '''\
"""A pipeline with a receive before the loop and a send behind it."""
from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax  # psend and precv
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
PERM = [(0, 1),  (1, 2), (2, 3)]   # formatted by hand


@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
def run(x):
    def tick(carry, t):
        sent = lax.psend( carry, "x", PERM )
        y, _ = lax.optimization_barrier((x + t, sent))
        token, _ = (lax.optimization_barrier)((lax.create_token(), y))
        return lax . precv(token, y, "x", PERM), y

    first = lax.precv(
        lax.create_token(),  # a receive without a send of its own
        x, "x", PERM)
    last, ys = lax.scan(tick, first, jnp.arange(3.0))
    lax.psend(last, "x", PERM)
    return last + ys.sum(0)


print(run(jnp.arange(4.0)))
'''

_LOCAL = """\

@jax.jit
@on_ranks
def shift(x):
    from jax.lax import psend, axis_index as where

    try:
        receive = jax.lax.precv
    except AttributeError:
        raise
    return receive(psend(x, "x", right), x, "x", right) + 0 * where("x")


assert shift(jnp.arange(4.0)).tolist() == [0, 0, 1, 2]
"""

_ORDERED = """\

@jax.jit
@on_ranks
def shift(x):
    token, x = barrier((send(x, "x", right), x))
    return precv(token, x, "x", right) + precv(create_token(), x, "x", []) * axis_index("x")


assert shift(jnp.arange(4.0)).tolist() == [0, 0, 1, 2]
"""

PROGRAMS = {
    "by_module": _program("from jax import lax", "lax.psend", "lax.precv"),
    "by_alias": _program("import jax.lax as jl", "jl.psend", "jl.precv"),
    "by_full_name": _program("", "jax.lax.psend", "jax.lax.precv"),
    "by_name": _program("from jax.lax import psend, precv as receive", "psend", "receive"),
    "by_star": _program("from jax.lax import *", "psend", "precv"),
    "with_a_name_for_peerax": _program("from jax import lax\nimport peerax as px", "lax.psend", "lax.precv"),
    "in_a_function": _program("", "", "", _LOCAL),
    "with_barriers": _program(
        "from jax.lax import (\n    axis_index,\n    optimization_barrier as barrier,\n    precv, create_token,\n"
        "    psend as send,\n)",
        "",
        "",
        _ORDERED,
    ),
    "on_one_line": _program("import sys; from jax.lax import psend, precv, psum; sys.argv", "psend", "precv"),
    "pipeline": _PIPELINE,
}
