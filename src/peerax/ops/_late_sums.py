"""Sums of cotangents that can wait for the end of a body.

Where types track what differs by rank (check_vma), JAX adds up the cotangents of what all ranks share as soon as it has
them: with separate operations, after a rank has received a cotangent, and before it sends the next one, which another
rank needs to get to the same sum. But no message depends on these sums. Behind all other communication of the body they
keep their order and their values, and nothing waits for anything that it did not wait for before: all of that was
reached in the same order with sums in between.

A scan with sums in its steps becomes two, and the second one, of the sums and what depends on them, can wait. It is an
equation with a Part as its jaxpr. Sums in branches are taken behind the cond, where all ranks come by.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from peerax import _jax
from peerax.ops._communication import call_of, communicates, has_separate, has_sums_in_branches
from peerax.ops._late_branches import lift_all_sums
from peerax.ops._parts import Part, is_literal, pairs_of, renamed, replaced, those, uses


def are_in_the_way(jaxpr) -> bool:
    """Return whether sums of cotangents may be between messages of a body, or where not all ranks come by."""
    return has_separate(jaxpr) or has_sums_in_branches(jaxpr)


def put_sums_last(jaxpr) -> tuple[Part, set[int]]:
    """Return an equivalent of a body, and the positions in it of sums that can wait for its end."""
    part, scans = _expose_sums(lift_all_sums(jaxpr))
    while True:
        late = _late(part)
        in_the_way = [eqn for i, eqn in enumerate(part.eqns) if _is_scan_of_sums(eqn) and i not in late]
        if not in_the_way:
            return part, late
        # Other communication depends on its sums, so they stay where they are.
        part = dataclasses.replace(part, eqns=_join(part.eqns, in_the_way[-1], scans))


def _late(part: Part) -> set[int]:
    """The positions of sums that no communication behind them depends on."""
    needed: set[Any] = set()
    late = set()
    for i, eqn in reversed([*enumerate(part.eqns)]):
        wanted = any(v in needed for v in eqn.outvars)
        if _is_sum(eqn) and not wanted:
            late.add(i)
        elif wanted or communicates(eqn):
            needed.update(v for v in uses(eqn) if not is_literal(v))
    return late


def _is_sum(eqn) -> bool:
    return _jax.is_sum_of_cotangents(eqn) or _is_scan_of_sums(eqn)


def _is_scan_of_sums(eqn) -> bool:
    return eqn.params.get("of_sums", False)


class _Scan(NamedTuple):
    """The parts of a scan that was split, and itself."""

    first: Any
    second: Any
    whole: Any


def _join(equations: Sequence[Any], second: Any, scans: list[_Scan]) -> list[Any]:
    """Put a scan back together."""
    (scan,) = [scan for scan in scans if scan.second is second]
    return [scan.whole if eqn is scan.first else eqn for eqn in equations if eqn is not second]


def _expose_sums(jaxpr) -> tuple[Part, list[_Scan]]:
    """Inline calls that have sums inside, and split scans that have."""
    names: dict[Any, Any] = {}
    equations: list[Any] = []
    pairs: list[tuple[Any, Any]] = []
    scans: list[_Scan] = []
    now: dict[int, Any] = {}  # what has become of an equation
    for i, old in enumerate(jaxpr.eqns):
        eqn = now[i] = replaced(old, names)
        inner, consts = _jax.open_jaxpr(call_of(eqn))
        if eqn.primitive.name == "scan" and (parts := _split_scan(eqn)) is not None:
            equations += parts
            scans.append(_Scan(*parts, eqn))
        elif inner is None or consts or not any(map(_is_sum, (body := _expose_sums(inner))[0].eqns)):
            equations.append(eqn)
        else:
            inside = dict(zip(inner.invars, eqn.invars, strict=True))
            inlined = _inline(*body, inside)
            equations += inlined[0].eqns
            pairs += inlined[0].pairs
            scans += inlined[1]
            names.update(zip(eqn.outvars, inlined[0].outvars, strict=True))
    pairs += [(now[send], now[receive]) for send, receive in pairs_of(jaxpr).items()]
    return Part(jaxpr.invars, equations, [renamed(v, names) for v in jaxpr.outvars], pairs, jaxpr.constvars), scans


def _inline(part: Part, scans: list[_Scan], names: dict[Any, Any]) -> tuple[Part, list[_Scan]]:
    """Give all results other names, and what is taken from outside those that it has there."""
    now: dict[int, Any] = {}
    for eqn in part.eqns:
        names.update((v, _jax.new_variable(v.aval)) for v in eqn.outvars)
        now[id(eqn)] = replaced(eqn, names)
    pairs = [(now[id(send)], now[id(receive)]) for send, receive in part.pairs]
    scans = [_Scan(now[id(scan.first)], now[id(scan.second)], replaced(scan.whole, names)) for scan in scans]
    return Part((), [*now.values()], [renamed(v, names) for v in part.outvars], pairs), scans


def _split_scan(eqn) -> tuple[Any, Any] | None:
    """Return a scan without sums, and one of the sums and what depends on them; None if other communication does."""
    jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])
    body, _ = _expose_sums(jaxpr)
    if not any(map(_is_sum, body.eqns)):
        return None
    num_consts, num_carry = _jax.scan_counts(eqn.params)
    fixed, carries, xs = _jax.in_three(body.invars, num_consts, num_carry)
    late = _depend_on_sums(body, carries)
    second = [step for step in body.eqns if _is_sum(step) or any(_in(v, late) for v in uses(step))]
    if any(communicates(step) and not _is_sum(step) for step in second):
        return None
    first = [step for step in body.eqns if not any(step is other for other in second)]
    is_late = [v in late for v in carries] + [_in(v, late) for v in body.outvars[num_carry:]]
    # What the second needs of the first, in every step.
    used = [*(v for step in second for v in uses(step)), *those(body.outvars, is_late)]
    made = {*those(carries, is_late[:num_carry], False), *(v for step in first for v in step.outvars)}
    passed = [v for v in dict.fromkeys(v for v in used if not is_literal(v)) if v in made]
    stacked = [_jax.new_variable(_jax.stacked(v.aval, eqn.params["length"])) for v in passed]
    operands_fixed, init, operands_xs = _jax.in_three(eqn.invars, num_consts, num_carry)

    def scan(steps, pairs, mine: bool, more_xs, more_operands, more_outs, more_results):
        chosen = is_late[:num_carry]
        params = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        params |= {"num_consts": num_consts, "num_carry": chosen.count(mine), "of_sums": mine}
        body_in = [*fixed, *those(carries, chosen, mine), *xs, *more_xs]
        results = [*those(body.outvars, is_late, mine), *more_outs]
        params["jaxpr"] = Part(body_in, steps, results, pairs, body.constvars, consts)
        invars = [*operands_fixed, *those(init, chosen, mine), *operands_xs, *more_operands]
        return eqn.replace(invars=invars, outvars=[*those(eqn.outvars, is_late, mine), *more_results], params=params)

    return scan(first, body.pairs, False, (), (), passed, stacked), scan(second, (), True, passed, stacked, (), ())


def _depend_on_sums(body: Part, carries: Sequence[Any]) -> set[Any]:
    """What depends on sums of its own or of an earlier step."""
    late: set[Any] = set()
    count = -1
    while count != len(late):
        count = len(late)
        for step in body.eqns:
            if _is_sum(step) or any(_in(v, late) for v in uses(step)):
                late.update(step.outvars)
        late.update(before for before, after in zip(carries, body.outvars, strict=False) if _in(after, late))
    return late


def _in(atom, variables: set[Any]) -> bool:
    return not is_literal(atom) and atom in variables
