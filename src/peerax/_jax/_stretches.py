"""Stretches of a jaxpr that are lowered as they are.

To trace their equations again, only to have the same ones after all, takes longer than to lower them.
"""

from collections.abc import Sequence
from typing import Any

from jax._src import core
from jax._src.interpreters import mlir
from jax.extend.core import Primitive

_stretch_p = Primitive("peerax_stretch")
_stretch_p.multiple_results = True


def stretch_of(jaxpr, start: int, stop: int, results: Sequence[Any]) -> Any:
    """Return the jaxpr of some of a jaxpr's equations, which have no effects; its results are those variables."""
    equations = jaxpr.eqns[start:stop]
    made: set[Any] = set()
    operands: dict[Any, None] = {}  # a set in order
    for eqn in equations:
        operands.update((v, None) for v in eqn.invars if not isinstance(v, core.Literal) and v not in made)
        made.update(eqn.outvars)
    effects = frozenset().union(*(eqn.effects for eqn in equations))
    return jaxpr.replace(constvars=[], invars=[*operands], outvars=[*results], eqns=equations, effects=effects)


def fits(stretch, operands: Sequence[Any]) -> bool:
    """Return whether operands have the very types of those of a stretch."""
    return all(core.typeof(x) == v.aval for x, v in zip(operands, stretch.invars, strict=True))


def bind_stretch(stretch, operands: Sequence[Any]) -> list[Any]:
    """Evaluate a stretch on operands that fit."""
    return _stretch_p.bind(*operands, jaxpr=stretch)


def _stretch_lowering(ctx, *operands, jaxpr):
    module = ctx.module_context if ctx.platforms is None else ctx.module_context.replace(platforms=ctx.platforms)
    results, _ = mlir.jaxpr_subcomp(
        module,
        jaxpr,
        ctx.name_stack,
        ctx.tokens_in,
        (),
        *operands,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=None,
    )
    return results


_stretch_p.def_effectful_abstract_eval(lambda *avals, jaxpr: ([v.aval for v in jaxpr.outvars], jaxpr.effects))
mlir.register_lowering(_stretch_p, _stretch_lowering, cacheable=False)
