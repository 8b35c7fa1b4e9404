"""Arrays as they travel: every leaf of a pytree becomes an array of a plain dtype plus the name of its type.

The type's name is what both ends compare. PRNG keys travel as their data, but under their own name.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peerax.diagnostics import PeeraxError
from peerax.ops._site import location


def type_name(shape, dtype) -> str:
    """Return for example "float32[8,3]"."""
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def to_leaf(x: Any, site: str) -> tuple[jax.Array, str]:
    """Return the plain array and the type's name of one leaf of what is sent.

    Raises:
      PeeraxError: PX106.
    """
    try:
        x = jnp.asarray(x)
        dtype = x.dtype
    except (TypeError, ValueError):
        raise _cannot_send(type(x).__name__, site) from None
    name = type_name(x.shape, dtype)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x), name
    if not _is_known(dtype):
        raise _cannot_send(dtype.name, site)
    return x, name


def plain_shape(shape: Any, site: str) -> tuple[tuple[int, ...], Any, str]:
    """Return shape and dtype of the plain array, and the type's name, of one leaf of out_shape.

    Raises:
      PeeraxError: PX106.
    """
    if not hasattr(shape, "shape") or not hasattr(shape, "dtype"):
        raise PeeraxError.of(
            "PX106",
            f"out_shape has a leaf of type {type(shape).__name__}, which has no shape and dtype",
            locations=(location(site),),
            help="give arrays or jax.ShapeDtypeStruct, for example out_shape=jax.typeof(x)",
        )
    try:
        dims = tuple(operator.index(n) for n in shape.shape)
    except TypeError:
        dims = (-1,)
    if any(n < 0 for n in dims):
        raise PeeraxError.of(
            "PX106",
            f"out_shape has a leaf of shape {shape.shape}, which is not a tuple of lengths",
            locations=(location(site),),
            help="give arrays or jax.ShapeDtypeStruct, for example out_shape=jax.typeof(x)",
        )
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(dims, shape.dtype))
        return data.shape, data.dtype, type_name(dims, shape.dtype)
    dtype = jax.dtypes.canonicalize_dtype(shape.dtype)
    if not _is_known(dtype):
        raise _cannot_send(str(dtype), site)
    return dims, dtype, type_name(dims, dtype)


def from_leaf(x: jax.Array, shape: Any) -> jax.Array:
    """Undo to_leaf for a leaf of that shape and dtype."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(x, impl=key_impl(shape.dtype))
    return x


def batched_type(name: str, size: int) -> str:
    """The type's name with a leading axis of that size."""
    dtype, _, dims = name.partition("[")
    return f"{dtype}[{size}{'' if dims == ']' else ','}{dims}"


@functools.cache
def is_differentiable(dtype) -> bool:
    """Whether leaves of that dtype have tangents that travel."""
    return jnp.issubdtype(dtype, jnp.inexact)


def key_impl(dtype):
    """The implementation of PRNG keys of that dtype, as jax.random.wrap_key_data takes it."""
    return jax.random.key_impl(jnp.zeros((), dtype))


@functools.cache
def carrier_dtype(dtype) -> np.dtype | None:
    """The dtype in which an array crosses to the transport if not its own, which holds all its values.

    Integers narrower than a byte have no fixed form in memory. float8_e8m0fnu has no zero: JAX's zeros are its NaN, and
    so are those of float32 when they come back.
    """
    if dtype.name == "float8_e8m0fnu":
        return np.dtype(np.float32)
    if dtype.name.startswith(("int", "uint")) and np.iinfo(np.int8).bits > jnp.iinfo(dtype).bits:
        return np.dtype(np.int8 if dtype.name.startswith("int") else np.uint8)
    return None


def to_carrier(x):
    """The array in which x, which is no key array, crosses to the transport."""
    dtype = carrier_dtype(x.dtype)
    return x if dtype is None else x.astype(dtype)


def from_carrier(y, dtype):
    """Undo to_carrier for an array of that dtype."""
    return y if y.dtype == dtype else y.astype(dtype)


@functools.cache
def _is_known(dtype) -> bool:
    """Whether arrays of that dtype can be computed with; XLA:CPU has no code for floats of six bits."""
    number = jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)
    return number and not dtype.name.startswith("float6_")


def is_plain(x) -> bool:
    """Whether an array can cross to the transport as it is, and is not a key array or narrower than a byte."""
    return _is_plain(x.dtype)


@functools.cache
def _is_plain(dtype) -> bool:
    return not jnp.issubdtype(dtype, jax.dtypes.extended) and carrier_dtype(dtype) is None


def _cannot_send(what: str, site: str) -> PeeraxError:
    return PeeraxError.of("PX106", f"a leaf of type {what} cannot be sent", locations=(location(site),))
