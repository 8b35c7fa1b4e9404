"""From the steps of a program, the same for all ranks, to what each rank does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from peerax.diagnostics import Location
from peerax.extract._expressions import Loop, evaluate
from peerax.extract._steps import Chosen, Repeated, Step
from peerax.extract._values import Value
from peerax.ops import reading as ops
from peerax.verifier import Branch, Collective, Item, Process, Program, Table, Unknown
from peerax.verifier import Loop as ProgramLoop

Nest = tuple[Loop | None, ...]  # the loops around, the outermost first; None where iterations are not known


@dataclass
class Projection:
    """Tells a program's steps apart by rank; their order may change from one program to the next.

    Args:
        ranks: the mesh; None if nothing communicates.
        selectors: by the number of its value, what is chosen by rank and iteration, and the loops that counts for.
        names: by its number, the name of a value that is not known.
        split: by number and line, a mesh, and the axes along which ranks with different places decide each by itself.
        trips: how often loops run.
        places: where each rank is along axes of a mesh.
    """

    ranks: ops.Ranks | None
    selectors: dict[int, tuple[np.ndarray, Nest]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    split: dict[tuple[int, Location], tuple[ops.Ranks, tuple]] = field(default_factory=dict)
    trips: list[np.ndarray] = field(default_factory=list)
    places: dict[tuple[ops.Ranks, tuple], list[tuple]] = field(default_factory=dict)

    def program(self, steps: Sequence[Step]) -> Program:
        """Return what each rank does. Ranks for which all that decides is the same share a body."""
        if self.ranks is None:
            return Program.spmd(1, ())
        bodies: dict[tuple[Item, ...], list[int]] = {}
        for members in self._alike():
            bodies.setdefault(tuple(self._body(steps, members[0], ())), []).extend(members)
        return Program(tuple(Process(tuple(sorted(members)), body) for body, members in bodies.items()))

    @classmethod
    def of(cls, steps: Sequence[Step], ranks: ops.Ranks | None) -> Self:
        """Find out what decides: by rank and iteration, or under which name."""
        projection = cls(ranks)
        if ranks is not None:
            projection._prepare(steps)
        return projection

    def _prepare(self, steps: Sequence[Step]) -> None:
        known: dict[ops.Ranks, dict[int, tuple[Value, Nest]]] = {}
        for step, nest in _structure(steps, ()):
            value = _decides(step)
            if isinstance(value, np.ndarray):
                self.trips.append(value)
            elif isinstance(value, Value) and value.expression is not None:
                loops = tuple(loop for loop in nest if loop in value.expression.loops)
                known.setdefault(step.ranks or self.ranks, {}).setdefault(value.number, (value, loops))
        for ranks, values in known.items():
            self.selectors |= _evaluate(values, ranks)
        crossed = set()
        for step, _ in _structure(steps, ()):
            value = _decides(step)
            if isinstance(value, Value) and value.number not in self.selectors:
                kind = "n" if isinstance(step, Repeated) else "p"
                self.names.setdefault(value.number, f"{kind}{len(self.names) + 1}")
                ranks, axes = step.ranks or self.ranks, value.axes | value.doubtful
                if not axes or not axes <= {*ranks.axis_names}:
                    continue
                here = ranks, ranks.in_mesh_order(axes)
                if _crosses(step, self._places(*here)):
                    crossed.add((value.number, step.location))
                self.split[value.number, step.location] = here
        self.split = {key: here for key, here in self.split.items() if key not in crossed}

    def _places(self, ranks: ops.Ranks, axes: tuple) -> list[tuple]:
        """Where each rank is along axes."""
        if (ranks, axes) not in self.places:
            indices = ranks.indices()
            self.places[ranks, axes] = list(zip(*(indices[axis].tolist() for axis in axes), strict=True))
        return self.places[ranks, axes]

    def _alike(self) -> Iterator[list[int]]:
        """Yield groups of ranks for which all that decides is the same."""
        arrays = [*(array for array, _ in self.selectors.values()), *self.trips]
        places = [self._places(*here) for here in dict.fromkeys(self.split.values())]
        groups: dict[tuple, list[int]] = {}
        for rank in range(self.ranks.size):
            key = (*(array[rank].tobytes() for array in arrays), *(place[rank] for place in places))
            groups.setdefault(key, []).append(rank)
        yield from groups.values()

    def _body(self, steps: Sequence[Step], rank: int, nest: Nest) -> list[Item]:
        """Return the items of a rank."""
        items: list[Item] = []
        for step in steps:
            if isinstance(step, Repeated):
                items += self._repeated(step, rank, nest)
            elif isinstance(step, Chosen):
                items += self._chosen(step, rank, nest)
            else:
                items.append(step)
        return items

    def _repeated(self, step: Repeated, rank: int, nest: Nest) -> list[Item]:
        body = tuple(self._body(step.body, rank, (*nest, step.loop)))
        if isinstance(step.trip, Value):
            return [ProgramLoop(self._unknown(step, step.trip, rank), body, step.location)]
        if isinstance(step.trip, int):
            return [ProgramLoop(step.trip, body, step.location)]
        return _by_table(
            step.trip[rank], step.around, nest, step, lambda trip: [ProgramLoop(trip, body, step.location)]
        )

    def _chosen(self, step: Chosen, rank: int, nest: Nest) -> list[Item]:
        bodies = [tuple(self._body(branch, rank, nest)) for branch in step.branches]
        if step.selector.number not in self.selectors:
            return [Branch(self._unknown(step, step.selector, rank), tuple(bodies), step.location)]
        values, loops = self.selectors[step.selector.number]
        row = np.clip(values[rank], 0, len(bodies) - 1)

        def make(selector: int | Table) -> list[Item]:
            if isinstance(selector, int):
                return list(bodies[selector])
            return [Branch(selector, tuple(bodies), step.location)]

        return _by_table(row, loops, nest, step, make)

    def _unknown(self, step: Repeated | Chosen, value: Value, rank: int) -> Unknown:
        name = self.names[value.number]
        if (value.number, step.location) in self.split:
            ranks, axes = self.split[value.number, step.location]
            here = zip(axes, self._places(ranks, axes)[rank], strict=True)
            return Unknown(f"{name}[{','.join(f'{axis}={index}' for axis, index in here)}]", "uniform")
        return Unknown(name, "varying" if value.axes else "unknown" if value.doubtful else "uniform")


def _crosses(step: Repeated | Chosen, places: Sequence[tuple]) -> bool:
    """Whether ranks with different places communicate in a step."""
    for inner, _ in _all([step], ()):
        if isinstance(inner, (Repeated, Chosen)):
            continue
        together = inner.groups if isinstance(inner, Collective) else inner.perm
        if any(places[members[0]] != places[other] for members in together for other in members[1:]):
            return True
    return False


def _by_table(
    values: np.ndarray, loops: Nest, nest: Nest, step: Repeated | Chosen, make: Callable[[int | Table], list[Item]]
) -> list[Item]:
    """Return the items that a value makes which depends on the iterations of loops around."""
    while values.ndim and (values.shape[0] == 0 or (values == values[:1]).all()):
        values, loops = (values[0] if values.shape[0] else np.zeros(values.shape[1:], values.dtype)), loops[1:]
    if not values.ndim:
        return make(int(values))
    depth = len(nest) - 1 - nest.index(loops[0])
    if values.ndim == 1:
        return make(Table(tuple(values.tolist()), depth))
    rows, which = np.unique(values, axis=0, return_inverse=True)
    branches = tuple(tuple(_by_table(row, loops[1:], nest, step, make)) for row in rows)
    return [Branch(Table(tuple(which.ravel().tolist()), depth), branches, step.location)]


def _decides(step: Repeated | Chosen):
    return step.trip if isinstance(step, Repeated) else step.selector


def _all(steps: Sequence[Step], nest: Nest) -> Iterator[tuple[Step, Nest]]:
    """All steps, those that contain others before these, and the loops around each."""
    for step in steps:
        yield step, nest
        if isinstance(step, Repeated):
            yield from _all(step.body, (*nest, step.loop))
        elif isinstance(step, Chosen):
            for branch in step.branches:
                yield from _all(branch, nest)


def _structure(steps: Sequence[Step], nest: Nest) -> Iterator[tuple[Repeated | Chosen, Nest]]:
    return ((step, around) for step, around in _all(steps, nest) if isinstance(step, (Repeated, Chosen)))


def _evaluate(known: dict[int, tuple[Value, Nest]], ranks: ops.Ranks) -> dict[int, tuple[np.ndarray, Nest]]:
    """Return by number what is known, as far as it can be computed here."""
    wanted = [(value.expression, loops) for value, loops in known.values()]
    try:
        arrays = evaluate(wanted, ranks.lengths()) if wanted else []
    except Exception:
        if len(known) == 1:
            return {}
        return {n: found for number in known for n, found in _evaluate({number: known[number]}, ranks).items()}
    return {number: (array, loops) for (number, (_, loops)), array in zip(known.items(), arrays, strict=True)}
