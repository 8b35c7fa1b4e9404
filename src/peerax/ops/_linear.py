"""Whether what depends on sums is linear in them: zeros in, zeros out, and the sum may be taken afterwards."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from peerax import _jax
from peerax.ops._communication import call_of
from peerax.ops._leaves import is_differentiable


class Kind(enum.Enum):
    """What is known of a value."""

    ZERO = enum.auto()
    LINEAR = enum.auto()  # in sums
    FREE = enum.auto()  # of sums


# The operands that a primitive is linear in, all of them together; with the others it does what it likes.
_LINEAR: dict[str, Callable[[int], Sequence[int]]] = {
    **dict.fromkeys(("add_any", "add", "sub", "concatenate", "pad"), range),
    **dict.fromkeys(("broadcast_in_dim", "convert_element_type", "copy", "copy_p", "div", "neg"), lambda count: (0,)),
    **dict.fromkeys(("dynamic_slice", "expand_dims", "gather", "imag", "pvary", "real"), lambda count: (0,)),
    **dict.fromkeys(("reduce_sum", "reshape", "rev", "slice", "split", "squeeze", "transpose"), lambda count: (0,)),
    "dynamic_update_slice": lambda count: (0, 1),
    "scatter-add": lambda count: (0, 2),
    "select_n": lambda count: range(1, count),
}
_BILINEAR = ("mul", "dot_general")


def kinds_of(jaxpr: Any, operands: Sequence[Kind], is_sum: Callable[[Any], bool]) -> dict[Any, Kind] | None:
    """Return the kind of each variable of a jaxpr; None if there is more to what depends on sums."""
    kinds: dict[Any, Kind] = dict.fromkeys(jaxpr.constvars, Kind.FREE)
    kinds.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        results = _results(eqn, [kind_of(kinds, v) for v in eqn.invars], is_sum)
        if results is None:
            return None
        made = dict(zip(eqn.outvars, results, strict=True))
        if any(kind is Kind.LINEAR and not is_differentiable(v.aval.dtype) for v, kind in made.items()):
            return None
        kinds.update(made)
    return kinds


def kind_of(kinds: dict[Any, Kind], atom: Any) -> Kind:
    """The kind of a variable or literal."""
    if isinstance(atom, _jax.Literal):
        return Kind.FREE if np.any(atom.val) else Kind.ZERO
    return kinds[atom]


def _results(eqn, operands: list[Kind], is_sum: Callable[[Any], bool]) -> Sequence[Kind] | None:
    name = eqn.primitive.name
    if is_sum(eqn):
        return [Kind.LINEAR] if operands == [Kind.FREE] else None
    if name == "scan":
        return _scan(eqn, operands, is_sum)
    call = call_of(eqn)
    if call is not None:
        inner, _ = _jax.open_jaxpr(call)
        kinds = kinds_of(inner, operands, is_sum)
        return kinds and [kind_of(kinds, v) for v in inner.outvars]
    if name in _LINEAR:
        linear = _LINEAR[name](len(operands))
        others = [kind for i, kind in enumerate(operands) if i not in linear]
        if Kind.LINEAR not in others and not any(operands[i] is Kind.FREE for i in linear):
            return [_joined([operands[i] for i in linear])] * len(eqn.outvars)
    if name in _BILINEAR and operands.count(Kind.LINEAR) == 1:
        return [Kind.LINEAR]
    return None if Kind.LINEAR in operands or _any_inside(eqn, is_sum) else [Kind.FREE] * len(eqn.outvars)


def _scan(eqn, operands: list[Kind], is_sum: Callable[[Any], bool]) -> Sequence[Kind] | None:
    jaxpr, _ = _jax.open_jaxpr(eqn.params["jaxpr"])
    fixed, carry, xs = _jax.in_three(operands, *_jax.scan_counts(eqn.params))
    while True:
        kinds = kinds_of(jaxpr, [*fixed, *carry, *xs], is_sum)
        if kinds is None:
            return None
        results = [kind_of(kinds, v) for v in jaxpr.outvars]
        pairs = [*zip(carry, results, strict=False)]
        if any({*pair} == {Kind.LINEAR, Kind.FREE} for pair in pairs):
            return None
        joined = [_joined(pair) for pair in pairs]
        if joined == carry:
            return [*joined, *results[len(carry) :]]
        carry = joined


def _joined(kinds: Sequence[Kind]) -> Kind:
    return next((kind for kind in kinds if kind is not Kind.ZERO), Kind.ZERO)


def _any_inside(eqn, is_sum: Callable[[Any], bool]) -> bool:
    inside = (inner for jaxpr in _jax.jaxprs_in(eqn.params) for inner in _jax.open_jaxpr(jaxpr)[0].eqns)
    return any(is_sum(inner) or _any_inside(inner, is_sum) for inner in inside)
