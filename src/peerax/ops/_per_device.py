"""Transport operations where some mesh axes are still automatic: they run in a shard_map over these axes."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.ops._leaves import is_plain


def automatic_axes() -> frozenset:
    """The mesh axes that are not manual here."""
    mesh = jax.sharding.get_abstract_mesh()
    return frozenset(mesh.axis_names) - frozenset(mesh.manual_axes)


def bind_per_device(primitive: _jax.Primitive, *operands: Any, **params: Any) -> list[Any]:
    """Apply a transport operation on every device by itself.

    Under manual axes only, that is a plain bind. Otherwise its operands are replicated along the automatic axes, and
    all devices along them do the same.
    """
    mesh = jax.sharding.get_abstract_mesh()
    automatic = automatic_axes()
    if not automatic:
        return primitive.bind(*operands, **params)
    replicated = PartitionSpec()
    if any(kind == jax.sharding.AxisType.Explicit for kind in mesh.axis_types):
        operands = tuple(jax.reshard(x, PartitionSpec(*[None] * x.ndim)) for x in operands)
    return jax.shard_map(
        lambda *xs: primitive.bind(*xs, **params),
        mesh=mesh,
        in_specs=(replicated,) * len(operands),
        out_specs=replicated,
        axis_names=automatic,
        check_vma=_jax.tracks_varying(),
    )(*operands)


def bind_around_others(primitive: _jax.Primitive, handle: Any, values: Sequence[Any], **params: Any) -> list[Any]:
    """Apply an operation that passes its operands on, to those that it can hold; the others go around it."""
    through = [i for i, x in enumerate(values) if is_plain(x)]
    handle, *passed = bind_per_device(primitive, handle, *(values[i] for i in through), **params)
    values = list(values)
    for i, x in zip(through, passed, strict=True):
        values[i] = x
    return [handle, *values]
