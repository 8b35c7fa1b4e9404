"""Equations of a jaxpr: what needs what, and the two halves of a backward.

The half for the input are the equations that the cotangents of the input depend on. Those of the weights depend on the
rest, and on what crosses from the first half: no equation is in both, so no product is computed twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from peerax import _jax

# What only calls another function: its equations take its place.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def flattened(closed: Any, examples: Sequence[Any]) -> Any:
    """Return a closed jaxpr with the equations of the functions that are called in the place of the calls.

    Args:
        closed: the jaxpr.
        examples: operands; only their types matter.
    """

    def run(jaxpr, consts, args):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        for eqn in jaxpr.eqns:
            values = [_value(env, atom) for atom in eqn.invars]
            name = eqn.primitive.name
            if name in _CALLS and _CALLS[name] in eqn.params:
                inner, inner_consts = _jax.open_jaxpr(eqn.params[_CALLS[name]])
                results = run(inner, inner_consts, values)
            else:
                with _jax.equation_context(eqn):
                    results = _jax.rebind(eqn, values)
            env |= zip(eqn.outvars, results, strict=True)
        return [_value(env, atom) for atom in jaxpr.outvars]

    return jax.make_jaxpr(lambda *args: run(closed.jaxpr, closed.consts, args))(*examples)


def needed_for(jaxpr: Any, wanted: Iterable[Any]) -> list[bool]:
    """Return for each equation whether one of these variables depends on it."""
    variables = {atom for atom in wanted if not isinstance(atom, _jax.Literal)}
    needed = []
    for eqn in reversed(jaxpr.eqns):
        needed.append(any(v in variables for v in eqn.outvars))
        if needed[-1]:
            variables |= {atom for atom in eqn.invars if not isinstance(atom, _jax.Literal)}
    return needed[::-1]


def read_by(equations: Sequence[Any], results: Iterable[Any] = ()) -> set[Any]:
    """Return the variables that equations read, and those of the results."""
    atoms = [*(atom for eqn in equations for atom in eqn.invars), *results]
    return {atom for atom in atoms if not isinstance(atom, _jax.Literal)}


def run(
    equations: Sequence[Any],
    env: dict[Any, Any],
    results: Sequence[Any],
    apply: Callable[[Any, list[Any]], list[Any] | None] | None = None,
) -> list[Any]:
    """Apply equations to the values of variables, and return what the results are.

    Args:
        equations: in order.
        env: values of the variables that they read.
        results: variables.
        apply: applies some equations in another way; for the others it returns None.
    """
    env = dict(env)
    for eqn in equations:
        values = [_value(env, atom) for atom in eqn.invars]
        made = apply(eqn, values) if apply else None
        if made is None:
            with _jax.equation_context(eqn):
                made = _jax.rebind(eqn, values)
        env |= zip(eqn.outvars, made, strict=True)
    return [_value(env, atom) for atom in results]


def _value(env: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, _jax.Literal) else env[atom]
