"""Which equations communicate."""

import functools
import numbers
from collections.abc import Callable
from typing import Any

from peerax import _jax
from peerax.ops._pairs import find_pairs
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p

# Equations that name axes and yet communicate nothing.
_SILENT = {
    "axis_index",
    "pvary",
    "pcast",
    "vary_unreduced_cast",
    "vary_unreduced_cast_p",
    "reduced_vary_cast",
    "preduced",
}

CONTROL_FLOW = ("scan", "while", "cond", "shard_map", "custom_linear_solve")


def _once_each(question: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Ask each jaxpr once: many equations may have the same one, and what is around them is asked again and again."""
    ask = _jax.cached_by_jaxpr(question)

    @functools.wraps(question)
    def answer(jaxpr: Any) -> bool:
        return ask(_jax.open_jaxpr(jaxpr)[0])

    return answer


@_once_each
def has_peerax(jaxpr: Any) -> bool:
    """Return whether psend or precv is anywhere in a jaxpr."""
    return any(eqn.primitive in (psend_p, precv_p) or any_in_params(eqn.params, has_peerax) for eqn in jaxpr.eqns)


@_once_each
def has_separate(jaxpr: Any) -> bool:
    """Return whether a psend or precv that is not one of a pair is anywhere in a jaxpr."""
    pairs = find_pairs(jaxpr.eqns)
    paired = {*pairs.keys(), *pairs.values()}
    return any(
        (eqn.primitive in (psend_p, precv_p) and i not in paired) or any_in_params(eqn.params, has_separate)
        for i, eqn in enumerate(jaxpr.eqns)
    )


@_once_each
def has_branches(jaxpr: Any) -> bool:
    """Return whether anything that communicates is in a branch or a while loop, which some ranks may leave out."""
    return any(
        (eqn.primitive.name in ("cond", "while") and communicates_within(eqn))
        or any_in_params(eqn.params, has_branches)
        for eqn in jaxpr.eqns
    )


@_once_each
def has_sums_in_branches(jaxpr: Any) -> bool:
    """Return whether cotangents are summed in a branch."""
    return any(
        (eqn.primitive.name == "cond" and any_in_params(eqn.params, has_sums))
        or any_in_params(eqn.params, has_sums_in_branches)
        for eqn in jaxpr.eqns
    )


@_once_each
def has_sums(jaxpr: Any) -> bool:
    """Return whether cotangents are summed anywhere in a jaxpr."""
    return any(_jax.is_sum_of_cotangents(eqn) or any_in_params(eqn.params, has_sums) for eqn in jaxpr.eqns)


def any_in_params(params: dict[str, Any], test: Callable[[Any], bool]) -> bool:
    """Return whether test holds for a jaxpr among the parameters of an equation."""
    return any(map(test, _jax.jaxprs_in(params)))


def communicates(eqn) -> bool:
    """Return whether an equation has a place in the order: psend, precv, one of JAX's collectives, or any inside it."""
    return eqn.primitive in (psend_p, precv_p) or is_collective(eqn) or communicates_within(eqn)


def communicates_within(eqn) -> bool:
    """Return whether any equation inside this one communicates."""
    return any_in_params(eqn.params, _any_communicates)


@_once_each
def _any_communicates(jaxpr: Any) -> bool:
    return any(map(communicates, jaxpr.eqns))


def is_collective(eqn) -> bool:
    """Return whether an equation is one of JAX's collectives."""
    if eqn.primitive in (psend_p, precv_p) or eqn.primitive.name in _SILENT:
        return False
    return ("axes" in eqn.params or "axis_name" in eqn.params) and bool(axes_of(eqn))


def axes_of(eqn) -> tuple:
    """Return the axis names of one of JAX's collectives."""
    axes = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(axis for axis in axes if not isinstance(axis, numbers.Integral))


def call_of(eqn) -> Any:
    """Return the only jaxpr of a call (jit, checkpoint, custom_jvp and so on), or None for anything else."""
    if eqn.primitive.name in CONTROL_FLOW:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        jaxpr = eqn.params.get(name)
        if _jax.is_jaxpr(jaxpr):
            inner, _ = _jax.open_jaxpr(jaxpr)
            if len(inner.invars) == len(eqn.invars) and len(inner.outvars) == len(eqn.outvars):
                return jaxpr
    return None
