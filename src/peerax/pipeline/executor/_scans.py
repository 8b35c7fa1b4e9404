"""A scan in a backward becomes two: what the gradient of the input needs, and the rest.

The second one runs over what the first one made in each round, so that nothing is computed twice. A stage that scans
over its layers has its products for the weights of all layers in the second one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from peerax import _jax
from peerax.pipeline.executor._split import flattened, needed_for, read_by, run
from peerax.pipeline.executor._trees import zeros


def with_scans_in_two(closed: Any, wanted: Sequence[bool], examples: Sequence[Any]) -> Any:
    """Return a closed jaxpr without calls in which each scan is in two.

    Args:
        closed: the same, with whole scans.
        wanted: for each result whether the first halves are to have what it needs.
        examples: operands; only their types matter.
    """
    jaxpr = closed.jaxpr
    first = _first_halves(jaxpr, [v for v, yes in zip(jaxpr.outvars, wanted, strict=True) if yes])
    if not first:
        return closed

    def apply(eqn, values):
        return first[eqn.outvars[0]].apply(values) if _is_scan(eqn) and eqn.outvars[0] in first else None

    def again(*operands):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *operands], strict=True))
        return run(jaxpr.eqns, env, jaxpr.outvars, apply)

    return jax.make_jaxpr(again)(*examples)


def _is_scan(eqn: Any) -> bool:
    return eqn.primitive.name == "scan"


def _first_halves(jaxpr: Any, wanted: Sequence[Any]) -> dict[Any, "_Halves"]:
    """Return the scans of which a part is needed for these variables, by their first results."""
    variables = read_by((), wanted)
    found = {}
    for eqn in reversed(jaxpr.eqns):
        needed = [v in variables for v in eqn.outvars]
        if not any(needed):
            continue
        if not _is_scan(eqn) or all(needed):
            variables |= read_by([eqn])
            continue
        halves = _Halves.of(eqn, needed)
        found[eqn.outvars[0]] = halves
        variables |= read_by((), [atom for atom, yes in zip(eqn.invars, halves.reads, strict=True) if yes])
    return found


@dataclass(frozen=True)
class _Halves:
    """A scan, and what is in its first half.

    Args:
        eqn: the scan.
        body: its body without calls.
        carried: for each value that is carried whether it is in the first half.
        first, second: the equations of both halves.
        crossing: variables of the first half that the second one reads.
        reads: for each operand of the scan whether the first half reads it.
    """

    eqn: Any
    body: Any
    carried: list[bool]
    first: list[Any]
    second: list[Any]
    crossing: list[Any]
    reads: list[bool]

    @classmethod
    def of(cls, eqn: Any, needed: Sequence[bool]) -> "_Halves":
        """Find both halves, if the first one is to have these results."""
        body = eqn.params["jaxpr"]
        body = flattened(body, [zeros(v.aval) for v in body.jaxpr.invars])
        jaxpr = body.jaxpr
        consts, carry = _jax.scan_counts(eqn.params)
        carry_in = jaxpr.invars[consts : consts + carry]
        needed = list(needed)
        while True:
            results = [v for v, yes in zip(jaxpr.outvars, needed, strict=True) if yes]
            in_first = needed_for(jaxpr, results)
            first = [e for e, yes in zip(jaxpr.eqns, in_first, strict=True) if yes]
            read = read_by(first, results)
            carried = [yes or v in read for v, yes in zip(carry_in, needed[:carry], strict=True)]
            if carried == needed[:carry]:
                break
            needed[:carry] = carried
        rest = [v for v, yes in zip(jaxpr.outvars, needed, strict=True) if not yes]
        in_second = needed_for(jaxpr, rest)
        second = [e for e, yes, done in zip(jaxpr.eqns, in_second, in_first, strict=True) if yes and not done]
        made = {v for e in first for v in e.outvars} | {v for v, yes in zip(carry_in, carried, strict=True) if yes}
        crossing = [v for v in dict.fromkeys([*carry_in, *(v for e in first for v in e.outvars)]) if v in made]
        wanted = read_by(second, rest)
        reads = [
            v in read or (number >= consts and number < consts + carry and carried[number - consts])
            for number, v in enumerate(jaxpr.invars)
        ]
        return cls(eqn, body, carried, first, second, [v for v in crossing if v in wanted], reads)

    def apply(self, operands: Sequence[Any]) -> list[Any]:
        """Return the results of the scan, by way of two."""
        jaxpr = self.body.jaxpr
        counts = _jax.scan_counts(self.eqn.params)
        consts, carry, xs = _jax.in_three(operands, *counts)
        const_in, carry_in, xs_in = _jax.in_three(jaxpr.invars, *counts)
        carry_out, ys_out = jaxpr.outvars[: counts[1]], jaxpr.outvars[counts[1] :]
        fixed = dict(zip([*jaxpr.constvars, *const_in], [*self.body.consts, *consts], strict=True))
        # What is stacked of the first half is what its equations make; the other results are those of the second.
        known = read_by((), [v for e in self.first for v in e.outvars]) | {
            v for v, yes in zip(carry_in, self.carried, strict=True) if yes
        }
        early = [isinstance(v, _jax.Literal) or v in known for v in ys_out]

        def half(equations, mine, start, more_in, more, results):
            names = [v for v, yes in zip(carry_in, mine, strict=True) if yes]
            ends = [v for v, yes in zip(carry_out, mine, strict=True) if yes]

            def body(carried, sliced):
                env = fixed | dict(zip([*names, *xs_in, *more_in], [*carried, *sliced[0], *sliced[1]], strict=True))
                out = run(equations, env, [*ends, *results])
                return out[: len(ends)], out[len(ends) :]

            params = self.eqn.params
            return lax.scan(
                body, start, (xs, more), length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
            )

        other = [not yes for yes in self.carried]
        early_ys = [v for v, yes in zip(ys_out, early, strict=True) if yes]
        late_ys = [v for v, yes in zip(ys_out, early, strict=True) if not yes]
        start = [value for value, yes in zip(carry, self.carried, strict=True) if yes]
        ends, made = half(self.first, self.carried, start, [], [], [*early_ys, *self.crossing])
        made_ys, more = made[: len(early_ys)], made[len(early_ys) :]
        start = [value for value, yes in zip(carry, other, strict=True) if yes]
        other_ends, other_ys = half(self.second, other, start, self.crossing, more, late_ys)
        takes = {True: iter(ends), False: iter(other_ends)}
        of_ys = {True: iter(made_ys), False: iter(other_ys)}
        return [*(next(takes[yes]) for yes in self.carried), *(next(of_ys[yes]) for yes in early)]
