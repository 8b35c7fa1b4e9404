"""Sums of cotangents in branches, behind these.

Where ranks take different branches, a sum over all ranks in the branch of some is not joined by the others. What they
would add is zero.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from peerax import _jax
from peerax.ops._communication import any_in_params, has_sums, has_sums_in_branches
from peerax.ops._linear import FREE, Kind, joined, kind_of, kinds_of
from peerax.ops._parts import Part, pairs_of, renamed, replaced

_INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr", "body_jaxpr", "cond_jaxpr", "branches")


def lift_all_sums(jaxpr, consts=()) -> Any:
    """Return a jaxpr with no sums in branches, also of loops in it, where that is the same; itself if it has none."""
    if not has_sums_in_branches(jaxpr):
        return jaxpr
    equations: list[Any] = []
    now: dict[int, Any] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        lifted = lift_sums(eqn) if eqn.primitive.name == "cond" else None
        if lifted is not None:
            equations += lifted
            continue
        inside = {name: eqn.params[name] for name in _INSIDE if name in eqn.params}
        if any_in_params(inside, has_sums_in_branches):
            inside = {name: _lifted_inside(param) for name, param in inside.items()}
            eqn = eqn.replace(params={**eqn.params, **inside})
        now[i] = eqn
        equations.append(eqn)
    pairs = [(now[send], now[receive]) for send, receive in pairs_of(jaxpr).items()]
    return Part(jaxpr.invars, equations, jaxpr.outvars, pairs, jaxpr.constvars, consts)


def _lifted_inside(param: Any) -> Any:
    if isinstance(param, (tuple, list)):
        return tuple(map(_lifted_inside, param))
    return lift_all_sums(*_jax.open_jaxpr(param)) if _jax.is_jaxpr(param) and has_sums_in_branches(param) else param


def lift_sums(eqn) -> list[Any] | None:
    """Return a cond without sums, and sums of its results; None if it has none, or if that is not the same.

    It is the same if results are linear in the sums: then the sum may as well be taken last.
    """
    opened = [_jax.open_jaxpr(branch) for branch in eqn.params["branches"]]
    sums = [step for jaxpr, _ in opened for step in _sums_in(jaxpr)]
    if not sums or eqn.params.get("branches_platforms") or any(len(step.invars) > 1 for step in sums):
        return None
    kinds = [kinds_of(jaxpr, [FREE] * len(jaxpr.invars)) for jaxpr, _ in opened]
    if any(known is None for known in kinds):
        return None
    results = [[kind_of(known, v) for v in jaxpr.outvars] for (jaxpr, _), known in zip(opened, kinds, strict=True)]
    unsummed = []  # by result, over which axes it is still to be summed
    for v, *each in zip(eqn.outvars, *results, strict=True):
        kind = joined(each) if any(one.axes for one in each) else FREE
        if kind is None or _jax.varying(v.aval).intersection(kind.axes):
            return None
        unsummed.append(kind.axes)
    branches = tuple(
        _without_sums(jaxpr, consts, known, unsummed) for (jaxpr, consts), known in zip(opened, kinds, strict=True)
    )
    before = [_jax.new_variable(v.aval) if axes else v for v, axes in zip(eqn.outvars, unsummed, strict=True)]
    lifted = eqn.replace(outvars=before, params={**eqn.params, "branches": branches})
    late = [each for each in zip(before, eqn.outvars, unsummed, strict=True) if each[2]]
    return [lifted, *(_sum_of(sums[0], *each) for each in late)]


def _sum_of(like, before: Any, after: Any, axes: tuple) -> Any:
    """The equation of a sum over axes, like another sum."""
    return like.replace(invars=[before], outvars=[after], params={**like.params, "axes": axes})


def _without_sums(jaxpr, consts, kinds: dict[Any, Kind], unsummed: Sequence[tuple]) -> Part:
    """A branch, or what is in it, that leaves the sums to whoever uses its results."""
    names: dict[Any, Any] = {}
    now: dict[int, Any] = {}
    for i, old in enumerate(jaxpr.eqns):
        eqn = replaced(old, names)
        if _jax.is_sum_of_cotangents(old):
            names[old.outvars[0]] = eqn.invars[0]
            continue
        now[i] = eqn
        for name, param in eqn.params.items():
            inner = param if isinstance(param, (tuple, list)) else [param]
            if not any(_jax.is_jaxpr(each) and has_sums(each) for each in inner):
                continue
            operands = [kind_of(kinds, v) for v in old.invars]
            axes = [kinds[v].axes for v in old.outvars]
            if old.primitive.name == "scan":  # with what the steps make of it
                fixed, carry, xs = _jax.in_three(operands, *_jax.scan_counts(old.params))
                operands = [*fixed, *(kinds[v] for v in old.outvars[: len(carry)]), *xs]
            elif old.primitive.name == "cond":
                operands = operands[1:]
            parts = [
                _without_sums(jaxpr, consts, kinds_of(jaxpr, operands), axes)
                for jaxpr, consts in map(_jax.open_jaxpr, inner)
            ]
            now[i] = eqn.replace(params={**eqn.params, name: parts[0] if inner[0] is param else tuple(parts)})
    pairs = [(now[send], now[receive]) for send, receive in pairs_of(jaxpr).items()]
    results = [renamed(v, names) for v in jaxpr.outvars]
    return Part(jaxpr.invars, [*now.values()], results, pairs, jaxpr.constvars, consts, unsummed)


def _sums_in(jaxpr) -> Iterator[Any]:
    for eqn in _jax.open_jaxpr(jaxpr)[0].eqns:
        if _jax.is_sum_of_cotangents(eqn):
            yield eqn
        for inner in _jax.jaxprs_in(eqn.params):
            yield from _sums_in(inner)
