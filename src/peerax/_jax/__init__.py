"""The only package that touches JAX's private modules or depends on its version."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jaxlib
import numpy as np
from jax import lax
from jax._src import ad_util, config, core, effects, pjit, source_info_util, traceback_util
from jax._src import shard_map as _shard_map
from jax._src.core import get_axis_env
from jax._src.interpreters import mlir
from jax._src.lax import parallel as _parallel
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo
from jax.extend.core import Primitive

from peerax._jax._compilation import (
    Compilation,
    before_compiling,
    compile_for_devices,
    computation_of,
    device_count_of,
)
from peerax._jax._differentiation import (
    AlwaysDifferentiated,
    is_sum_of_cotangents,
    linearize_by,
    made_by,
    once_here,
    operands_here,
)
from peerax._jax._eager import compile_eager_shard_map_if, evaluates_eagerly
from peerax._jax._execution import execute_exclusively, noting_what_it_raises
from peerax._jax._jaxprs import (
    as_lowered,
    cached_by_jaxpr,
    equation_context,
    equation_site,
    function_of,
    has_effects,
    in_three,
    is_jaxpr,
    jaxprs_in,
    new_variable,
    open_jaxpr,
    rebind,
    scan_counts,
    stacked,
)
from peerax._jax._modules import argument_number, drop_operands, pass_by, users, when_module_is_lowered
from peerax._jax._rules import Rule, note_rules, rule_here
from peerax._jax._stretches import bind_stretch, fits, stretch_of
from peerax._jax._unentered import enter_if

__all__ = [
    "AlwaysDifferentiated",
    "Compilation",
    "Primitive",
    "Rule",
    "argument_number",
    "as_lowered",
    "before_compiling",
    "bind_stretch",
    "cached_by_jaxpr",
    "compile_eager_shard_map_if",
    "compile_for_devices",
    "computation_of",
    "device_count_of",
    "drop_operands",
    "enter_if",
    "equation_context",
    "equation_site",
    "evaluates_eagerly",
    "execute_exclusively",
    "fits",
    "function_of",
    "has_effects",
    "in_three",
    "is_jaxpr",
    "is_sum_of_cotangents",
    "jaxprs_in",
    "linearize_by",
    "made_by",
    "mlir",
    "new_variable",
    "note_rules",
    "open_jaxpr",
    "once_here",
    "operands_here",
    "pass_by",
    "rebind",
    "rule_here",
    "scan_counts",
    "stacked",
    "stretch_of",
    "users",
    "when_module_is_lowered",
]

# Errors and equations point at the user's line, not at ours.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
source_info_util.register_exclusion(_OURS)
traceback_util.register_exclusion(_OURS)

ShapedArray = core.ShapedArray
Literal = core.Literal
shard_map_p = _shard_map.shard_map_p

PACKAGE_DIRECTORIES = tuple(os.path.dirname(module.__file__) + os.sep for module in (jax, jaxlib))


@contextlib.contextmanager
def by_itself() -> Iterator[None]:
    """Compute here and now, whatever is being traced and whatever mesh is set, on the CPU."""
    no_mesh = jax.sharding.AbstractMesh((), ())
    cpu = jax.local_devices(backend="cpu")[0]
    with core.eval_context(), jax.sharding.use_abstract_mesh(no_mesh), jax.default_device(cpu):
        yield


class Communication(effects.Effect):
    """Marks psend and precv, so that JAX removes none of them, even if its result is not used."""

    def __eq__(self, other):
        return isinstance(other, Communication)

    def __hash__(self):
        return hash(Communication)

    def __repr__(self):
        return "Communication"


for _kinds in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
    effects.partial_eval_kept_effects,
):
    _kinds.add_type(Communication)
communication = Communication()


# Axes and types.


def axis_sizes() -> dict[Any, int]:
    """Sizes of the axis names in scope: manual mesh axes and vmapped axes."""
    return dict(get_axis_env().axis_sizes)


def varying(aval) -> frozenset:
    """Manual axes along which a value of this type differs; empty while check_vma is off."""
    return aval.manual_axis_type.varying


def manual_axes() -> tuple:
    """The mesh axes that are manual here."""
    mesh = jax.sharding.get_abstract_mesh()
    return () if mesh.empty else tuple(mesh.manual_axes)


def manual(axes) -> frozenset:
    """Those of the axes that are manual here, and not axes of vmap."""
    return frozenset(manual_axes()) & frozenset(axes)


def tracks_varying() -> bool:
    """Return whether types say along which axes values differ (shard_map's check_vma)."""
    return config._check_vma.value


def make_varying(x, axes: tuple):
    """Mark x as different along axes, where types track that."""
    if not tracks_varying() or varying(jax.typeof(x)).issuperset(axes):
        return x
    return _parallel.insert_collective_pvary(axes, x)


def explicit_spec(x: Any, ndim: int) -> tuple | None:
    """How the type of an array, or a type, is sharded along the explicit axes here; None if it is not.

    Dimensions that it does not have, up to ndim, are not sharded.
    """
    mesh = jax.sharding.get_abstract_mesh()
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == _EXPLICIT}
    if not explicit:
        return None
    sharding = getattr(core.typeof(x) if isinstance(x, jax.Array) else x, "sharding", None)
    entries = []
    for entry in getattr(sharding, "spec", None) or ():
        names = tuple(name for name in (entry if isinstance(entry, tuple) else (entry,)) if name in explicit)
        entries.append(names if len(names) > 1 else names[0] if names else None)
    return (*entries, *[None] * (ndim - len(entries))) if any(entries) else None


_EXPLICIT = jax.sharding.AxisType.Explicit


def local_aval(shape, dtype, axes: frozenset, spec: Sequence[Any] | None = None):
    """Type of a per-rank array inside manual axes that varies along axes and is sharded otherwise as spec says."""
    mesh = jax.sharding.get_abstract_mesh()
    aval = core.ShapedArray(shape, dtype)
    if mesh.empty:
        return aval
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*(spec or [None] * len(shape))))
    axes = axes if tracks_varying() else frozenset()
    return aval.update(sharding=sharding, manual_axis_type=core.ManualAxisType(varying=axes))


def in_explicit_sharding(x, aval):
    """Return x, sharded along explicit axes as aval is."""
    wanted = aval.sharding.spec
    return x if tuple(core.typeof(x).sharding.spec) == tuple(wanted) else jax.reshard(x, wanted)


def zero_tangent(x):
    """The symbolic zero tangent of a value."""
    return ad_util.p2tz(x)


@functools.cache
def user_frame(file: str) -> bool:
    return source_info_util.is_user_filename(file)


# Lowering.


def partition_id():
    """The rank's number among all devices of the program, as a uint32 scalar."""
    return hlo.partition_id()


def emit_send(handle, x, pairs) -> Any:
    """Emit a StableHLO send of x that comes after handle; return the handle after it."""
    handle, x, token = hlo.optimization_barrier([handle, x, hlo.create_token()])
    send = hlo.SendOp([x], token, source_target_pairs=_pair_attribute(pairs), channel_handle=_channel())
    return hlo.optimization_barrier([handle, send.results[0]])[0]


def emit_receive(ctx, handle, aval, pairs) -> tuple[Any, Any]:
    """Emit a StableHLO recv that comes after handle; return the handle after it and what was received."""
    handle, token = hlo.optimization_barrier([handle, hlo.create_token()])
    types = [mlir.aval_to_ir_type(ctx.module_context, aval), hlo.TokenType.get()]
    recv = hlo.RecvOp(types, token, source_target_pairs=_pair_attribute(pairs), channel_handle=_channel())
    return tuple(hlo.optimization_barrier([handle, recv.results[0]]))


def separate_operations(module) -> list[Any]:
    """The sends and recvs of a lowered module."""
    found = []

    def look(operation):
        if operation.name in ("stablehlo.send", "stablehlo.recv"):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def skip_verifier_of_xla(operation) -> None:
    """Mark a send or recv as part of a pipeline, which XLA:GPU's verifier of sends and recvs leaves out."""
    with operation.context:
        pipeline = {"_xla_send_recv_pipeline": ir.StringAttr.get("0")}
        before = operation.attributes[_FRONTEND] if _FRONTEND in operation.attributes else ()
        kept = {entry.name: entry.attr for entry in before}
        operation.attributes[_FRONTEND] = ir.DictAttr.get({**kept, **pipeline})


_FRONTEND = "mhlo.frontend_attributes"


def _pair_attribute(pairs):
    return mlir.dense_int_elements(np.asarray(pairs, np.int64).reshape(-1, 2))


def _channel():
    return hlo.ChannelHandle.get(mlir.COLLECTIVE_CHANNEL_ID, mlir.DEVICE_TO_DEVICE_TYPE)


def local_device_count() -> int:
    """Number of CPU devices of this process; device ordinals of XLA are below it."""
    return max(device.local_hardware_id or 0 for device in jax.local_devices(backend="cpu")) + 1


def spans_processes(mesh) -> bool:
    """Whether a mesh has devices of other processes; an abstract mesh may have any of the program's."""
    if jax.process_count() == 1:
        return False
    devices = getattr(mesh, "devices", None)
    return devices is None or any(d.process_index != jax.process_index() for d in devices.flat)


def all_manual(ctx) -> bool:
    """Whether each device runs the lowered code by itself: under manual axes only, or alone."""
    context = ctx.module_context.axis_context
    if hasattr(context, "manual_axes"):
        return set(context.manual_axes) >= set(context.mesh.axis_names)
    return context.num_devices == 1


def override_shard_map_lowering(rule: Callable, platform: str) -> None:
    """Lower shard_map by rule(original, ctx, *operands, **params) on one platform."""
    original = _shard_map._shard_map_lowering
    mlir.register_lowering(shard_map_p, functools.partial(rule, original), platform=platform)


def inside_lowering(fun: Callable, ctx, operands: Sequence[Any]) -> Sequence[Any]:
    """Lower a function of the operands in place."""
    return mlir.lower_fun(fun, multiple_results=True)(ctx, *operands)


def zeros_in_place(ctx, aval) -> Any:
    """A constant of that type, in the block that is being lowered."""
    return mlir.full_like_aval(ctx, 0, aval)


def _note_what_callbacks_raise(lowered: Any, jaxpr: Any, _: Sequence[str]) -> None:
    if communication in open_jaxpr(jaxpr)[0].effects:
        lowered.host_callbacks[:] = map(noting_what_it_raises, lowered.host_callbacks)


when_module_is_lowered(_note_what_callbacks_raise)


def communicates_here(jaxpr) -> bool:
    """Whether operations of peerax are in a jaxpr that is under manual axes, as this place is."""
    return bool(manual_axes()) and communication in open_jaxpr(jaxpr)[0].effects


def lower_jit_in_place_if(condition: Callable[[Any], bool], platform: str) -> None:
    """Lower a jitted function inside another in the caller's block, and not as a function, if its jaxpr says so."""
    original = pjit._pjit_lowering

    def rule(ctx, *operands, jaxpr, **params):
        if not condition(jaxpr):
            return original(ctx, *operands, jaxpr=jaxpr, **params)
        return inside_lowering(core.jaxpr_as_fun(jaxpr), ctx, operands)

    mlir.register_lowering(pjit.jit_p, rule, platform=platform)


def shard_map_axes(params: dict[str, Any]) -> frozenset:
    """The axes that a shard_map equation makes manual."""
    return frozenset(params["manual_axes" if "manual_axes" in params else "newly_manual_axes"])  # until JAX 0.10.1


# Names that JAX may drop one day: nothing of peerax relies on them.


def lax_name(name: str) -> Callable | None:
    """jax.lax's own function of that name without its deprecation warning, or None."""
    return vars(lax).get(name)
