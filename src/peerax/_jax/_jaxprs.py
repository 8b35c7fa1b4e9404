"""Jaxprs and their equations."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax._src import core, source_info_util
from jax._src.interpreters import partial_eval
from jax._src.util import weakref_lru_cache


def open_jaxpr(jaxpr) -> tuple[Any, Sequence[Any]]:
    """Return the jaxpr and its constants, of a closed jaxpr as well as of an open one."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


cached_by_jaxpr = weakref_lru_cache


def is_jaxpr(value) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def has_effects(eqn) -> bool:
    """Return whether an equation has effects, besides that it names an axis."""
    return any(not isinstance(effect, core.NamedAxisEffect) for effect in eqn.effects)


def as_lowered(traced) -> Any:
    """Return the closed jaxpr of what jit traced as it is lowered."""
    return traced.jaxpr if traced._params["keep_unused"] else without_dead_code(traced.jaxpr)


def without_dead_code(closed) -> Any:
    """Return a closed jaxpr without what no result and no effect depends on; it has all of its parameters."""
    used = [True] * len(closed.jaxpr.outvars)
    needed, used_consts, _ = partial_eval.dce_jaxpr_consts(closed.jaxpr, used, instantiate=True)
    return closed.replace(
        jaxpr=needed, consts=[const for const, used in zip(closed.consts, used_consts, strict=True) if used]
    )


def equation_site(eqn) -> tuple[str, int] | None:
    """File and line of the user's code that made an equation."""
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line)


def function_of(jaxpr) -> tuple[str, str]:
    """Name and file of the function that a jaxpr was traced from; "" if they are not known."""
    name, _, place = (open_jaxpr(jaxpr)[0].debug_info.func_src_info or "").rpartition(" at ")
    return name, place.rpartition(":")[0]


@contextlib.contextmanager
def equation_context(eqn) -> Iterator[None]:
    """What an equation was traced under: source, name stack, compute type and so on."""
    name_stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with source_info_util.user_context(eqn.source_info.traceback, name_stack=name_stack), eqn.ctx.manager:
        yield


def jaxprs_in(params: dict[str, Any]) -> list[Any]:
    """Return the jaxprs among the parameters of an equation."""
    found = []
    for param in params.values():
        if type(param) in _NO_JAXPRS:  # this is asked of every equation, several times
            continue
        if isinstance(param, (tuple, list)):
            found += [x for x in param if type(x) not in _NO_JAXPRS and type(x) is not tuple and is_jaxpr(x)]
        elif is_jaxpr(param):
            found.append(param)
    return found


_NO_JAXPRS = {int, bool, str, float, type(None), frozenset, np.dtype, np.int64}


def new_variable(aval) -> Any:
    """Return a variable for a result of an equation."""
    return core.Var(aval)


def stacked(aval, length: int) -> Any:
    """Return the type of so many values of a type, one from each step of a scan."""
    return core.unmapped_aval(length, 0, aval)


def rebind(eqn, operands: Sequence[Any]) -> list[Any]:
    """Apply an equation to other operands."""
    params = eqn.primitive.get_bind_params(eqn.params)
    result = eqn.primitive.bind(*operands, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """Numbers of constants and of carried values among the operands of a scan."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(consts), len(carry)


def in_three(values: Sequence[Any], first: int, second: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the first so many values, so many after them, and the rest."""
    return [*values[:first]], [*values[first : first + second]], [*values[first + second :]]
