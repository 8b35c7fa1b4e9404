"""Pytrees of which only the floating leaves have a derivative."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from peerax import _jax


def type_of(leaf: Any) -> Any:
    """Return the type of an array; a type is its own."""
    return leaf if isinstance(leaf, _jax.ShapedArray) else jax.typeof(leaf)


def is_floating(leaf: Any) -> bool:
    """Return whether a leaf, or what has that type, has a derivative."""
    return jnp.issubdtype(type_of(leaf).dtype, jnp.inexact)


def floating(tree: Any) -> list[Any]:
    """Return the leaves that have a derivative."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_floating(leaf)]


def with_floating(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return the tree with other leaves in the place of those that have a derivative."""
    given = iter(leaves)
    return jax.tree.map(lambda leaf: next(given) if is_floating(leaf) else leaf, tree)


def gradient_like(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a tree of cotangents: what has no derivative is zero, in its own type, as in a message."""
    given = iter(leaves)
    return jax.tree.map(lambda leaf: next(given) if is_floating(leaf) else zeros(leaf), tree)


def zeros(leaf: Any, lead: tuple[int, ...] = (), dtype: Any = None, fill: float = 0) -> Any:
    """Return an array like a leaf or type, with more dimensions in front, that varies along the same axes.

    Floating ones may be filled with something else.
    """
    aval = type_of(leaf)
    dtype = dtype or aval.dtype
    shape = (*lead, *aval.shape)
    made = jnp.full(shape, fill, dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.zeros(shape, dtype)
    return _jax.make_varying(made, tuple(_jax.varying(aval)))


def varying_like(tree: Any, other: Any) -> Any:
    """Return a tree whose leaves vary along all axes that those of another one vary along."""
    return jax.tree.map(lambda x, y: _jax.make_varying(x, tuple(_jax.varying(type_of(y)))), tree, other)


def read(ring: Any, index: Any) -> Any:
    """Return what is at a place along the first dimension."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False), ring)


def write(ring: Any, index: Any, value: Any) -> Any:
    """Return a ring with something else at a place along the first dimension."""

    def put(leaf, new):
        new = _jax.make_varying(new, tuple(_jax.varying(jax.typeof(leaf))))
        return jax.lax.dynamic_update_index_in_dim(leaf, new.astype(leaf.dtype), index, 0)

    return jax.tree.map(put, ring, value)


def add_to(sums: Any, index: Any, leaves: Any) -> Any:
    """Return sums with something added at a place along the first dimension, in the precision of the sums."""

    def add(old, new):
        if old.shape[0] == 1:  # in place, while XLA would copy what it puts into the whole
            return old + new.astype(old.dtype)[None]
        return write(old, index, read(old, index) + new.astype(old.dtype))

    return jax.tree.map(add, sums, leaves)
