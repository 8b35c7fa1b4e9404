"""The stretches of a body between its communication, which the total order leaves as they are."""

from typing import Any

from peerax import _jax
from peerax.ops._communication import communicates
from peerax.ops._order import order_p
from peerax.ops._token import link_p

_SHORTEST = 2


def find_stretches(jaxpr) -> dict[int, Any]:
    """Return by the position where it begins each stretch of equations that can be lowered as they are."""
    stretches = {}
    begin = 0
    last = _last_uses(jaxpr)
    for i, eqn in enumerate((*jaxpr.eqns, None)):
        if eqn is not None and _stays(eqn):
            continue
        if i - begin >= _SHORTEST:
            made = [v for inner in jaxpr.eqns[begin:i] for v in inner.outvars]
            stretches[begin] = _jax.stretch_of(jaxpr, begin, i, [v for v in made if last.get(v, -1) >= i])
        begin = i + 1
    return stretches


def _stays(eqn) -> bool:
    return eqn.primitive not in (order_p, link_p) and not _jax.has_effects(eqn) and not communicates(eqn)


def _last_uses(jaxpr) -> dict[Any, int]:
    last: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        last.update((v, i) for v in eqn.invars if not isinstance(v, _jax.Literal))
    last.update((v, len(jaxpr.eqns)) for v in jaxpr.outvars if not isinstance(v, _jax.Literal))
    return last
