"""order: a dependency between values that the compiler keeps."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching

from peerax import _jax
from peerax.ops._leaves import from_carrier, is_differentiable, key_impl, to_carrier
from peerax.ops._token import is_token
from peerax.ops._transport import order_plain_p
from peerax.ops._vmapped_axis import keep_sent

order_p = _jax.Primitive("peerax_order")
order_p.multiple_results = True


def order(token_or_arrays: Any, *more: Any) -> Any:
    """Return the operands unchanged, each of them only available when all of them are.

    It waits for nothing but its operands, on every rank by itself. Unlike jax.lax.optimization_barrier, which XLA
    removes on CPU before it schedules, it orders what is computed there too. (Outside shard_map, in a program for
    several devices, it is an optimization_barrier.)

    Args:
      token_or_arrays: a pytree of arrays and tokens.
      *more: further pytrees.

    Returns:
      The same pytree; with further operands a tuple of all of them.

    Raises:
      TypeError: a leaf is no array and cannot become one.

    Transformations: jit yes · vmap yes (any axes) · grad yes (passes through) · scan yes

    Example:
      >>> token, y = peerax.order(token, x @ w)
    """
    operands = (token_or_arrays, *more)
    leaves, tree = jax.tree.flatten(operands)
    results = jax.tree.unflatten(tree, order_p.bind(*map(jnp.asarray, leaves)) if leaves else [])
    return results if more else results[0]


def _order_abstract_eval(*avals):
    return list(avals)


def _order_jvp(primals, tangents):
    """Tangents depend on all tangents, so a token that is ordered after a differentiated value is differentiated."""
    results = order_p.bind(*primals)
    moving = [i for i, x in enumerate(primals) if is_differentiable(x.dtype)]
    moved = order_p.bind(*(ad.instantiate_zeros(tangents[i]) for i in moving))
    tangents = list(tangents)
    for i, tangent in zip(moving, moved, strict=True):
        tangents[i] = tangent
    return results, tangents


def _order_transpose(cotangents, *operands):
    return order_p.bind(*map(ad.instantiate_zeros, cotangents))


def _order_batching(axis_data, operands, dims):
    """A token that is ordered after a batched value is batched: so the messages behind it are, on both ends."""
    before = operands
    operands, dims = list(operands), list(dims)
    if any(dim is not None for dim in dims):
        operands, dims = _batch_tokens(axis_data.size, operands, dims)
    results = order_p.bind(*operands)
    for old, new in zip(before, results, strict=True):
        keep_sent(old, new)
    return results, dims


def _batch_tokens(size, operands, dims):
    for i, (x, dim) in enumerate(zip(operands, dims, strict=True)):
        if dim is None and is_token(x):
            operands[i], dims[i] = batching.bdim_at_front(x, None, size), 0
    return operands, dims


def _order_lowering_cpu(ctx, *operands):
    if not _jax.all_manual(ctx):
        # XLA would gather what is sharded automatically. There is no communication of ours to be ordered out there.
        return _order_lowering(ctx, *operands)

    def on_plain(*arrays):
        plain = [_to_plain(x) for x in arrays]
        return [_from_plain(y, x) for y, x in zip(order_plain_p.bind(*plain), arrays, strict=True)]

    return _jax.inside_lowering(on_plain, ctx, operands)


def _to_plain(x):
    """The array that the transport can hold: key data for keys, a byte for narrower integers."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x)
    return to_carrier(x)


def _from_plain(y, x):
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(y, impl=key_impl(x.dtype))
    return from_carrier(y, x.dtype)


_barrier_of_jax = _jax.lax_name("optimization_barrier")  # install() puts one in its place that calls order


def _order_lowering(ctx, *operands):
    return _jax.inside_lowering(lambda *xs: _barrier_of_jax(xs), ctx, operands)


order_p.def_abstract_eval(_order_abstract_eval)
_order_eager = jax.jit(lambda *xs: order_p.bind(*xs))
order_p.def_impl(lambda *xs: _order_eager(*xs))
ad.primitive_jvps[order_p] = _order_jvp
ad.primitive_transposes[order_p] = _order_transpose
batching.fancy_primitive_batchers[order_p] = _order_batching
_jax.mlir.register_lowering(order_p, _order_lowering_cpu, platform="cpu")
_jax.mlir.register_lowering(order_p, _order_lowering)
