"""What keeps an operation differentiated that depends on nothing that is: what the traced function was called with."""

import functools
import threading
from typing import Any

from jax._src import core, source_info_util
from jax._src import shard_map as _shard_map
from jax._src.interpreters import ad, partial_eval
from jax.extend.core import Primitive

_operands = threading.local()


def operands_here() -> list[Any]:
    """What the function that is being traced to a jaxpr just now was called with, and transformations on top of it.

    That is a loop's or branch's or jitted function's own operands: values of an outer jaxpr must not get into a
    function behind its back, since JAX may use the traced function again elsewhere.
    """
    trace, levels = core.trace_ctx.trace, []
    while trace is not None and not isinstance(trace, partial_eval.DynamicJaxprTrace):
        levels.append(trace)
        trace = getattr(trace, "parent_trace", None)
    operands = [
        x
        for x in getattr(_operands, "stack", [()])[-1]
        if isinstance(x, core.Tracer) and any(x._trace is level for level in levels)
    ]
    if trace is not None:
        source = source_info_util.current()
        operands += [
            partial_eval.DynamicJaxprTracer(trace, v.aval, v, source)
            for v in trace.frame.invars
            if isinstance(v.aval, core.ShapedArray)
        ]
    return operands


def made_by(x: Any) -> Primitive | None:
    """The primitive whose result a value is, if it was traced in the innermost jaxpr."""
    if isinstance(x, partial_eval.DynamicJaxprTracer) and x._trace is core.trace_ctx.trace and x.parent is not None:
        return x.parent.primitive
    return None


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
                moving = [*(t for t in tangents[1:] if type(t) is not ad.Zero), *operands_here()]
                tangent = self.bind(ad.instantiate_zeros(tangents[0]), *moving, **params)
            return ad.JVPTracer(trace, result, tangent)
        if isinstance(trace, ad.LinearizeTrace):
            primals, tangents = zip(*map(trace.to_primal_tangent_pair, args), strict=True)
            with core.set_current_trace(trace.parent_trace):
                result = self.bind(*primals, **params)
            with core.set_current_trace(trace.tangent_trace):
                # All inputs of the linear function: what depends on none of them is not transposed.
                tangent = self.bind(ad.instantiate_zeros(tangents[0]), *operands_here(), **params)
            return ad.LinearizeTracer(trace, result, tangent)
        return super().bind_with_trace(trace, args, avals, params)


def _bind_with_operands(bind):
    @functools.wraps(bind)
    def bind_with_trace(self, trace, args, avals, params, /):
        (body,) = params["subfuns"]

        @functools.wraps(body)
        def body_with_operands(*operands):
            if not hasattr(_operands, "stack"):
                _operands.stack = [()]
            _operands.stack.append(operands)
            try:
                return body(*operands)
            finally:
                _operands.stack.pop()

        return bind(self, trace, args, avals, {**params, "subfuns": (body_with_operands,)})

    return bind_with_trace


type(_shard_map.shard_map_p).bind_with_trace = _bind_with_operands(type(_shard_map.shard_map_p).bind_with_trace)
