"""Puts peerax's functions in jax.lax, so that programs written for jax.lax.psend and precv run unchanged."""

from typing import Any

import jax
from jax import lax

from peerax import _jax, ops


def install() -> None:
    """Put psend, precv, create_token and optimization_barrier of peerax in jax.lax.

    Idempotent, and independent of whether JAX still has the names. optimization_barrier becomes order where a
    token is among its operands, and is JAX's own otherwise. Call it before the program imports these names
    from jax.lax.
    """
    barrier = _jax.lax_name("optimization_barrier")
    if getattr(barrier, "peerax", False):
        return

    def optimization_barrier(operand: Any, /) -> Any:
        if barrier is None or any(map(ops.is_token, jax.tree.leaves(operand))):
            return ops.order(operand)
        return barrier(operand)

    optimization_barrier.peerax = True
    optimization_barrier.__doc__ = getattr(barrier, "__doc__", None)
    lax.psend, lax.precv, lax.create_token = ops.psend, ops.precv, ops.create_token
    lax.optimization_barrier = optimization_barrier
