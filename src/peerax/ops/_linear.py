"""Whether what depends on sums is linear in them: zeros in, zeros out, and the sum may be taken afterwards."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from peerax import _jax
from peerax.ops._communication import any_in_params, call_of, has_sums
from peerax.ops._leaves import is_differentiable
from peerax.ops._parts import uses


class Kind(NamedTuple):
    """What is known of a value: that it is zero, that it is linear in sums over some axes, or that it has no part."""

    name: str
    axes: tuple = ()  # those of the sums


ZERO, FREE = Kind("zero"), Kind("free")

# The operands that a primitive is linear in, all of them together; with the others it does what it likes.
_FIRST = (
    *("broadcast_in_dim", "convert_element_type", "copy", "copy_p", "cumsum", "div", "dynamic_slice", "expand_dims"),
    *("fft", "gather", "imag", "neg", "pvary", "real", "reduce_precision", "reduce_sum", "reshape", "rev", "slice"),
    *("split", "squeeze", "transpose"),
)
_LINEAR: dict[str, Callable[[int], Sequence[int]]] = {
    **dict.fromkeys(("add_any", "add", "sub", "concatenate", "pad"), range),
    **dict.fromkeys(_FIRST, lambda count: (0,)),
    "dynamic_update_slice": lambda count: (0, 1),
    "scatter-add": lambda count: (0, 2),
    "select_n": lambda count: range(1, count),
}
_BILINEAR = ("mul", "dot_general", "conv_general_dilated")


def kinds_of(jaxpr: Any, operands: Sequence[Kind]) -> dict[Any, Kind] | None:
    """Return the kind of each variable of a jaxpr; None if there is more to what depends on sums."""
    kinds: dict[Any, Kind] = dict.fromkeys(jaxpr.constvars, FREE)
    kinds.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        results = _results(eqn, [kind_of(kinds, v) for v in uses(eqn)])
        if results is None:
            return None
        made = dict(zip(eqn.outvars, results, strict=True))
        if any(kind.axes and not is_differentiable(v.aval.dtype) for v, kind in made.items()):
            return None
        kinds.update(made)
    return kinds


def kind_of(kinds: dict[Any, Kind], atom: Any) -> Kind:
    """The kind of a variable or literal."""
    if isinstance(atom, _jax.Literal):
        return FREE if np.any(atom.val) else ZERO
    return kinds[atom]


def joined(kinds: Sequence[Kind]) -> Kind | None:
    """The kind of what has one of these kinds, or is a sum of such; None if there is no such kind."""
    others = {*kinds} - {ZERO}
    return ZERO if not others else others.pop() if len(others) == 1 else None


def _results(eqn, operands: list[Kind]) -> Sequence[Kind] | None:
    name = eqn.primitive.name
    if _jax.is_sum_of_cotangents(eqn):
        (kind,) = operands
        axes = {*eqn.params["axes"], *kind.axes}
        # A sum of sums, over other axes, is one over all of them.
        return [ZERO if kind == ZERO else Kind("linear", tuple(sorted(axes, key=str)))]
    if name == "scan":
        return _scan(eqn, operands)
    if name == "cond":
        return _cond(eqn, operands)
    call = call_of(eqn)
    if call is not None:
        inner, _ = _jax.open_jaxpr(call)
        kinds = kinds_of(inner, operands)
        return None if kinds is None else [kind_of(kinds, v) for v in inner.outvars]
    if not any(kind.axes for kind in operands):
        is_zero = name in ("broadcast_in_dim", "pvary") and operands[0] == ZERO
        return None if any_in_params(eqn.params, has_sums) else [ZERO if is_zero else FREE] * len(eqn.outvars)
    if name in _LINEAR and not eqn.params.get("fill_value"):  # of gather
        positions = _LINEAR[name](len(operands))
        result = joined([operands[i] for i in positions])
        if result in (None, FREE) or any(kind.axes for i, kind in enumerate(operands) if i not in positions):
            return None
        return [result] * len(eqn.outvars)
    if name in _BILINEAR:
        sums = [kind for kind in operands if kind.axes]
        return sums if len(sums) == 1 else None
    return None


def _cond(eqn, operands: list[Kind]) -> Sequence[Kind] | None:
    branches = [_jax.open_jaxpr(branch)[0] for branch in eqn.params["branches"]]
    known = [kinds_of(jaxpr, operands[1:]) for jaxpr in branches]
    if operands[0].axes or None in known:
        return None
    each = [[kind_of(kinds, v) for v in jaxpr.outvars] for jaxpr, kinds in zip(branches, known, strict=True)]
    results = [joined(of_all) for of_all in zip(*each, strict=True)]
    return None if None in results else results


def _scan(eqn, operands: list[Kind]) -> Sequence[Kind] | None:
    jaxpr, _ = _jax.open_jaxpr(eqn.params["jaxpr"])
    fixed, carry, xs = _jax.in_three(operands, *_jax.scan_counts(eqn.params))
    while True:
        kinds = kinds_of(jaxpr, [*fixed, *carry, *xs])
        if kinds is None:
            return None
        results = [kind_of(kinds, v) for v in jaxpr.outvars]
        after = [joined(pair) for pair in zip(carry, results, strict=False)]
        if None in after:
            return None
        if after == carry:
            return [*carry, *results[len(carry) :]]
        carry = after
