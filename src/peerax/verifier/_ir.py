"""The program: what each rank will do, as a tree of operations, loops and branches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from peerax.diagnostics import Location

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Table:
    """A value for each iteration of a loop around it.

    Args:
        values: one for each iteration.
        depth: which loop: 0 is the innermost one around it, 1 the next.
    """

    values: tuple[int, ...]
    depth: int = 0


@dataclass(frozen=True)
class Unknown:
    """A value that is not known before the run.

    Args:
        name: the same value has the same name on all ranks.
        kind: "uniform" if it is the same on all ranks, "varying" if it may differ, "unknown" if even that is not known.
    """

    name: str
    kind: Literal["uniform", "varying", "unknown"] = "uniform"


@dataclass(frozen=True)
class _End:
    """One end of messages whose other end is an operation of its own.

    Args:
        perm: (source, destination) pairs of ranks of the whole mesh.
        types: the type of each leaf, such as "float32[8,3]"; one message each.
        location: the user's line.
        path: tells values, tangents and cotangents apart.
        axes: the axes that the user named; for reports only.
    """

    perm: Pairs
    types: tuple[str, ...]
    location: Location
    tag: int = 0
    path: str = ""
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Send(_End):
    """A separate psend. A rank that is no source in perm does nothing."""


@dataclass(frozen=True)
class Recv(_End):
    """A separate precv. A rank that is no destination in perm does nothing."""


@dataclass(frozen=True)
class Exchange:
    """A pair: a psend and the precv that has its token. Both parts progress together.

    Args:
        pair: number of the pair; its messages meet only those of the same number.
        receive_location: the line of the precv; location is that of the psend.
    """

    perm: Pairs
    types: tuple[str, ...]
    location: Location
    receive_location: Location
    pair: int
    tag: int = 0
    path: str = ""
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collective:
    """An operation that all ranks of a group join.

    Args:
        name: such as "psum"; all members of a group must name the same one.
        groups: disjoint groups of ranks; a rank in none of them does nothing.
    """

    name: str
    groups: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    location: Location
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A body that runs trip times; trip may differ by iteration of a loop around it, or be unknown."""

    trip: "int | Table | Unknown"
    body: "tuple[Item, ...]"
    location: Location


@dataclass(frozen=True)
class Branch:
    """One of several bodies, chosen by a table or by a value that is not known."""

    selector: Table | Unknown
    branches: "tuple[tuple[Item, ...], ...]"
    location: Location


Operation = Send | Recv | Exchange | Collective
Item = Operation | Loop | Branch
Body = tuple[Item, ...]


@dataclass(frozen=True)
class Process:
    """What some ranks do: a body, and the ranks that have it in common."""

    ranks: tuple[int, ...]
    body: Body


@dataclass(frozen=True)
class Program:
    """Say what each rank will do.

    `str(program)` is a text that `Program.parse` reads back; `program.grid()` is a table with a column for each rank.

    Args:
        processes: each rank of 0..size-1 is in one of them. `Program.of` makes them from a body per rank.
    """

    processes: tuple[Process, ...]

    def __post_init__(self) -> None:
        ranks = sorted(rank for process in self.processes for rank in process.ranks)
        if ranks != list(range(len(ranks))):
            raise ValueError(f"each of the ranks 0..{len(ranks) - 1} must be in one process, got {ranks}")
        for process in self.processes:
            _validate(process.body, (), len(ranks))

    @classmethod
    def of(cls, bodies: Iterable[Sequence[Item]]) -> Self:
        """Make a program from the body of each rank; ranks with equal bodies share one."""
        ranks: dict[Body, list[int]] = {}
        for rank, body in enumerate(bodies):
            ranks.setdefault(tuple(body), []).append(rank)
        return cls(tuple(Process(tuple(shared), body) for body, shared in ranks.items()))

    @classmethod
    def spmd(cls, size: int, body: Sequence[Item]) -> Self:
        """Make a program in which all ranks have one body."""
        return cls((Process(tuple(range(size)), tuple(body)),))

    @classmethod
    def parse(cls, text: str) -> "Program":
        """Read what `str(program)` wrote. Raises ValueError, with the line, for anything else."""
        from peerax.verifier._parse import parse

        return parse(text)

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return sum(len(process.ranks) for process in self.processes)

    def bodies(self) -> list[Body]:
        """Return the body of each rank."""
        bodies: list[Body] = [()] * self.size
        for process in self.processes:
            for rank in process.ranks:
                bodies[rank] = process.body
        return bodies

    def grid(self, columns: int = 8, rows: int = 60) -> str:
        """Return a table with a column for each rank, at most so many of them; a loop is shown once."""
        from peerax.verifier._grid import grid

        return grid(self, columns, rows)

    def __str__(self) -> str:
        from peerax.verifier._print import to_text

        return to_text(self)


def operations(body: Body) -> Iterator[Operation]:
    """Yield each operation of a body once, in the order of the text."""
    for item in body:
        if isinstance(item, Loop):
            yield from operations(item.body)
        elif isinstance(item, Branch):
            for branch in item.branches:
                yield from operations(branch)
        else:
            yield item


def _validate(body: Body, trips: tuple[int | None, ...], size: int) -> None:
    """Check what the engine relies on; trips are those of the loops around, innermost first."""
    for item in body:
        if isinstance(item, Loop):
            _validate(item.body, (_most(item.trip, trips), *trips), size)
        elif isinstance(item, Branch):
            _most(item.selector, trips)
            chosen = item.selector.values if isinstance(item.selector, Table) else ()
            if not all(0 <= value < len(item.branches) for value in set(chosen)):
                raise ValueError(f"a table chooses a branch outside 0..{len(item.branches) - 1}")
            for branch in item.branches:
                _validate(branch, trips, size)
        elif isinstance(item, Collective):
            members = [rank for group in item.groups for rank in group]
            if len(set(members)) < len(members) or any(not 0 <= rank < size for rank in members):
                raise ValueError(f"groups {item.groups} are not disjoint groups of ranks 0..{size - 1}")
        elif isinstance(item, (Send, Recv, Exchange)):
            for ranks in zip(*item.perm, strict=True):
                if len(set(ranks)) < len(ranks) or any(not 0 <= rank < size for rank in ranks):
                    raise ValueError(f"{item.perm} is not a perm of ranks 0..{size - 1}")


def _most(value: int | Table | Unknown, trips: tuple[int | None, ...]) -> int | None:
    """The largest value there is, None if that is unknown; raises if a table does not fit its loop."""
    if isinstance(value, Unknown):
        return None
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"a loop cannot run {value} times")
        return value
    around = trips[value.depth] if 0 <= value.depth < len(trips) else None
    if around is None or around > len(value.values):
        raise ValueError(f"a table of {len(value.values)} values at depth {value.depth} does not fit its loop")
    if any(number < 0 for number in value.values):
        raise ValueError("a table has a negative value")
    return max(value.values, default=0)
