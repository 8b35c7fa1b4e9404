"""What keeps an operation differentiated or batched that depends on nothing that is.

That is what the traced function was called with; and loops, branches and calls that have such an operation inside are
entered although they have no operand that is differentiated or batched.
"""

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax._src import core, source_info_util
from jax._src import shard_map as _shard_map
from jax._src.interpreters import ad, batching, partial_eval
from jax.extend.core import Primitive


class _Body(NamedTuple):
    """What the body of a shard_map is called with, and the tags of the vmaps around it."""

    operands: tuple
    batches: frozenset


_bodies = threading.local()


def _innermost_body() -> _Body:
    return getattr(_bodies, "stack", [_Body((), frozenset())])[-1]


_FEW = 2
# By trace: the equation of its anchor, its variable and type. Nothing here keeps a trace alive.
_anchors: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def operands_here(link: "AlwaysDifferentiated") -> list[Any]:
    """What stands for all that the function which is being traced just now was called with.

    That is a loop's or branch's or jitted function's own operands: values of an outer jaxpr must not get into a
    function behind its back, since JAX may use the traced function again elsewhere. Where there are many, a result of
    link that depends on all of them stands for them, once in each function: a backward pass takes all that the forward
    pass has kept.
    """
    trace = core.trace_ctx.trace
    equation, variable, aval = _anchors.get(trace, (lambda: None, None, None))
    if equation() is not None:
        return [partial_eval.DynamicJaxprTracer(trace, aval, variable, source_info_util.current(), equation())]
    operands = _all_operands_here()
    if len(operands) <= _FEW or not isinstance(trace, partial_eval.DynamicJaxprTrace):
        return operands
    anchor = link.bind(lax.full((1,), 0, np.float32), *operands, complete=False)
    if anchor.parent is not None:
        _anchors[trace] = (weakref.ref(anchor.parent), anchor.val, anchor.aval)
    return [anchor]


def _all_operands_here() -> list[Any]:
    """What the function is called with, and transformations on top of it."""
    body = _innermost_body()
    *levels, trace = _levels(core.trace_ctx.trace)
    operands = [x for x in body.operands if isinstance(x, core.Tracer) and any(x._trace is level for level in levels)]
    for level in levels:
        if isinstance(level, (ad.JVPTrace, ad.LinearizeTrace)):
            break  # jacfwd batches, and linear_transpose transposes, tangents only; values must not be then
        operands += getattr(level, _ARGUMENTS, ())
        if isinstance(level, batching.BatchTrace) and level.tag not in body.batches:
            # A vmap inside the function: of what it was called with, nothing is known here but that it is batched.
            operands.append(batching.BatchTracer(level, np.zeros(level.axis_data.size, np.float32), 0))
    if trace is not None:
        source = source_info_util.current()
        operands += [
            partial_eval.DynamicJaxprTracer(trace, v.aval, v, source)
            for v in trace.frame.invars
            if isinstance(v.aval, core.ShapedArray)
        ]
    return operands


def _levels(trace: Any) -> Iterator[Any]:
    """Transformations, from the innermost outwards, up to where a function is traced to a jaxpr or evaluated."""
    while trace is not None and not isinstance(trace, partial_eval.DynamicJaxprTrace):
        yield trace
        trace = getattr(trace, "parent_trace", None)
    yield trace


def made_by(x: Any) -> str:
    """The name of the primitive whose result a value is, if it was traced in the innermost jaxpr, or ""."""
    if isinstance(x, partial_eval.DynamicJaxprTracer) and x._trace is core.trace_ctx.trace and x.parent is not None:
        return x.parent.primitive.name
    return ""


class AlwaysDifferentiated(Primitive):
    """A primitive of one result whose tangent is never symbolically zero under differentiation.

    JAX calls no rule of a primitive, and of nothing that depends on it, while all its tangents are symbolic zeros.
    """

    def bind_with_trace(self, trace, args, avals, params, /):
        if isinstance(trace, ad.JVPTrace):
            primals, tangents = zip(*map(trace.to_primal_tangent_pair, args), strict=True)
            with core.set_current_trace(trace.parent_trace):
                result = self.bind(*primals, **params)
                # Also of the tangents that the function under this trace was called with, whether used here or not.
                moving = [*(t for t in tangents[1:] if type(t) is not ad.Zero), *operands_here(self)]
                tangent = self.bind(ad.instantiate_zeros(tangents[0]), *moving, **params)
            return ad.JVPTracer(trace, result, tangent)
        if isinstance(trace, ad.LinearizeTrace):
            primals, tangents = zip(*map(trace.to_primal_tangent_pair, args), strict=True)
            with core.set_current_trace(trace.parent_trace):
                result = self.bind(*primals, **params)
            with core.set_current_trace(trace.tangent_trace):
                # All inputs of the linear function: what depends on none of them is not transposed.
                tangent = self.bind(ad.instantiate_zeros(tangents[0]), *operands_here(self), **params)
            return ad.LinearizeTracer(trace, result, tangent)
        return super().bind_with_trace(trace, args, avals, params)


_ARGUMENTS = "peerax_arguments"
_linear = threading.local()


def _expect_arguments(trace_to_jaxpr):
    """Let linear_transpose, which traces in a way of its own, remember what the function is linear in."""

    @functools.wraps(trace_to_jaxpr)
    def trace_and_expect(fun, values, *args, **kwargs):
        _linear.expected = len(values)
        try:
            return trace_to_jaxpr(fun, values, *args, **kwargs)
        finally:
            _linear.expected = 0

    return trace_and_expect


def _keep_arguments(new_arg):
    """The arguments are made first; others of that kind are tangents in the rule of a custom_jvp."""

    @functools.wraps(new_arg)
    def new_arg_kept(self, value):
        argument = new_arg(self, value)
        if getattr(_linear, "expected", 0):
            _linear.expected -= 1
            if not argument.is_known():
                setattr(self, _ARGUMENTS, [*getattr(self, _ARGUMENTS, ()), argument])
        return argument

    return new_arg_kept


partial_eval.trace_to_jaxpr_nounits = _expect_arguments(partial_eval.trace_to_jaxpr_nounits)
partial_eval.JaxprTrace.new_arg = _keep_arguments(partial_eval.JaxprTrace.new_arg)


def _bind_with_operands(bind):
    @functools.wraps(bind)
    def bind_with_trace(self, trace, args, avals, params, /):
        (body,) = params["subfuns"]
        batches = frozenset(level.tag for level in _levels(trace) if isinstance(level, batching.BatchTrace))

        @functools.wraps(body)
        def body_with_operands(*operands):
            if not hasattr(_bodies, "stack"):
                _bodies.stack = [_innermost_body()]
            _bodies.stack.append(_Body(operands, batches))
            try:
                return body(*operands)
            finally:
                _bodies.stack.pop()

        return bind(self, trace, args, avals, {**params, "subfuns": (body_with_operands,)})

    return bind_with_trace


type(_shard_map.shard_map_p).bind_with_trace = _bind_with_operands(type(_shard_map.shard_map_p).bind_with_trace)


_SUM_OF_COTANGENTS = "sum_of_cotangents"


def is_sum_of_cotangents(eqn) -> bool:
    """Whether an equation sums over ranks what transposition gave for a value that all of them share."""
    scopes = (getattr(scope, "name", "") for scope in eqn.source_info.name_stack.stack)
    return eqn.primitive.name == "psum_invariant" and _SUM_OF_COTANGENTS in scopes


def _name_sums(transpose):
    @functools.wraps(transpose)
    def rule(*args, **params):
        with source_info_util.extend_name_stack(_SUM_OF_COTANGENTS):
            return transpose(*args, **params)

    return rule


ad.primitive_transposes[core.pvary_p] = _name_sums(ad.primitive_transposes[core.pvary_p])
