"""Where peerax meets shard_map: its lowering for CPU, and its eager evaluation."""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._body import has_peerax, run_body
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p
from peerax.ops._leaves import is_plain
from peerax.ops._per_device import automatic_axes, bind_around_others, bind_per_device
from peerax.ops._ranks import Ranks
from peerax.ops._transport import HANDLE_DTYPE, HANDLE_SHAPE, begin_p, end_p
from peerax.runtime import exclusive_run, load


def _lower_shard_map(original, ctx, *operands, **params):
    jaxpr, consts = _jax.open_jaxpr(params["jaxpr"])
    if not has_peerax(jaxpr):
        return original(ctx, *operands, **params)
    mesh = params["mesh"]
    if _jax.spans_processes(mesh):
        raise PeeraxError.of("PX402", "the mesh has devices of several processes, and the transport is within one")
    load()
    ranks = Ranks(mesh.axis_names, tuple(mesh.shape.values()))
    devices = _jax.local_device_count()

    def body(*xs):
        before, xs = xs[:1], xs[1:]
        waits_for = () if automatic_axes() else filter(is_plain, xs)
        (handle,) = bind_per_device(begin_p, *before, *waits_for, size=ranks.size, devices=devices)
        handle, results = run_body(jaxpr, consts, ranks, handle, xs)
        return bind_around_others(end_p, handle, results)

    def again(*xs):
        return jax.shard_map(
            body,
            mesh=mesh,
            in_specs=(PartitionSpec(), *params["in_specs"]),
            out_specs=[PartitionSpec(), *params["out_specs"]],
            check_vma=params["check_vma"],
            axis_names=_jax.shard_map_axes(params),
        )(*xs)

    # Shard_maps that follow each other in one block are ordered, also if they have no data in common: XLA would mix
    # their operations, and a rank would wait in one for what another rank does later in the other.
    handle_aval = _jax.ShapedArray(HANDLE_SHAPE, HANDLE_DTYPE)
    before = _jax.recall_in_block(ctx, "peerax_end")
    if before is None:
        before = _jax.zeros_in_place(ctx, handle_aval)
    ctx = ctx.replace(avals_in=[handle_aval, *ctx.avals_in], avals_out=[handle_aval, *ctx.avals_out])
    handle, *results = _jax.inside_lowering(again, ctx, [before, *operands])
    _jax.remember_in_block(ctx, "peerax_end", handle)
    return results


def _needs_whole_program(primitive: _jax.Primitive, params: dict[str, Any]) -> bool:
    """An operation whose other end comes later cannot be run by itself."""
    if primitive in (psend_p, precv_p):
        return True
    return any(
        has_peerax(value)
        for param in params.values()
        for value in (param if isinstance(param, (tuple, list)) else (param,))
        if _jax.is_jaxpr(value)
    )


_jax.override_shard_map_lowering(_lower_shard_map, platform="cpu")
_jax.compile_eager_shard_map_if(_needs_whole_program)
_jax.execute_exclusively(exclusive_run)
