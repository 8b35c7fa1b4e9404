"""Which arrays an exchange may overwrite. XLA would copy the others first, which costs more than it saves."""

from collections.abc import Sequence
from typing import Any

from peerax import _jax
from peerax.ops._communication import communicates


class LastUses:
    """Where the variables of a jaxpr are used last. carried are those of its parameters that may be overwritten."""

    def __init__(self, jaxpr: Any, carried: Sequence[Any]):
        self._equations = jaxpr.eqns
        self._last: dict[Any, int] = {}
        for i, eqn in enumerate(jaxpr.eqns):
            self._last.update((v, i) for v in eqn.invars if not isinstance(v, _jax.Literal))
        kept = {*jaxpr.constvars, *jaxpr.invars}.difference(carried)
        kept.update(v for v in jaxpr.outvars if not isinstance(v, _jax.Literal))
        self._last.update((v, len(jaxpr.eqns)) for v in kept)

    def spent_at(self, send: int, receive: int, leaf: int) -> bool:
        """Return whether what a psend sends as that leaf is used no more once its precv has the results."""
        sent = self._equations[send].invars[1:]
        v = sent[leaf]
        if isinstance(v, _jax.Literal) or sent.count(v) > 1 or self._last[v] == len(self._equations):
            return False
        # Uses that do not come after the exchange can come before it: XLA orders them so.
        behind = set(self._equations[receive].outvars)
        for eqn in self._equations[send + 1 : self._last[v] + 1]:
            operands = {x for x in eqn.invars if not isinstance(x, _jax.Literal)}
            if communicates(eqn) or not behind.isdisjoint(operands):
                if v in operands:
                    return False
                behind.update(eqn.outvars)
        return True
