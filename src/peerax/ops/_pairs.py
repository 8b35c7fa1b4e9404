"""Which receive belongs to which send: a precv whose token comes from a psend with the same perm and tag."""

from collections.abc import Sequence
from typing import Any

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._order import order_p
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p
from peerax.ops._site import location
from peerax.ops._token import link_p

# Equations that give a token on unchanged: result i is operand i.
_ADD = {"add_any", "add"}  # cotangents of a token that was used twice
_PASS_ON = {
    "optimization_barrier",
    "pvary",
    "copy",
    "copy_p",
    "convert_element_type",
    "reshape",
    "squeeze",
    "pcast",
}


def find_pairs(equations: Sequence[Any]) -> dict[int, int]:
    """Return the position of the precv for the position of each psend that has one, within one scope.

    A token is that of one psend, also if that psend came after another.

    Raises:
      PeeraxError: PX203 or PX204 if the two ends of a pair disagree.
    """
    sends_behind: dict[Any, tuple[int, ...]] = {}
    pairs: dict[int, int] = {}
    for i, equation in enumerate(equations):
        if equation.primitive is psend_p:
            sends_behind[equation.outvars[0]] = (i,)
        elif equation.primitive is precv_p:
            sends = _sends(sends_behind, equation.invars[0])
            # Several receives may have had one token. The pair was the first of them, and what is transposed is last.
            for send in sends[::-1] if equation.params["path"].count("c") % 2 else sends:
                if send not in pairs and _same_channel(equations[send].params, equation.params):
                    _check_agreement(equations[send].params, equation.params)
                    pairs[send] = i
                    break
        elif equation.primitive.name in _ADD:
            sends_behind[equation.outvars[0]] = tuple(
                sorted({send for operand in equation.invars for send in _sends(sends_behind, operand)})
            )
        elif equation.primitive in (order_p, link_p) or equation.primitive.name in _PASS_ON:
            for operand, result in zip(equation.invars, equation.outvars, strict=False):
                if _sends(sends_behind, operand):
                    sends_behind[result] = _sends(sends_behind, operand)
    return pairs


def _sends(sends_behind: dict[Any, tuple[int, ...]], atom: Any) -> tuple[int, ...]:
    return () if isinstance(atom, _jax.Literal) else sends_behind.get(atom, ())


def _same_channel(send: dict[str, Any], receive: dict[str, Any]) -> bool:
    return (
        send["axes"] == receive["axes"]
        and set(send["perm"]) == set(receive["perm"])
        and send["tag"] == receive["tag"]
        and send["path"] == receive["path"]
    )


def _check_agreement(send: dict[str, Any], receive: dict[str, Any]) -> None:
    if len(send["types"]) != len(receive["types"]):
        raise PeeraxError.of(
            "PX203",
            f"psend sends {len(send['types'])} arrays, and the precv that its token goes to expects "
            f"{len(receive['types'])}",
            locations=(location(send["site"]), location(receive["site"])),
        )
    for sent, received in zip(send["types"], receive["types"], strict=True):
        if sent == received:
            continue
        code = "PX204" if sent.partition("[")[2] == received.partition("[")[2] else "PX203"
        raise PeeraxError.of(
            code,
            f"psend sends {sent}, and the precv that its token goes to expects {received}",
            locations=(location(send["site"]), location(receive["site"])),
        )
