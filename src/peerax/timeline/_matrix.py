"""The communication matrix: how much each rank sent to each other one, and how long they waited for each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from peerax.timeline._channels import channel_times
from peerax.timeline._timeline import Timeline
from peerax.timeline._units import data, duration, in_columns

Measure = Literal["data", "messages", "waits"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went from one rank to another one.

    Args:
        longest_wait_s: the longest time that one of the two waited for the other.
    """

    messages: int = 0
    size_bytes: int = 0
    longest_wait_s: float = 0.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.messages + other.messages,
            self.size_bytes + other.size_bytes,
            max(self.longest_wait_s, other.longest_wait_s),
        )


@dataclass(frozen=True)
class Matrix:
    """Say who sent how much to whom, with sources as rows and destinations as columns.

    `matrix[source, destination]` is a `Traffic`, also where nothing was sent. `print(matrix)` is a table, and
    `matrix.to_svg()` a picture.

    Args:
        names: of the rows, which are those of the columns too.
        cells: what was sent, by (row, column); those in which nothing happened are not there.
        left_out: the number of operations that are not kept, whose messages are missing.
    """

    names: tuple[str, ...]
    cells: dict[tuple[int, int], Traffic]
    left_out: int = 0

    def __getitem__(self, pair: tuple[int, int]) -> Traffic:
        if not all(0 <= rank < len(self.names) for rank in pair):
            raise IndexError(f"the rows and columns are 0..{len(self.names) - 1}, not {pair}")
        return self.cells.get(pair, Traffic())

    @property
    def total(self) -> Traffic:
        """Return all messages together."""
        return sum(self.cells.values(), Traffic())

    def folded(self, most: int) -> "Matrix":
        """Return a matrix of at most so many rows, in each of which there are as many neighbouring ranks."""
        if most < 1:
            raise ValueError(f"most is a number of rows, 1 or more, not {most!r}")
        together = 1
        while -(-len(self.names) // together) > most:
            together *= 2  # as nodes have 2, 4 or 8 devices
        if together == 1:
            return self
        cells: dict[tuple[int, int], Traffic] = {}
        for (row, column), traffic in self.cells.items():
            at = row // together, column // together
            cells[at] = cells.get(at, Traffic()) + traffic
        firsts = range(0, len(self.names), together)
        names = (_both(self.names[first : first + together]) for first in firsts)
        return Matrix(tuple(names), cells, self.left_out)

    def table(self, measure: Measure = "data", most: int = 12) -> str:
        """Return one of "data", "messages" and "waits" (the longest ones) as plain text.

        Args:
            measure: what is in the cells.
            most: at most so many rows and columns; neighbouring ranks are put together.
        """
        shown = self.folded(most)
        rows = [["from \\ to", *shown.names, "all"]]
        for row, name in enumerate(shown.names):
            found = [shown[row, column] for column in range(len(shown.names))]
            rows.append([name, *(value_of(traffic, measure) or "." for traffic in (*found, sum(found, Traffic())))])
        columns = ([shown[row, column] for row in range(len(shown.names))] for column in range(len(shown.names)))
        sums = [sum(column, Traffic()) for column in columns]
        rows.append(["all", *(value_of(traffic, measure) or "." for traffic in (*sums, self.total))])
        return "\n".join([heading_of(self, measure), "", in_columns(rows), *notes_of(self)])

    def to_svg(self, measure: Measure = "data", *, most: int = 64) -> str:
        """Return a picture: the darker a cell is, the more there is in it. It needs nothing else.

        Args:
            measure: what is in the cells: "data", "messages" or "waits" (the longest ones).
            most: at most so many rows and columns; neighbouring ranks are put together.
        """
        from peerax.timeline._heat import to_svg

        return to_svg(self, measure, most)

    def __str__(self) -> str:
        return self.table()


def matrix_of(timeline: Timeline) -> Matrix:
    """Return the matrix of a timeline."""
    cells: dict[tuple[int, int], Traffic] = {}
    for row in channel_times(timeline):
        source, destination, _ = row.channel
        found = Traffic(row.messages, row.size_bytes, row.longest_wait_s)
        cells[source, destination] = cells.get((source, destination), Traffic()) + found
    return Matrix(tuple(map(str, range(timeline.size))), cells, timeline.left_out)


def amount_of(traffic: Traffic, measure: Measure) -> float:
    """Return the number that a measure is of."""
    if measure not in get_args(Measure):
        raise ValueError(f"measure is 'data', 'messages' or 'waits', not {measure!r}")
    return {"data": traffic.size_bytes, "messages": traffic.messages, "waits": traffic.longest_wait_s}[measure]


def value_of(traffic: Traffic, measure: Measure) -> str:
    """Return it as a text, empty if there is nothing to say."""
    amount = amount_of(traffic, measure)
    if measure == "waits":
        return duration(amount) if amount or traffic.messages else ""
    # Messages may be empty.
    return "" if not traffic.messages else data(int(amount)) if measure == "data" else f"{amount:,}"


def heading_of(matrix: Matrix, measure: Measure) -> str:
    """Return what is in the cells, and how much there is in all."""
    total = matrix.total
    if measure == "waits":
        return f"longest waits: up to {duration(total.longest_wait_s)}"
    messages = "1 message" if total.messages == 1 else f"{total.messages:,} messages"
    return f"{measure}: {messages}, {data(total.size_bytes)} in all"


def notes_of(matrix: Matrix) -> Iterator[str]:
    """Yield what is missing."""
    if matrix.left_out:
        yield f"of the operations that are kept; {matrix.left_out:,} are not"


def _both(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0].split('-')[0]}-{names[-1].split('-')[-1]}"
