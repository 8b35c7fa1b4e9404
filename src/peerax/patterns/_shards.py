"""shift and permute_shards: every rank's shard goes to another rank, along one mesh axis."""

import functools
import operator
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from peerax import _jax, ops
from peerax.diagnostics import PeeraxError
from peerax.ops import location, user_site
from peerax.perm import check_perm


def permute_shards(x: Any, axis_name: Any, perm: Any, *, dim: int | None = None) -> Any:
    """Move the shard of each source in perm to its destination.

    Works inside manual axes, where it is an exchange, and outside: on arrays under jit with automatic or explicit
    sharding, and eagerly on sharded arrays. It then enters the manual region itself, and gathers nothing. A rank that
    is no destination gets zeros.

    Args:
      x: pytree of arrays. Outside manual axes each is split along one dimension into as many shards as the mesh axis
        has ranks.
      axis_name: name of one mesh axis.
      perm: (source, destination) pairs of ranks along axis_name.
      dim: outside manual axes, the dimension that is split; by default the one that the array's sharding splits along
        axis_name, else 0.

    Returns:
      A pytree like x, with the same shapes, dtypes and sharding.

    Raises:
      PeeraxError: PX101 (no mesh here has that axis), PX102, PX103, PX104 (no mesh is known here), PX105, PX106, PX109
        (the dimension cannot be split).

    Transformations: jit yes · vmap yes · grad yes · scan yes

    Example:
      >>> y = peerax.permute_shards(x, "stage", [(0, 1), (1, 0)])
    """
    site = user_site()
    return jax.tree.map(lambda leaf: _permute(jnp.asarray(leaf), axis_name, perm, dim, "permute_shards", site), x)


def shift(x: Any, axis_name: Any, offset: int, *, wrap: bool = False, dim: int | None = None) -> Any:
    """Move every shard by offset ranks: rank i's goes to rank i + offset.

    Args:
      x: pytree of arrays; see permute_shards.
      axis_name: name of one mesh axis.
      offset: number of ranks; negative: towards rank 0.
      wrap: what leaves at one end enters at the other; otherwise zeros enter.
      dim: see permute_shards.

    Returns:
      A pytree like x, with the same shapes, dtypes and sharding.

    Raises:
      PeeraxError: as permute_shards.

    Transformations: jit yes · vmap yes · grad yes · scan yes

    Example:
      >>> from_left = peerax.shift(x, "x", 1)
    """
    site = user_site()
    step = operator.index(offset)

    def perm(size: int) -> list[tuple[int, int]]:
        pairs = [(i, i + step) for i in range(size)]
        return [(s, d % size) for s, d in pairs] if wrap else [(s, d) for s, d in pairs if 0 <= d < size]

    return jax.tree.map(lambda leaf: _permute(jnp.asarray(leaf), axis_name, perm, dim, "shift", site), x)


def _permute(x, axis_name, perm, dim, name, site):
    if isinstance(axis_name, tuple) or not isinstance(axis_name, Hashable):
        raise PeeraxError.of(
            "PX101",
            f"{name} over {axis_name!r}, which is not the name of one axis",
            locations=(location(site),),
            help=f"name one axis of the mesh, for example {name}(x, 'x', ...)",
        )
    if axis_name in _jax.axis_sizes():  # inside manual axes
        size = _jax.axis_sizes()[axis_name]
        pairs = perm(size) if callable(perm) else perm
        return _exchange(x, axis_name, pairs)
    mesh, spec = _find_mesh(x, axis_name, name, site)
    size = mesh.shape[axis_name]
    pairs = check_perm(perm(size) if callable(perm) else perm, size, location(site))
    dim = _split_dimension(x, axis_name, spec, size, dim, name, site)
    if spec is None:
        # The sharding along other axes is for the compiler to choose, so these stay automatic.
        spec = PartitionSpec(*[axis_name if i == dim else None for i in range(x.ndim)])
        return _in_manual_axes(lax.ppermute, axis_name, pairs, mesh, spec, (axis_name,), site)(x)
    return _in_manual_axes(_exchange, axis_name, pairs, mesh, spec, tuple(mesh.axis_names), site)(x)


def _exchange(x, axis_name, pairs):
    return ops.precv(ops.psend(x, axis_name, pairs), x, axis_name, pairs)


@functools.lru_cache(maxsize=256)
def _in_manual_axes(move, axis_name, pairs, mesh, spec, axes, site):
    """Return the jitted move of x, the same for the same arguments, so that JAX compiles it once.

    The program names the line that it was traced for, so each site has one of its own.
    """

    def moved(x):
        return move(x, axis_name, pairs)

    return jax.jit(
        jax.shard_map(moved, mesh=mesh, in_specs=spec, out_specs=spec, axis_names=set(axes), check_vma=False)
    )


def _find_mesh(x, axis_name, name, site):
    """Return the mesh that has the axis, and how x is sharded over it, or None if that is not known here."""
    sharding = getattr(x, "sharding", None) if not isinstance(x, jax.core.Tracer) else jax.typeof(x).sharding
    context = jax.sharding.get_abstract_mesh()
    if isinstance(sharding, NamedSharding) and not sharding.mesh.empty and axis_name in sharding.mesh.axis_names:
        mesh = sharding.mesh
        known = not isinstance(x, jax.core.Tracer) or all(kind == AxisType.Explicit for kind in mesh.axis_types)
        return mesh, (PartitionSpec(*sharding.spec, *[None] * (x.ndim - len(sharding.spec))) if known else None)
    if not context.empty and axis_name in context.axis_names:
        return context, None
    if context.empty:
        raise PeeraxError.of(
            "PX104",
            f"{name} over {axis_name!r} is outside manual axes, and no mesh is known here",
            locations=(location(site),),
            help="give it arrays that are sharded over a mesh with that axis, or call it under jax.set_mesh(mesh)",
        )
    raise PeeraxError.of(
        "PX101",
        f"{name} over {axis_name!r}, but the mesh here has the axes {', '.join(map(repr, context.axis_names))}",
        locations=(location(site),),
    )


def _split_dimension(x, axis_name, spec, size, dim, name, site) -> int:
    sharded = [i for i, axes in enumerate(spec or ()) if axis_name in (axes if isinstance(axes, tuple) else (axes,))]
    if dim is None:
        dim = sharded[0] if sharded else 0
    problem = None
    if not 0 <= dim < x.ndim:
        problem = f"an array of shape {x.shape} has no dimension {dim}"
    elif spec is not None and sharded != [dim]:
        problem = f"the array is sharded as {spec}, which does not split dimension {dim} along {axis_name!r}"
    elif x.shape[dim] % size:
        problem = f"dimension {dim} of shape {x.shape} is not a multiple of the {size} ranks"
    if problem is not None:
        raise PeeraxError.of("PX109", f"{name} over {axis_name!r}: {problem}", locations=(location(site),))
    return dim
