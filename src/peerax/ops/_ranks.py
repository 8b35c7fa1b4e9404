"""Numbers of ranks in a whole mesh, from perms and groups along some of its axes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from peerax.perm import Perm


class Ranks:
    """All ranks of a mesh, numbered in its order, as XLA numbers the partitions of the program."""

    def __init__(self, axis_names: Sequence, axis_sizes: Sequence[int]):
        self.axis_names = tuple(axis_names)
        self.size = int(np.prod(axis_sizes, dtype=np.int64))
        self._coordinates = np.stack(np.unravel_index(np.arange(self.size), tuple(axis_sizes) or (1,)), axis=1)
        self._sizes = tuple(axis_sizes)
        self._ends: dict = {}

    def in_mesh_order(self, axes: Sequence) -> tuple:
        """Return axes in the order of the mesh."""
        return tuple(axis for axis in self.axis_names if axis in axes)

    def indices(self) -> dict[Any, np.ndarray]:
        """Return the index of every rank by axis."""
        return {axis: self._coordinates[:, i] for i, axis in enumerate(self.axis_names)}

    def lengths(self) -> dict[Any, int]:
        """Return the number of ranks by axis."""
        return dict(zip(self.axis_names, self._sizes, strict=True))

    def length(self, axes: Sequence) -> int:
        """Return the number of ranks along axes."""
        return math.prod(self._sizes[self.axis_names.index(axis)] for axis in axes)

    def ends(self, axes: Sequence, perm: Perm) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return destination and source by rank, -1 for none, of a perm along axes."""
        key = (tuple(axes), perm)
        if key not in self._ends:  # the same perm comes many times in one body
            self._ends[key] = self._find_ends(axes, perm)
        return self._ends[key]

    def _find_ends(self, axes: Sequence, perm: Perm) -> tuple[tuple[int, ...], tuple[int, ...]]:
        along, others = self._split(axes)
        rank_at = {(o, a): rank for rank, (o, a) in enumerate(zip(others, along, strict=True))}
        destination, source = [-1] * self.size, [-1] * self.size
        to, origin = dict(perm), {d: s for s, d in perm}
        for rank, (other, index) in enumerate(zip(others, along, strict=True)):
            if index in to:
                destination[rank] = rank_at[other, to[index]]
            if index in origin:
                source[rank] = rank_at[other, origin[index]]
        return tuple(destination), tuple(source)

    def groups(self, axes: Sequence, index_groups: Sequence[Sequence[int]] | None = None) -> tuple[int, ...]:
        """Return by rank the number of the group that joins one collective along axes."""
        along, others = self._split(axes)
        part = {index: i for i, group in enumerate(index_groups or [()]) for index in group}
        keys = [(other, part.get(index, 0)) for other, index in zip(others, along, strict=True)]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        return tuple(number[key] for key in keys)

    def _split(self, axes: Sequence) -> tuple[list[int], list[int]]:
        """Return by rank its index along axes, and a number for its place along all others."""
        chosen = [self.axis_names.index(axis) for axis in axes]
        rest = [i for i in range(len(self.axis_names)) if i not in chosen]
        return self._ravel(chosen), self._ravel(rest)

    def _ravel(self, positions: list[int]) -> list[int]:
        index = np.zeros(self.size, np.int64)
        for position in positions:
            index = index * self._sizes[position] + self._coordinates[:, position]
        return index.tolist()
