"""Where peerax meets shard_map: its lowering, and its eager evaluation."""

import functools
from typing import Any

from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._body import shard_map_again
from peerax.ops._communication import any_in_params, has_peerax, has_separate
from peerax.ops._leaves import is_plain
from peerax.ops._on_accelerators import OnGpu, OnTpu, order_handle
from peerax.ops._on_cpu import OnCpu
from peerax.ops._per_device import automatic_axes, bind_around_others, bind_per_device
from peerax.ops._precv import precv_p
from peerax.ops._program import has_communicating_shard_map, tie_shard_maps
from peerax.ops._psend import psend_p
from peerax.ops._ranks import Ranks
from peerax.ops._token import link_p
from peerax.ops._transport import HANDLE_DTYPE, HANDLE_SHAPE, begin_p, end_p
from peerax.runtime import ExclusiveRun, load


def _lower_on_cpu(original, ctx, *operands, **params):
    if not has_peerax(params["jaxpr"]):
        return original(ctx, *operands, **params)
    mesh = params["mesh"]
    if _jax.spans_processes(mesh):
        raise PeeraxError.of("PX402", "the mesh has devices of several processes, and the transport is within one")
    load()
    jaxpr, consts = _jax.open_jaxpr(params["jaxpr"])
    ranks = _ranks(mesh)
    devices = _jax.local_device_count()

    def body(before, *xs):
        # What is sharded automatically would be gathered if it passed through begin and end.
        passes = not automatic_axes()
        waits_for = filter(is_plain, xs) if passes else ()
        (handle,) = bind_per_device(begin_p, before, *waits_for, size=ranks.size, devices=devices)
        handle, results = OnCpu(ranks, "cpu").run_body(jaxpr, consts, handle, xs)
        if passes:
            return bind_around_others(end_p, handle, results)
        return [*bind_per_device(end_p, handle), *results]

    # A handle from before and one after: what ties the shard_maps of one program, see _program.
    handle_aval = _jax.ShapedArray(HANDLE_SHAPE, HANDLE_DTYPE)
    before = _jax.zeros_in_place(ctx, handle_aval)
    ctx = ctx.replace(avals_in=[handle_aval, *ctx.avals_in], avals_out=[handle_aval, *ctx.avals_out])
    everywhere = (PartitionSpec(),)
    _, *results = _jax.inside_lowering(shard_map_again(body, params, everywhere, everywhere), ctx, [before, *operands])
    return results


def _lower_on_accelerator(make_body, platform, original, ctx, *operands, **params):
    if not has_peerax(params["jaxpr"]):
        return original(ctx, *operands, **params)
    jaxpr, consts = _jax.open_jaxpr(params["jaxpr"])
    walk = make_body(_ranks(params["mesh"]), platform)

    def body(*xs):
        handle = order_handle() if has_separate(jaxpr) else ()
        return walk.run_body(jaxpr, consts, handle, xs)[1]

    return _jax.inside_lowering(shard_map_again(body, params), ctx, operands)


def _ranks(mesh) -> Ranks:
    return Ranks(mesh.axis_names, tuple(mesh.shape.values()))


def _needs_whole_program(primitive: _jax.Primitive, params: dict[str, Any]) -> bool:
    """An operation whose other end comes later cannot be run by itself; and its token comes first."""
    return primitive in (psend_p, precv_p, link_p) or any_in_params(params, has_peerax)


_jax.override_shard_map_lowering(_lower_on_cpu, platform="cpu")
for _platform, _make_body in (("cuda", OnGpu), ("rocm", OnGpu), ("tpu", OnTpu)):
    _jax.override_shard_map_lowering(
        functools.partial(_lower_on_accelerator, _make_body, _platform), platform=_platform
    )
_jax.lower_jit_in_place_if(has_communicating_shard_map, platform="cpu")
_jax.when_module_is_lowered(tie_shard_maps)
_jax.compile_eager_shard_map_if(_needs_whole_program)
_jax.execute_exclusively(_jax.communication, ExclusiveRun.enter)
