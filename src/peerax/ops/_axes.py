"""Which ranks an axis name means, and the clear errors when it means none."""

import math
from collections.abc import Hashable
from typing import Any

import jax

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location

_ENTER_MANUAL = (
    "call it inside jax.shard_map: "
    "jax.shard_map(f, mesh=mesh, in_specs=P({axis!r}), out_specs=P({axis!r}))(x), where f calls {name}"
)


def check_axes(axis_name: Any, name: str, site: str) -> tuple[tuple, int]:
    """Return the axes as a tuple and the number of ranks along them.

    Raises:
      PeeraxError: PX101 (unknown name), PX104 (not inside manual axes), PX212 (a tuple that is
        not in the mesh's order).
    """
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    sizes = _jax.axis_sizes()
    mesh = jax.sharding.get_abstract_mesh()
    manual = _jax.manual_axes()
    for axis in axes:
        if not isinstance(axis, Hashable):
            raise PeeraxError.of("PX101", f"{name} over {axis!r}, which is no axis name", locations=(location(site),))
        if axis in manual:
            continue
        if axis in sizes:  # an axis of vmap
            continue
        if not manual or (not mesh.empty and axis in mesh.axis_names):
            outside = "is not inside manual axes" if not manual else f"is inside manual axes {manual}, not {axis!r}"
            raise PeeraxError.of(
                "PX104",
                f"{name} over {axis!r} {outside}",
                locations=(location(site),),
                help=_ENTER_MANUAL.format(axis=axis, name=name),
            )
        raise PeeraxError.of(
            "PX101",
            f"{name} over {axis!r}, but the axes here are {', '.join(map(repr, manual))}",
            locations=(location(site),),
        )
    if len(set(axes)) != len(axes):
        raise PeeraxError.of("PX101", f"{name} names an axis twice: {axes}", locations=(location(site),))
    order = [mesh.axis_names.index(axis) for axis in axes if axis in manual]
    if order != sorted(order):
        in_order = tuple(mesh.axis_names[i] for i in sorted(order))
        raise PeeraxError.of(
            "PX212",
            f"{name} over {axes}, but the mesh's order is {in_order}",
            locations=(location(site),),
            help=f"write axis_name={in_order!r} and number the ranks in that order, as jax.lax.axis_index does",
        )
    return axes, math.prod(sizes[axis] for axis in axes)
