"""What is known of a value before the run: how to compute it, or along which axes it may differ between ranks."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from peerax import _jax
from peerax.extract._expressions import Constant, Expression, Result, Results

NOWHERE: frozenset = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """Describe a value inside manual axes.

    Args:
        number: values with one number are equal, on each rank, in one iteration of the loops around.
        axes: mesh axes along which it may differ.
        doubtful: mesh axes along which nobody can say whether it differs.
        expression: how to compute it, or None if it depends on the data.
        behind: the steps that it depends on, as bits, where their order matters.
        parts: how it was put together from what ranks have.
    """

    number: int
    axes: frozenset = NOWHERE
    doubtful: frozenset = NOWHERE
    expression: Expression | None = None
    behind: int = 0
    parts: "Parts | None" = None


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """Describe an array outside of manual axes by what each rank has of it; split in the same way, that comes back.

    Args:
        mesh: names and sizes of the axes.
        axes: for each dimension, the axes that it is split along.
        value: of a rank.
    """

    mesh: tuple
    axes: tuple[tuple, ...]
    value: Value


class Numbers:
    """Gives values numbers: one and the same for what the same equation makes of the same operands."""

    def __init__(self) -> None:
        self._next = count()
        self._known: dict[Hashable, int] = {}
        self._kept: list[Any] = []  # identities must not be used again

    def new(self) -> int:
        return next(self._next)

    def of(self, *key: Any) -> int:
        """Return the number that belongs to a key."""
        try:
            return self._known.setdefault(key, self.new())
        except TypeError:  # some parameter cannot be compared
            return self.new()

    def constant(self, x: Any) -> Value:
        """Return the value of a constant of the program."""
        if isinstance(x, (bool, int, float)) or (hasattr(x, "ndim") and x.ndim == 0 and hasattr(x, "item")):
            number = self.of("literal", str(getattr(x, "dtype", type(x))), str(x))
        else:
            self._kept.append(x)
            number = self.of("constant", id(x))
        return Value(number, expression=Constant(x))

    def results(self, eqn, operands: Sequence[Value], here: tuple = ()) -> list[Value]:
        """Return the results of an equation that depend on nothing but its operands, and on where the rank is.

        here is a mesh and the axes along which the index is asked for, or empty.
        """
        first = self.of(eqn.primitive, tuple(eqn.params.items()), *here, tuple(operand.number for operand in operands))
        axes, doubtful = joined(operands)
        axes |= here[1] if here else NOWHERE
        expressions = [operand.expression for operand in operands]
        known = None
        if None not in expressions:
            known = Results(eqn, tuple(expressions))
        return [
            Value(
                first if i == 0 else self.of("result", first, i),
                axes,
                doubtful,
                None if known is None else Result((known,), i),
            )
            for i in range(len(eqn.outvars))
        ]


def joined(values: Iterable[Value]) -> tuple[frozenset, frozenset]:
    """Return along which axes any of the values may differ, and of which axes nobody can say."""
    axes = doubtful = NOWHERE
    for value in values:
        axes |= value.axes
        doubtful |= value.doubtful
    return axes, doubtful


def narrowed(value: Value, aval: Any) -> Value:
    """Return the value, which differs at most along the axes that its type names."""
    axes = value.axes & _jax.varying(aval)
    return value if axes == value.axes else replace(value, axes=axes)
