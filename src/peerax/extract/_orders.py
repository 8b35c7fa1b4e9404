"""The orders in which the steps of a program may run where only data fix it, as in a program of jax.lax.

XLA compiles one schedule for all ranks, in which an operation comes behind those whose results it uses, and is free
otherwise. Loops and branches are operations there, with a schedule of their own; calls are inlined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice, product
from operator import or_

from peerax import _jax
from peerax.extract._steps import Chosen, Repeated, Step
from peerax.extract._values import Value

_MOST_INSIDE = 100


@dataclass
class Order:
    """Notes which steps depend on which.

    Args:
        bits: the bit of each step, by its identity.
        behind: the bits of the steps that it comes behind.
        cut: whether a loop or branch had more orders inside than are tried.
    """

    bits: dict[int, int] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)
    cut: bool = False
    _kept: list[Step] = field(default_factory=list)  # identities must not be used again

    def note(self, eqn, values: Sequence[Value], results: list[Value], steps: Sequence[Step]) -> list[Value]:
        """Take note of the steps that an equation has added; return its results, which depend on them."""
        new: list[Step] = []
        for step in reversed(steps):
            if id(step) in self.bits:
                break
            new.append(step)
        if not new and eqn.primitive.name not in ("scan", "while", "cond") and _jax.jaxprs_in(eqn.params):
            return results  # what a call does was noted inside
        before = _all_behind(values)
        for step in reversed(new):  # a condition that communicates comes before its loop
            self._kept.append(step)
            self.bits[id(step)] = 1 << len(self.bits)
            self.behind[id(step)] = before
            before |= self.bits[id(step)]
        return [replace(result, behind=before) for result in results]


def _all_behind(values: Sequence[Value]) -> int:
    return reduce(or_, (value.behind for value in values), 0)


def orders(steps: Sequence[Step], order: Order, backwards: bool = False) -> Iterator[list[Step]]:
    """Yield the steps in each order that the data allow, inside loops and branches too.

    The first one is as they are written, or as far from that as possible.
    """
    inner = [_first(_variants(step, order, backwards), order) for step in steps]
    for arranged in _arrangements(steps, order, backwards):
        for chosen in product(*(inner[i] for i in arranged)):
            yield list(chosen)


def _variants(step: Step, order: Order, backwards: bool) -> Iterator[Step]:
    if isinstance(step, Repeated):
        for body in orders(step.body, order, backwards):
            yield replace(step, body=body)
    elif isinstance(step, Chosen):
        options = [_first(orders(branch, order, backwards), order) for branch in step.branches]
        for branches in product(*options):
            yield replace(step, branches=list(branches))
    else:
        yield step


def _first(options: Iterator, order: Order) -> list:
    found = list(islice(options, _MOST_INSIDE + 1))
    order.cut = order.cut or len(found) > _MOST_INSIDE
    return found[:_MOST_INSIDE]


def _arrangements(steps: Sequence[Step], order: Order, backwards: bool) -> Iterator[list[int]]:
    """Yield the positions of the steps in each order that is possible."""
    bits = [order.bits[id(step)] for step in steps]
    here = reduce(or_, bits, 0)
    behind = [order.behind[id(step)] & here for step in steps]
    positions = range(len(steps))[::-1] if backwards else range(len(steps))
    # Without recursion: there may be more steps than Python can nest calls.
    chosen: list[int] = []
    done = 0
    options = [iter(positions)]
    while options:
        for i in options[-1]:
            if not done & bits[i] and not behind[i] & ~done:
                chosen.append(i)
                done |= bits[i]
                options.append(iter(positions))
                break
        else:
            if len(chosen) == len(steps):
                yield list(chosen)
            options.pop()
            if chosen:
                done &= ~bits[chosen.pop()]


def between(first: Sequence[Step], second: Sequence[Step]) -> Iterator[tuple[list[Step], Step, Step]]:
    """Yield the orders on a way from one order to another, and the two neighbours that changed places each time."""
    current = list(first)
    there = {_key(step): step for step in second}
    for i, step in enumerate(first):
        for changed, one, other in _between_inside(step, there[_key(step)]):
            current[i] = changed
            yield list(current), one, other
    place = {_key(step): i for i, step in enumerate(second)}
    for end in range(len(current) - 1, 0, -1):  # as bubbles rise
        for i in range(end):
            if place[_key(current[i])] > place[_key(current[i + 1])]:
                current[i], current[i + 1] = current[i + 1], current[i]
                yield list(current), current[i + 1], current[i]


def _between_inside(first: Step, second: Step) -> Iterator[tuple[Step, Step, Step]]:
    if isinstance(first, Repeated):
        for body, one, other in between(first.body, second.body):
            yield replace(first, body=body), one, other
    elif isinstance(first, Chosen):
        branches = list(first.branches)
        for i, (mine, theirs) in enumerate(zip(first.branches, second.branches, strict=True)):
            for body, one, other in between(mine, theirs):
                branches[i] = body
                yield replace(first, branches=list(branches)), one, other


def _key(step: Step) -> int:
    """The identity of a step, also with another order inside."""
    if isinstance(step, Repeated):
        return id(step.loop) if step.loop is not None else id(step.trip)
    return id(step.selector) if isinstance(step, Chosen) else id(step)


def free_pair(steps: Sequence[Step], order: Order) -> tuple[Step, Step] | None:
    """Return two neighbours that may change places, or None if the data fix the whole order."""
    for first, second in zip(steps, steps[1:], strict=False):
        if not order.behind[id(second)] & order.bits[id(first)]:
            return first, second
    for step in steps:
        inside = [step.body] if isinstance(step, Repeated) else step.branches if isinstance(step, Chosen) else []
        for body in inside:
            if (found := free_pair(body, order)) is not None:
                return found
    return None
