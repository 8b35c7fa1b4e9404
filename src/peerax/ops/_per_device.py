"""Transport operations where some mesh axes are still automatic: they run in a shard_map over these axes."""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from peerax import _jax


def bind_per_device(primitive: _jax.Primitive, *operands: Any, **params: Any) -> list[Any]:
    """Apply a transport operation on every device by itself.

    Under manual axes only, that is a plain bind. Otherwise its operands are replicated along the automatic axes, and
    all devices along them do the same.
    """
    mesh = jax.sharding.get_abstract_mesh()
    automatic = frozenset(mesh.axis_names) - frozenset(mesh.manual_axes)
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
