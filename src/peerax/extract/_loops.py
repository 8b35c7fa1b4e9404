"""Loops: what they carry, how often they run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerax import _jax
from peerax.extract._equations import site_of
from peerax.extract._expressions import (
    MOST_ITERATIONS,
    NO_LOOPS,
    Carry,
    Element,
    Final,
    Loop,
    Stack,
    count_iterations,
)
from peerax.extract._steps import Repeated, Scope
from peerax.extract._values import Value

if TYPE_CHECKING:
    from peerax.extract._walk import Walk


@dataclass
class _Carried:
    """What is so far known of one value that a loop carries: that grows until it is true of every iteration."""

    value: Value
    known: bool
    axes: frozenset
    doubtful: frozenset
    outer: frozenset

    def inside(self, walk: "Walk", loop: Loop, position: int, fixed: bool) -> Value:
        if fixed:
            return self.value
        expression = Carry(loop, position, self.outer) if self.known else None
        return Value(walk.numbers.new(), self.axes, self.doubtful, expression)

    def grow(self, after: Value, loop: Loop) -> bool:
        """Add what is known after an iteration; return whether that was new."""
        before = self.known, self.axes, self.doubtful, self.outer
        self.known = self.known and after.expression is not None
        self.axes |= after.axes
        self.doubtful |= after.doubtful
        if self.known:
            self.outer |= after.expression.loops - {loop}
        return before != (self.known, self.axes, self.doubtful, self.outer)


def scan(walk: "Walk", eqn, values: Sequence[Value], scope: Scope, steps: list) -> list[Value]:
    """Walk through a scan."""
    jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])
    fixed, init, xs = _jax.in_three(values, *_jax.scan_counts(eqn.params))
    length, reverse = eqn.params["length"], eqn.params["reverse"]
    invars = jaxpr.invars[len(fixed) : len(fixed) + len(init)]

    def body(loop, carried):
        elements = [_element(walk, x, loop) for x in xs]
        inner = replace(scope, loops=(*scope.loops, loop))
        return walk.run(jaxpr, consts, [*fixed, *carried, *elements], inner)

    loop = Loop(length, reverse)
    inside, results, states = _settle(walk, loop, init, invars, jaxpr.outvars, body, known=True)
    loop.settled = True
    if loop.awaited:
        inside, results, states = _settle(walk, loop, init, invars, jaxpr.outvars, body, known=True)
    steps.append(Repeated(length, inside, site_of(eqn), loop, scope.ranks))
    final = []
    for i, (before, state) in enumerate(zip(init, states, strict=True)):
        if jaxpr.outvars[i] is invars[i]:
            final.append(before)
            continue
        expression = Final(loop, i, state.outer) if state.known else None
        final.append(Value(walk.numbers.new(), state.axes, state.doubtful, expression))
    return [*final, *(_stacked(walk, y, loop) for y in results[len(init) :])]


def _element(walk: "Walk", x: Value, loop: Loop) -> Value:
    """What an iteration has of a scan's input."""
    expression = None if x.expression is None else Element((x.expression,), loop)
    parts = None
    if x.parts is not None and not any(x.parts.axes[:1]):  # what a rank has is not split along the iterations
        parts = replace(x.parts, axes=x.parts.axes[1:], value=_element(walk, x.parts.value, loop))
    return Value(walk.numbers.new(), x.axes, x.doubtful, expression, parts=parts)


def _stacked(walk: "Walk", y: Value, loop: Loop) -> Value:
    """What all iterations of a scan give."""
    expression = None if y.expression is None else Stack(y.expression, loop)
    parts = None
    if y.parts is not None:
        parts = replace(y.parts, axes=((), *y.parts.axes), value=_stacked(walk, y.parts.value, loop))
    return Value(walk.numbers.new(), y.axes, y.doubtful, expression, parts=parts)


def while_loop(walk: "Walk", eqn, values: Sequence[Value], scope: Scope, steps: list) -> list[Value]:
    """Walk through a while loop; its condition may communicate as well."""
    params = eqn.params
    test, test_consts = _jax.open_jaxpr(params["cond_jaxpr"])
    advance, advance_consts = _jax.open_jaxpr(params["body_jaxpr"])
    for_test, for_body, init = _jax.in_three(values, params["cond_nconsts"], params["body_nconsts"])
    invars = advance.invars[len(for_body) :]
    conditions: list[tuple[list, Value]] = []

    def settle(loop: Loop, known: bool):
        def body(loop, carried):
            # Whether all ranks go on equally long is known only when it has been walked through.
            inner = replace(scope, loops=(*scope.loops, loop if known else None), apart=scope.apart | scope.axes)
            asked, (goes_on,) = walk.run(test, test_consts, [*for_test, *carried], inner)
            inside, results = walk.run(advance, advance_consts, [*for_body, *carried], inner)
            conditions[:] = [(asked, goes_on)]
            return inside, results

        return _settle(walk, loop, init, invars, advance.outvars, body, known)

    loop = Loop(MOST_ITERATIONS)
    inside, _, states = settle(loop, known=True)
    trip = _trip(walk, conditions[0][1], loop, scope)
    if trip is None:
        loop = Loop(MOST_ITERATIONS)
        inside, _, states = settle(loop, known=False)
    else:
        loop.length, loop.settled = int(trip.max(initial=0)), True
        if loop.awaited:
            inside, _, states = settle(loop, known=True)
    asked, goes_on = conditions[0]
    if trip is None:
        repeated = Repeated(
            Value(walk.numbers.new(), goes_on.axes, goes_on.doubtful),
            [*inside, *asked],
            site_of(eqn),
            None,
            scope.ranks,
        )
    else:
        around = _around(goes_on, loop, scope)
        repeated = Repeated(trip, [*inside, *asked], site_of(eqn), loop, scope.ranks, around)
    steps += asked
    steps.append(repeated)
    return [Value(walk.numbers.new(), state.axes | goes_on.axes, state.doubtful | goes_on.doubtful) for state in states]


def _trip(walk: "Walk", goes_on: Value, loop: Loop, scope: Scope) -> np.ndarray | None:
    """How often a while loop runs, by rank and iteration of the loops around it; None if that is not known."""
    if goes_on.expression is None or scope.ranks is None:
        return None
    around = _around(goes_on, loop, scope)
    unsettled = [outer for outer in around if not outer.settled]
    for outer in unsettled:
        outer.awaited = True
    if unsettled:
        return None
    try:
        counted = count_iterations(goes_on.expression, loop, around, scope.ranks.lengths())
    except Exception:  # whatever JAX cannot compute here is not known
        return None
    return None if (counted >= MOST_ITERATIONS).any() else counted


def _around(goes_on: Value, loop: Loop, scope: Scope) -> tuple[Loop, ...]:
    return tuple(outer for outer in scope.loops if outer in goes_on.expression.loops - {loop})


def _settle(
    walk: "Walk",
    loop: Loop,
    init: Sequence[Value],
    invars: Sequence[Any],
    outvars: Sequence[Any],
    body: Callable,
    known: bool,
):
    """Walk through a body until what is known of the carried values holds in every iteration."""
    states = [
        _Carried(
            x,
            known and x.expression is not None,
            x.axes,
            x.doubtful,
            NO_LOOPS if x.expression is None else x.expression.loops,
        )
        for x in init
    ]
    unchanged = [after is before for before, after in zip(invars, outvars, strict=False)]
    while True:
        carried = [
            state.inside(walk, loop, i, fixed) for i, (state, fixed) in enumerate(zip(states, unchanged, strict=True))
        ]
        inside, results = body(loop, carried)
        grown = [
            not fixed and state.grow(after, loop)
            for state, after, fixed in zip(states, results, unchanged, strict=False)
        ]
        if not any(grown):
            break
    loop.carries = {
        i: (state.value.expression, results[i].expression)
        for i, state in enumerate(states)
        if state.known and not unchanged[i]
    }
    return inside, results, states
