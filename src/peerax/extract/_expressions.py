"""Values that are known before the run: how to compute them from a rank's place in the mesh and the loops around it.

An expression is made of equations of a jaxpr, and of four kinds of leaves: constants, the rank's index, the element of
a scan's input, and what a loop carries. JAX computes them, for all ranks and all iterations at once.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from peerax import _jax

MOST_ITERATIONS = 10_000_000


@dataclass(eq=False)
class Loop:
    """A loop whose iterations are known before the run.

    Args:
        length: the most iterations that a rank runs.
        reverse: whether it takes the elements of its inputs from the last to the first.
        carries: by position, the first value of what it carries, and the next one.
        settled: whether length and carries are known by now.
        awaited: whether a loop inside could not be computed before that.
    """

    length: int
    reverse: bool = False
    carries: "dict[int, tuple[Expression, Expression]]" = field(default_factory=dict)
    settled: bool = False
    awaited: bool = False


NO_LOOPS: frozenset[Loop] = frozenset()


@dataclass(frozen=True, eq=False)
class Constant:
    """A value that is part of the program."""

    value: Any
    loops = NO_LOOPS
    operands = ()


@dataclass(frozen=True, eq=False)
class AxisIndex:
    """The index of the rank along axes."""

    axes: tuple
    loops = NO_LOOPS
    operands = ()


class _Computed:
    """Depends on the loops that its operands depend on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loops", NO_LOOPS.union(*(operand.loops for operand in self.operands)))


@dataclass(frozen=True, eq=False)
class Results(_Computed):
    """All results of an equation."""

    equation: Any
    operands: "tuple[Expression, ...]"
    loops: frozenset[Loop] = NO_LOOPS


@dataclass(frozen=True, eq=False)
class Result(_Computed):
    """One result of an equation."""

    operands: tuple[Results]
    position: int
    loops: frozenset[Loop] = NO_LOOPS


@dataclass(frozen=True, eq=False)
class Choice(_Computed):
    """What one branch gives; the operands are its number, and what each of them gives."""

    operands: "tuple[Expression, ...]"
    loops: frozenset[Loop] = NO_LOOPS


@dataclass(frozen=True, eq=False)
class Reduced(_Computed):
    """What psum, pmax or pmin give, along axes."""

    operands: "tuple[Expression]"
    name: str
    axes: tuple
    loops: frozenset[Loop] = NO_LOOPS


@dataclass(frozen=True, eq=False)
class Shard(_Computed):
    """The rank's part of an array; axes are the mesh axes that each dimension is split along."""

    operands: "tuple[Expression]"
    axes: tuple[tuple, ...]
    loops: frozenset[Loop] = NO_LOOPS


@dataclass(frozen=True, eq=False)
class Element:
    """The element of a scan's input for the iteration."""

    operands: "tuple[Expression]"
    loop: Loop

    @property
    def loops(self) -> frozenset[Loop]:
        return self.operands[0].loops | {self.loop}


@dataclass(frozen=True, eq=False)
class Carry:
    """What a loop carries into an iteration; outer are the loops that its first value depends on."""

    loop: Loop
    position: int
    outer: frozenset[Loop]
    operands = ()

    @property
    def loops(self) -> frozenset[Loop]:
        return self.outer | {self.loop}


@dataclass(frozen=True, eq=False)
class Final:
    """What a scan has carried when it ends."""

    loop: Loop
    position: int
    loops: frozenset[Loop]
    operands = ()


@dataclass(frozen=True, eq=False)
class Stack:
    """What the iterations of a scan give, one after another in the order of its inputs."""

    element: "Expression"
    loop: Loop
    operands = ()

    @property
    def loops(self) -> frozenset[Loop]:
        return self.element.loops - {self.loop}


Expression = Constant | AxisIndex | Results | Result | Choice | Reduced | Shard | Element | Carry | Final | Stack


@dataclass(frozen=True)
class Place:
    """Where a rank is: along each axis, and in each loop.

    Args:
        indices: index and size by axis.
        counters: the number of the iteration by loop.
        carried: what loops carry now, inside the computation of what they carry.
    """

    indices: dict[Any, tuple[Any, int]]
    counters: dict[Loop, Any] = field(default_factory=dict)
    carried: dict[Loop, dict[int, Any]] = field(default_factory=dict)
    stacks: dict[tuple[Loop, int], Any] = field(default_factory=dict)

    def inside(self, loop: Loop, counter: Any, carried: dict[int, Any] | None = None) -> "Place":
        """Return the place in an iteration of a loop."""
        more = self.carried if carried is None else {**self.carried, loop: carried}
        return Place(self.indices, {**self.counters, loop: counter}, more)

    def index(self, axes: Iterable) -> Any:
        """Return the index along several axes, the last of them fastest."""
        index = jnp.int32(0)
        for axis in axes:
            here, size = self.indices[axis]
            index = index * size + here
        return index


def evaluate(wanted: Sequence[tuple[Expression, Sequence[Loop]]], sizes: dict[Any, int]) -> list[np.ndarray]:
    """Return the value of each expression by rank and by iteration of its loops, the outermost first.

    Args:
        wanted: expressions of scalars, each with the loops that it depends on.
        sizes: by axis, in the order of the mesh, the number of ranks.
    """

    def on_rank(place):
        return [_over(expression, tuple(loops), place) for expression, loops in wanted]

    return _on_all_ranks(on_rank, sizes)


def count_iterations(goes_on: Expression, loop: Loop, around: Sequence[Loop], sizes: dict[Any, int]) -> np.ndarray:
    """Return how often each rank runs a while loop, by iteration of the loops around it.

    Where that is MOST_ITERATIONS, the loop would have gone on.
    """

    def count(place):
        wanted = _needed([goes_on], loop)

        def test(state):
            number, carried = state
            (again,) = _compute([goes_on], place.inside(loop, number, carried))
            return jnp.any(again) & (number < MOST_ITERATIONS)

        def step(state):
            number, carried = state
            return number + 1, _step(loop, wanted, place.inside(loop, number, carried))

        return lax.while_loop(test, step, (jnp.int32(0), _first(loop, wanted, place)))[0]

    return _on_all_ranks(lambda place: _map_over(count, tuple(around), place), sizes)


def _on_all_ranks(function, sizes: dict[Any, int]) -> Any:
    """Return the results of a function of the place, by rank."""

    def on_rank(here):
        return function(Place({axis: (here[axis], size) for axis, size in sizes.items()}))

    # Each axis has its name, for an axis_index inside of an equation.
    for axis in reversed(sizes):
        on_rank = jax.vmap(on_rank, ({other: 0 if other == axis else None for other in sizes},), axis_name=axis)
    with _jax.by_itself():
        results = jax.jit(on_rank)({axis: np.arange(size, dtype=np.int32) for axis, size in sizes.items()})
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[len(sizes) :]), results)


def _over(expression: Expression, loops: tuple[Loop, ...], place: Place) -> Any:
    return _map_over(lambda inner: _compute([expression], inner)[0], loops, place)


def _map_over(function, loops: tuple[Loop, ...], place: Place) -> Any:
    if not loops:
        return function(place)
    first, *rest = loops
    return jax.vmap(lambda counter: _map_over(function, tuple(rest), place.inside(first, counter)))(
        jnp.arange(first.length, dtype=jnp.int32)
    )


def _compute(wanted: Sequence[Expression], place: Place) -> list[Any]:
    values: dict[Expression, Any] = {}
    for node in _in_order(wanted):
        values[node] = _value(node, values, place)
    return [values[node] for node in wanted]


def _in_order(wanted: Sequence[Expression]) -> list[Expression]:
    """All that is needed, operands first; they may be nested deeper than Python can call."""
    ordered: dict[Expression, None] = {}
    todo = [(node, False) for node in reversed(wanted)]
    while todo:
        node, ready = todo.pop()
        if ready:
            ordered[node] = None
        elif node not in ordered:
            todo.append((node, True))
            todo += [(operand, False) for operand in node.operands]
    return list(ordered)


def _value(node: Expression, values: dict[Expression, Any], place: Place) -> Any:
    operands = [values[operand] for operand in node.operands]
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, AxisIndex):
        return place.index(node.axes)
    if isinstance(node, Results):
        return _jax.rebind(node.equation, operands)
    if isinstance(node, Result):
        return operands[0][node.position]
    if isinstance(node, Choice):
        which, *results = operands
        return lax.select_n(jnp.clip(which, 0, len(results) - 1), *map(jnp.asarray, results))
    if isinstance(node, Reduced):
        return getattr(lax, node.name)(jnp.asarray(operands[0]), node.axes)
    if isinstance(node, Shard):
        return _shard(operands[0], node.axes, place)
    if isinstance(node, Element):
        counter = place.counters[node.loop]
        index = node.loop.length - 1 - counter if node.loop.reverse else counter
        return lax.dynamic_index_in_dim(jnp.asarray(operands[0]), index, keepdims=False)
    if isinstance(node, Stack):
        stack = _over(node.element, (node.loop,), place)
        return lax.rev(stack, (0,)) if node.loop.reverse else stack
    if isinstance(node, Carry) and node.loop in place.carried:
        return place.carried[node.loop][node.position]
    stack = _stack(node.loop, node.position, place)
    at = place.counters[node.loop] if isinstance(node, Carry) else node.loop.length
    return lax.dynamic_index_in_dim(stack, at, keepdims=False)


def _shard(x, axes: tuple[tuple, ...], place: Place):
    x = jnp.asarray(x)
    for dim, names in enumerate(axes):
        if names:
            length = x.shape[dim] // math.prod(place.indices[name][1] for name in names)
            x = lax.dynamic_slice_in_dim(x, place.index(names) * length, length, dim)
    return x


def _stack(loop: Loop, position: int, place: Place) -> Any:
    """What a loop carries into each iteration, and what it ends with."""
    key = loop, position
    if key not in place.stacks:
        wanted = _needed([Carry(loop, position, NO_LOOPS)], loop)

        def step(carried, counter):
            return _step(loop, wanted, place.inside(loop, counter, carried)), carried[position]

        last, before = lax.scan(step, _first(loop, wanted, place), jnp.arange(loop.length, dtype=jnp.int32))
        place.stacks[key] = jnp.concatenate([before, last[position][None]])
    return place.stacks[key]


def _first(loop: Loop, wanted: Sequence[int], place: Place) -> dict[int, Any]:
    values = _compute([loop.carries[i][0] for i in wanted], place)
    return {i: jnp.asarray(x) for i, x in zip(wanted, values, strict=True)}


def _step(loop: Loop, wanted: Sequence[int], place: Place) -> dict[int, Any]:
    values = _compute([loop.carries[i][1] for i in wanted], place)
    before = place.carried[loop]
    return {i: jnp.asarray(x, before[i].dtype) for i, x in zip(wanted, values, strict=True)}


def _needed(wanted: Iterable[Expression], loop: Loop) -> list[int]:
    """The positions of what a loop carries that expressions depend on, in this iteration or in an earlier one."""
    positions: set[int] = set()
    todo = list(wanted)
    while todo:
        found = _carries(todo.pop(), loop) - positions
        positions |= found
        todo += [loop.carries[i][1] for i in found]
    return sorted(positions)


def _carries(expression: Expression, loop: Loop) -> set[int]:
    found: set[int] = set()
    seen: set[Loop] = {loop}
    todo = [expression]
    while todo:
        for node in _in_order([todo.pop()]):
            if isinstance(node, (Carry, Final)):
                if node.loop is loop:
                    found.add(node.position)
                elif node.loop not in seen:  # what another loop carries may depend on it
                    seen.add(node.loop)
                    todo += [each for carry in node.loop.carries.values() for each in carry]
            elif isinstance(node, Stack):
                todo.append(node.element)
    return found
