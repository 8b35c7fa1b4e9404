"""Parts of a body, as it is put in order before it is lowered."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from peerax import _jax
from peerax.ops._pairs import find_pairs
from peerax.ops._token import link_p


class Late:
    """A result that is there when the body is finished."""

    value: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Equations as a jaxpr, and which of them are pairs: those of one scope, also where it was inlined.

    If results are still to be summed, types do not tell what is the same on all ranks.
    """

    invars: Sequence[Any]
    eqns: Sequence[Any]
    outvars: Sequence[Any]
    pairs: Sequence[tuple[Any, Any]] = ()
    constvars: Sequence[Any] = ()
    consts: Sequence[Any] = ()
    unsummed: Sequence[tuple] = ()  # by result: over which axes it is still to be summed

    def find_pairs(self) -> dict[int, int]:
        """Return the position of the precv for the position of the psend of each pair."""
        at = {id(eqn): i for i, eqn in enumerate(self.eqns)}
        return {at[id(send)]: at[id(receive)] for send, receive in self.pairs}


def pairs_of(jaxpr) -> dict[int, int]:
    """Return the position of the precv for the position of the psend of each pair."""
    return jaxpr.find_pairs() if isinstance(jaxpr, Part) else find_pairs(jaxpr.eqns)


def uses(eqn) -> Sequence[Any]:
    """What an equation depends on when it is lowered; a link is its token then."""
    return eqn.invars[:1] if eqn.primitive is link_p else eqn.invars


def replaced(eqn, names: dict[Any, Any]) -> Any:
    """An equation with other variables."""
    return eqn.replace(invars=[renamed(v, names) for v in eqn.invars], outvars=[renamed(v, names) for v in eqn.outvars])


def renamed(atom, names: dict[Any, Any]) -> Any:
    """What a variable is called now."""
    return atom if is_literal(atom) else names.get(atom, atom)


def those(values: Sequence[Any], flags: Sequence[bool], wanted: bool = True) -> list[Any]:
    """The values whose flag is as wanted."""
    return [x for x, flag in zip(values, flags, strict=True) if flag == wanted]


def is_literal(atom) -> bool:
    return isinstance(atom, _jax.Literal)
