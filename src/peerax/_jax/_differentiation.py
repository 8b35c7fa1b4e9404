"""What keeps an operation differentiated or batched that depends on nothing that is.

That is what the traced function was called with; and loops, branches and calls that have such an operation inside are
entered although they have no operand that is differentiated or batched.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax._src import core, source_info_util
from jax._src import shard_map as _shard_map
from jax._src.interpreters import ad, batching, partial_eval
from jax.extend.core import Primitive

from peerax._jax._rules import rule_here


class _Body(NamedTuple):
    """What the body of a shard_map is called with, and the tags of the vmaps around it."""

    operands: tuple
    batches: tuple  # compared by identity: to JAX all tags are equal


_bodies = threading.local()


def _innermost_body() -> _Body:
    return getattr(_bodies, "stack", [_Body((), ())])[-1]


_FEW = 2
# By trace, values that are made once in it, as functions that return them or None. Nothing here keeps a trace alive.
_made: weakref.WeakKeyDictionary[Any, dict[Any, Callable[[Any], Any]]] = weakref.WeakKeyDictionary()


def once_here(name: Any, make: Callable[[], Any]) -> Any:
    """Return what make returns, and the same value again in all of the function that is being traced just now."""
    value = _made_here(name)
    if value is not None:
        return value
    value, trace = make(), core.trace_ctx.trace
    again = _again(trace, value)
    if again is not None:
        _made_in(trace)[name] = again
    return value


def _made_here(name: Any) -> Any:
    trace = core.trace_ctx.trace
    made = _made_in(trace).get(name)
    return None if made is None else made(trace)


def _made_in(trace: Any) -> dict[Any, Callable[[Any], Any]]:
    """What is made once in a function, or once in a rule that is run in it: that depends on less."""
    rule = rule_here()
    return _made.setdefault(trace, {}) if rule is None else rule.made


def _again(trace: Any, x: Any) -> Callable[[Any], Any] | None:
    """Return a function that makes a value of a trace again as long as that is in use, or None if there is none."""
    if getattr(x, "_trace", None) is not trace:
        return None
    if isinstance(x, ad.LinearizeTracer):
        primal_again, tangent_again = _again(trace.parent_trace, x.primal), _again(trace.tangent_trace, x.tangent)
        if primal_again is None or tangent_again is None:
            return None

        def linearized_again(trace):
            primal, tangent = primal_again(trace.parent_trace), tangent_again(trace.tangent_trace)
            return None if primal is None or tangent is None else ad.LinearizeTracer(trace, primal, tangent)

        return linearized_again
    if not isinstance(x, partial_eval.DynamicJaxprTracer) or x.parent is None:
        return None
    equation, variable, aval = weakref.ref(x.parent), x.val, x.aval

    def traced_again(trace):
        parent = equation()
        if parent is None:
            return None
        return partial_eval.DynamicJaxprTracer(trace, aval, variable, source_info_util.current(), parent)

    return traced_again


def operands_here(link: "AlwaysDifferentiated") -> list[Any]:
    """What stands for all that the function which is being traced just now was called with.

    That is a loop's or branch's or jitted function's own operands: values of an outer jaxpr must not get into a
    function behind its back, since JAX may use the traced function again elsewhere. Where there are many, a result of
    link that depends on all of them stands for them, once in each function: a backward pass takes all that the forward
    pass has kept.
    """
    anchor = _made_here("anchor")
    if anchor is not None:
        return [anchor]
    operands = _all_operands_here()
    if len(operands) <= _FEW or not isinstance(core.trace_ctx.trace, partial_eval.DynamicJaxprTrace):
        return operands
    complete = rule_here() is not None
    return [once_here("anchor", lambda: link.bind(lax.full((1,), 0, np.float32), *operands, complete=complete))]


def operands_of_body() -> list[Any]:
    """What the body of a shard_map was called with, if that is transformed here and now, and not as a jaxpr."""
    # The trace of a nested scope is another one with the same tag.
    *levels, _ = _levels(core.trace_ctx.trace)
    tags = [getattr(level, "tag", level) for level in levels]
    return [
        x
        for x in _innermost_body().operands
        if isinstance(x, core.Tracer) and any(getattr(x._trace, "tag", x._trace) is tag for tag in tags)
    ]


def _all_operands_here() -> list[Any]:
    """What the function is called with, and transformations on top of it. Of a rule, the values that it is for."""
    rule = rule_here()
    if rule is not None:
        return rule.primals
    body = _innermost_body()
    *levels, trace = _levels(core.trace_ctx.trace)
    operands = operands_of_body()
    for level in levels:
        if isinstance(level, (ad.JVPTrace, ad.LinearizeTrace)):
            break  # jacfwd batches, and linear_transpose transposes, tangents only; values must not be then
        operands += getattr(level, _ARGUMENTS, ())
        if isinstance(level, batching.BatchTrace) and not any(level.tag is tag for tag in body.batches):
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
    trace = core.trace_ctx.trace
    while isinstance(x, ad.LinearizeTracer) and x._trace is trace:
        x, trace = x.primal, trace.parent_trace
    if isinstance(x, partial_eval.DynamicJaxprTracer) and x._trace is trace and x.parent is not None:
        return x.parent.primitive.name
    return ""


class AlwaysDifferentiated(Primitive):
    """A primitive of one result whose tangent is never symbolically zero under differentiation.

    JAX calls no rule of a primitive, and of nothing that depends on it, while all its tangents are symbolic zeros.
    """

    def bind_with_trace(self, trace, args, avals, params, /):
        if isinstance(trace, ad.JVPTrace):
            trace.peerax_has_begun = True
            primals, tangents = zip(*map(trace.to_primal_tangent_pair, args), strict=True)
            with core.set_current_trace(trace.parent_trace):
                result = self.bind(*primals, **params)
                # Also of the tangents that the function under this trace was called with, whether used here or not.
                # And of the value: what is sent may be batched because that is, in a derivative of a derivative.
                moving = [*(t for t in tangents[1:] if type(t) is not ad.Zero), *operands_here(self), result]
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


_ARGUMENTS = "peerax_arguments"  # of a trace: what it began with
_linear = threading.local()


def is_to_be_transposed() -> bool:
    """Whether what is traced just now is a function that linear_transpose is to transpose."""
    return getattr(_linear, "on", False)


def _within(traced: Callable, is_linear: bool) -> Callable:
    """Note that what is traced inside is, or is not, a function that linear_transpose is to transpose."""

    @functools.wraps(traced)
    def trace_within(*args, **kwargs):
        before = is_to_be_transposed()
        _linear.on = is_linear
        try:
            return traced(*args, **kwargs)
        finally:
            _linear.on = before

    return trace_within


def _keep_arguments(new_arg: Callable) -> Callable:
    """Let linear_transpose, which traces in a way of its own, remember what the function is linear in."""

    @functools.wraps(new_arg)
    def new_arg_kept(self, value):
        argument = new_arg(self, value)
        if is_to_be_transposed() and not argument.is_known():
            setattr(self, _ARGUMENTS, [*getattr(self, _ARGUMENTS, ()), argument])
        return argument

    return new_arg_kept


partial_eval.trace_to_jaxpr_nounits = _within(partial_eval.trace_to_jaxpr_nounits, True)
# The rule of a custom_jvp is traced in that way too, but is no function of tangents only.
ad.linearize_from_jvp = _within(ad.linearize_from_jvp, False)
partial_eval.JaxprTrace.new_arg = _keep_arguments(partial_eval.JaxprTrace.new_arg)

_PRIMALS = "peerax_primals"


def primals_of(trace: ad.JVPTrace | ad.LinearizeTrace, link: AlwaysDifferentiated) -> list[Any]:
    """The values that a differentiated function began with, without their tangents."""
    if isinstance(trace, ad.LinearizeTrace):  # a function of values only is traced below it
        with core.set_current_trace(trace.parent_trace):
            return operands_here(link)
    return getattr(trace, _PRIMALS, [])


def _keep_primals(make_tracer: Callable) -> Callable:
    @functools.wraps(make_tracer)
    def make_and_keep(trace, primal, tangent):
        if not getattr(trace, "peerax_has_begun", False) and isinstance(primal, core.Tracer):
            setattr(trace, _PRIMALS, [*getattr(trace, _PRIMALS, ()), primal])
        return make_tracer(trace, primal, tangent)

    return make_and_keep


def _begin(process_primitive: Callable) -> Callable:
    @functools.wraps(process_primitive)
    def process(self, *args, **kwargs):
        self.peerax_has_begun = True
        return process_primitive(self, *args, **kwargs)

    return process


ad.maybe_jvp_tracer = _keep_primals(ad.maybe_jvp_tracer)
ad.JVPTrace.process_primitive = _begin(ad.JVPTrace.process_primitive)


def _bind_with_operands(bind):
    @functools.wraps(bind)
    def bind_with_trace(self, trace, args, avals, params, /):
        (body,) = params["subfuns"]
        batches = tuple(level.tag for level in _levels(trace) if isinstance(level, batching.BatchTrace))

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


def linearize_by(primitive: Primitive, rule: Callable) -> None:
    """Let a primitive be linearized by rule(nonzero, *primals, **params), which keeps nothing of the primals.

    The rule returns the results, which of them have a tangent, and the function of the tangents. JAX would find that
    out by tracing the rule for jvp, and take longer for it than for all the rest.
    """

    def linearize(is_vjp, nonzero, *primals, **params):
        results, nonzero_out, tangents_of = rule(nonzero, *primals, **params)
        if _HAS_STRUCTURED_RESIDUALS:
            return results, nonzero_out, (), None, lambda residuals, structured, *tangents: tangents_of(*tangents)
        return results, nonzero_out, (), lambda residuals, *tangents: tangents_of(*tangents)

    ad.primitive_linearizations[primitive] = linearize


_HAS_STRUCTURED_RESIDUALS = "structured_residuals" in ad.LinearizeTrace.__annotations__  # since JAX 0.12


_SUM_OF_COTANGENTS = "peerax_sum_of_cotangents"


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
