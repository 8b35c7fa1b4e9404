"""Steps: what communicates in a program, before it is told apart by rank."""

from dataclasses import dataclass

import numpy as np

from peerax.diagnostics import Location
from peerax.extract._expressions import Loop
from peerax.extract._values import NOWHERE, Value
from peerax.ops import reading as ops
from peerax.verifier import Operation


@dataclass(frozen=True, eq=False)
class Repeated:
    """A loop that communicates.

    Args:
        trip: how often it runs; by rank and iteration of the loops around it, or a value that is not known.
        loop: what expressions know it as; None if the trip count is not known.
        ranks: the mesh of the shard_map around; None outside of one.
        around: the loops around it that trip has the iterations of.
    """

    trip: int | np.ndarray | Value
    body: "list[Step]"
    location: Location
    loop: Loop | None
    ranks: ops.Ranks | None
    around: tuple[Loop, ...] = ()


@dataclass(frozen=True, eq=False)
class Chosen:
    """A branch that communicates."""

    selector: Value
    branches: "list[list[Step]]"
    location: Location
    ranks: ops.Ranks | None


Step = Operation | Repeated | Chosen


@dataclass(frozen=True)
class Scope:
    """Where the walk is.

    Args:
        ranks: the mesh of the shard_map around, or None outside of one.
        axes: manual axes.
        typed: whether types tell along which axes values differ.
        section: number of the shard_map: its messages meet no others.
        loops: the loops around whose iterations are known, the outermost first; None for others.
        apart: axes along which ranks may be in different branches or iterations.
    """

    ranks: ops.Ranks | None = None
    axes: frozenset = NOWHERE
    typed: bool = False
    section: int = 0
    loops: tuple[Loop | None, ...] = ()
    apart: frozenset = NOWHERE
