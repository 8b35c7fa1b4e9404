"""Messages in the rules of jax.custom_jvp: values and tangents."""

from typing import Any

import jax

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location, site_of
from peerax.ops._token import link_p


def note_sent(token: jax.Array, operands: list[Any], *, axes: tuple, perm: tuple, tag: int, site: str) -> None:
    """Note in a rule what was sent; raise PX214 for a tangent whose receive came first, and was taken for a value."""
    rule = _jax.rule_here()
    mistaken = None if rule is None else rule.send(_channels(axes, perm, tag), token, operands)
    if mistaken is not None and not rule.is_forward:
        _refuse("a precv with a new token comes before the psend of the tangents that it receives", mistaken, site)


def linked_to_sent(token: jax.Array, *, axes: tuple, perm: tuple, tag: int, site: str) -> jax.Array:
    """The token of a receive, which depends in a rule on the tangents that are received."""
    rule = _jax.rule_here()
    sent = [] if rule is None else rule.receive(_channels(axes, perm, tag), token, site)
    return link_p.bind(token, *sent, complete=True) if sent else token


def _check(rule: _jax.Rule, results: Any) -> None:
    """Raise PX214 if JAX would take a tangent that a rule has received for a value, or a value for a tangent."""
    if rule.is_forward or not isinstance(results, (tuple, list)) or len(results) != 2:
        return
    values, tangents = map(jax.tree.leaves, results)
    if rule.receiver is not None and any(map(rule.moves, values)):
        _refuse("a value is received as a tangent: together with one, or in its place", rule.receiver)
    for x in tangents:
        received = None if rule.moves(x) else rule.received(x)
        if received is not None:
            site = rule.receiver or site_of(received)
            _refuse("a tangent is received that is taken for a value: its send is not in sight", site)


def _refuse(what: str, *sites: str) -> None:
    raise PeeraxError.of(
        "PX214",
        f"in the rule of a jax.custom_jvp, {what}",
        locations=map(location, sites),
        help="send before you receive, in the rule itself, in no loop, branch or call; tangents by themselves, and as "
        "a pair or under a tag of their own",
    )


def _channels(axes: tuple, perm: tuple, tag: int) -> list[Any]:
    return [(axes, tag, edge) for edge in perm]


_jax.note_rules(_jax.communication, _check)
