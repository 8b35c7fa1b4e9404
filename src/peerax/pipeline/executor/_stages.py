"""A stage: its forward, its backward, and both halves of that, with what is kept in between.

The derivative of a stage is traced once. What its forward leaves for the backward is then known as variables, and for
each it can be said where it comes from: weights, and what follows from them alone, are there anyway and are not kept;
the input of the stage is kept where it arrived; the rest is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from peerax import _jax
from peerax.pipeline.executor._scans import with_scans_in_two
from peerax.pipeline.executor._split import flattened, needed_for, read_by, run
from peerax.pipeline.executor._tables import Keeps
from peerax.pipeline.executor._trees import floating, gradient_like, with_floating, zeros

Leaves = list[Any]


@dataclass(frozen=True)
class Stage:
    """What a stage does. Weights, x and context (what depends on the microbatch only) are those of one microbatch.

    Args:
        forward: (weights, x, context) -> (y, aux, kept for the input, kept for both halves).
        backward: (weights, x, context, kept, kept, dy) -> (gradient of the weights, gradient of x).
        input_half: the same operands -> (gradient of x, kept for the other half).
        weights_half: (weights, x, context, kept for both, dy, kept by the first half) -> gradient of the weights.
        y, aux: types of the results.
        input, both, between: types of what is kept: for the half for the input only, for both, and by it for the other.
        keeps: until when x and dy are needed.
    """

    forward: Callable[..., Any]
    y: Any
    aux: Any
    backward: Callable[..., Any] | None = None
    input_half: Callable[..., Any] | None = None
    weights_half: Callable[..., Any] | None = None
    input: Leaves = field(default_factory=list)
    both: Leaves = field(default_factory=list)
    between: Leaves = field(default_factory=list)
    keeps: Keeps = Keeps("F", "B")


def stage(fn: Callable[..., Any], weights: Any, x: Any, context: Any, *, split: bool) -> Stage:
    """Trace a stage.

    Args:
        fn: (weights, x, context) -> (y, aux).
        weights, x, context: examples; only their types matter.
        split: whether there are backwards in halves.
    """
    return _Traced(fn, weights, x, context, split).stage()


class _Traced:
    def __init__(self, fn, weights, x, context, split) -> None:
        self.fn, self.split = fn, split
        self.example = weights, x, context
        self._trace_forward()
        self._trace_backward()
        self._classify()

    def _trace_forward(self) -> None:
        def forward(weights, x, context):
            def differentiated(weights, moving):
                y, aux = self.fn(weights, with_floating(x, moving), context)
                return floating(y), (y, aux)

            _, pull, (y, aux) = jax.vjp(differentiated, weights, floating(x), has_aux=True)
            left, self.pull_tree = jax.tree.flatten(pull)
            return (y, aux), left

        closed, shapes = jax.make_jaxpr(forward, return_shape=True)(*self.example)
        self.forward_jaxpr = flattened(closed, jax.tree.leaves(self.example))
        self.result_tree = jax.tree.structure(shapes[0])
        counts = [len(jax.tree.leaves(part)) for part in self.example]
        self.weight_vars, self.x_vars, self.context_vars = _jax.in_three(
            self.forward_jaxpr.jaxpr.invars, counts[0], counts[1]
        )
        split_at = self.result_tree.num_leaves
        outvars = self.forward_jaxpr.jaxpr.outvars
        self.results, self.left = outvars[:split_at], outvars[split_at:]
        avals = self.forward_jaxpr.out_avals
        self.y, self.aux = jax.tree.unflatten(self.result_tree, avals[:split_at])
        self.left_avals = avals[split_at:]
        self.consts = dict(zip(self.forward_jaxpr.jaxpr.constvars, self.forward_jaxpr.consts, strict=True))

    def _trace_backward(self) -> None:
        def backward(left, dy):
            return jax.tree.unflatten(self.pull_tree, left)(dy)

        left = [zeros(aval) for aval in self.left_avals]
        dy = [zeros(aval) for aval in floating(self.y)]
        traced = jax.make_jaxpr(backward)(left, dy)
        self.backward_jaxpr = flattened(traced, [*left, *dy])
        if self.split:
            of_x = [number >= len(self.weight_vars) for number in range(len(self.backward_jaxpr.out_avals))]
            self.backward_jaxpr = with_scans_in_two(self.backward_jaxpr, of_x, [*left, *dy])
        jaxpr = self.backward_jaxpr.jaxpr
        self.backward_consts = dict(zip(jaxpr.constvars, self.backward_jaxpr.consts, strict=True))
        self.left_in, self.dy_in = jaxpr.invars[: len(self.left)], jaxpr.invars[len(self.left) :]
        count = len(self.weight_vars)
        self.dw_out, self.dx_out = jaxpr.outvars[:count], jaxpr.outvars[count:]

    def _classify(self) -> None:
        """Say for each value that the forward left whether it is kept, and for which half."""
        jaxpr = self.forward_jaxpr.jaxpr
        here = {*self.weight_vars, *self.context_vars, *jaxpr.constvars}
        # What follows from weights and constants alone is computed again; what follows from keys is kept.
        of_weights = {*self.weight_vars, *jaxpr.constvars}
        self.again = []
        for eqn in jaxpr.eqns:
            if not eqn.effects and read_by([eqn]) <= of_weights:
                of_weights |= set(eqn.outvars)
                self.again.append(eqn)
        wanted = {v for v in self.left if not isinstance(v, _jax.Literal)} & of_weights
        needed = needed_for(_Equations(self.again), wanted)
        self.again = [eqn for eqn, yes in zip(self.again, needed, strict=True) if yes]

        backward = self.backward_jaxpr.jaxpr
        first = needed_for(backward, self.dx_out if self.split else backward.outvars)
        self.first = [eqn for eqn, yes in zip(backward.eqns, first, strict=True) if yes]
        second = needed_for(backward, self.dw_out)
        self.second = [eqn for eqn, yes, done in zip(backward.eqns, second, first, strict=True) if yes and not done]
        in_second = read_by(self.second, self.dw_out) if self.split else set()
        made = {v for eqn in self.first for v in eqn.outvars}
        self.between = [v for v in dict.fromkeys(_ordered(in_second, self.first)) if v in made]

        free = here | of_weights | set(self.x_vars)
        kept: dict[Any, str] = {}
        x_until = "F"
        for left, used in zip(self.left, self.left_in, strict=True):
            if isinstance(left, _jax.Literal):
                continue
            late = used in in_second
            if left in self.x_vars:
                x_until = "W" if late or x_until == "W" else "B"
            elif left not in free and kept.get(left) != "both":
                kept[left] = "both" if late else "input"
        self.kept_input = [v for v, ring in kept.items() if ring == "input"]
        self.kept_both = [v for v, ring in kept.items() if ring == "both"]
        self.keeps = Keeps(x_until, "W" if set(self.dy_in) & in_second else "B")

    def stage(self) -> Stage:
        return Stage(
            self._forward,
            self.y,
            self.aux,
            self._backward,
            self._input_half,
            self._weights_half,
            [v.aval for v in self.kept_input],
            [v.aval for v in self.kept_both],
            [v.aval for v in self.between],
            self.keeps,
        )

    def _operands(self, weights, x, context) -> dict[Any, Any]:
        leaves = jax.tree.leaves((weights, x, context))
        return self.consts | dict(zip([*self.weight_vars, *self.x_vars, *self.context_vars], leaves, strict=True))

    def _forward(self, weights, x, context):
        outputs = [*self.results, *self.kept_input, *self.kept_both]
        env = self._operands(weights, x, context)
        values = run(self.forward_jaxpr.jaxpr.eqns, env, outputs)
        results, kept_input, kept_both = _jax.in_three(values, len(self.results), len(self.kept_input))
        return *jax.tree.unflatten(self.result_tree, results), kept_input, kept_both

    def _left(self, weights, x, context, kept: dict[Any, Any]) -> dict[Any, Any]:
        """Return the values of the variables of the backward that the forward left, as far as they are here."""
        env = self._operands(weights, x, context)
        made = [v for eqn in self.again for v in eqn.outvars]
        env |= zip(made, run(self.again, env, made), strict=True)
        env |= kept
        known = dict(self.backward_consts)
        for left, used in zip(self.left, self.left_in, strict=True):
            if isinstance(left, _jax.Literal):
                known[used] = left.val
            elif left in env:
                known[used] = env[left]
        return known

    def _with_dy(self, known, dy):
        return known | dict(zip(self.dy_in, floating(dy), strict=True))

    def _backward(self, weights, x, context, kept_input, kept_both, dy):
        kept = dict(zip([*self.kept_input, *self.kept_both], [*kept_input, *kept_both], strict=True))
        env = self._with_dy(self._left(weights, x, context, kept), dy)
        jaxpr = self.backward_jaxpr.jaxpr
        made = run(jaxpr.eqns, env, jaxpr.outvars)
        count = len(self.dw_out)
        return self._as_weights(made[:count]), gradient_like(x, made[count:])

    def _input_half(self, weights, x, context, kept_input, kept_both, dy):
        kept = dict(zip([*self.kept_input, *self.kept_both], [*kept_input, *kept_both], strict=True))
        env = self._with_dy(self._left(weights, x, context, kept), dy)
        made = run(self.first, env, [*self.dx_out, *self.between])
        return gradient_like(x, made[: len(self.dx_out)]), made[len(self.dx_out) :]

    def _weights_half(self, weights, x, context, kept_both, dy, between):
        kept = dict(zip(self.kept_both, kept_both, strict=True))
        env = self._with_dy(self._left(weights, x, context, kept), dy)
        env |= zip(self.between, between, strict=True)
        return self._as_weights(run(self.second, env, self.dw_out))

    def _as_weights(self, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(jax.tree.structure(self.example[0]), leaves)


@dataclass(frozen=True)
class _Equations:
    """Equations without a jaxpr."""

    eqns: list[Any]


def _ordered(variables: set[Any], equations: Sequence[Any]) -> list[Any]:
    """Return variables in the order in which equations make them."""
    return [v for eqn in equations for v in eqn.outvars if v in variables]
