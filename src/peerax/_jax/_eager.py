"""Eager evaluation of a shard_map with operations of ours: it is compiled as a whole."""

import collections
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax._src import config, core
from jax._src import shard_map as _shard_map
from jax._src.core import eval_context
from jax.extend.core import Primitive

from peerax._jax._compilation import called_with


class NeedsWholeProgram(BaseException):
    """Unwinds an eager shard_map. Not an Exception: user code must not catch it."""


def evaluates_eagerly() -> bool:
    """Whether the body of a shard_map is evaluated here and now, one primitive at a time."""
    return isinstance(core.trace_ctx.trace, _shard_map.ShardMapTrace)


def compile_eager_shard_map_if(needs_whole_program: Callable[[Primitive, dict[str, Any]], bool]) -> None:
    """Compile an eager shard_map as a whole when it meets an equation that says so.

    Otherwise JAX evaluates it one primitive at a time, each an execution of its own.
    """
    evaluate_call = core.EvalTrace.process_shard_map
    evaluate_primitive = _shard_map.ShardMapTrace.process_primitive

    @functools.wraps(evaluate_primitive)
    def process_primitive(self, primitive, tracers, params, /):
        if needs_whole_program(primitive, params):
            raise NeedsWholeProgram
        return evaluate_primitive(self, primitive, tracers, params)

    @functools.wraps(evaluate_call)
    def process_shard_map(trace, primitive, fun, args, **params):
        try:
            return evaluate_call(trace, primitive, fun, args, **params)
        except NeedsWholeProgram:
            pass  # and is no context of an error of the program
        return _compile_call(primitive, fun, args, params)

    _shard_map.ShardMapTrace.process_primitive = process_primitive
    core.EvalTrace.process_shard_map = process_shard_map


_COMPILED_SIZE = 256
_compiled: collections.OrderedDict[Any, Any] = collections.OrderedDict()
_compiled_lock = threading.Lock()


def _compile_call(primitive, fun, args, params):
    """Trace and lower the call each time, since nothing tells that the function is the same; compile it once."""
    trees = []

    def call(*operands):
        results = primitive.bind(*operands, subfuns=(fun,), **params)  # JAX's FlatTree
        trees.append(results.update([None] * len(results)))  # its form only: no tracer may outlive the call
        return list(results)

    with eval_context(), jax.disable_jit(False):
        if config.debug_nans.value or config.debug_infs.value:  # jit knows how to report them
            results = jax.jit(call)(*args)
            return trees[0].update(results)
        lowered = jax.jit(call).lower(*args)
        key = (lowered.as_text(), params["mesh"], *((core.typeof(x), getattr(x, "sharding", None)) for x in args))
        with called_with(args):
            compiled = _compile(lowered, key)
        results = compiled(*args)
    return trees[0].update(results)


def _compile(lowered, key):
    # The text does not say which function of Python is called, nor, in that mode, what closed-over arrays are.
    if "callback" in key[0] or config.use_simplified_jaxpr_constants.value:
        return lowered.compile()
    with _compiled_lock:
        compiled = _compiled.pop(key, None)
    if compiled is None:
        compiled = lowered.compile()
    with _compiled_lock:
        _compiled[key] = compiled
        if len(_compiled) > _COMPILED_SIZE:
            _compiled.popitem(last=False)
    return compiled
