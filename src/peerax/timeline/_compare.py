"""Two timelines of one program beside each other: a simulation and a run, or two of either."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerax.diagnostics import Location
from peerax.timeline._table import heading_of
from peerax.timeline._timeline import Timeline
from peerax.timeline._units import NOTHING_S, duration, in_columns, line_of


@dataclass(frozen=True, slots=True)
class Compared:
    """One amount of time in both timelines."""

    first_s: float
    second_s: float

    @property
    def ratio(self) -> float | None:
        """Return how many times as long the second one is; None where the first one is nothing."""
        return self.second_s / self.first_s if self.first_s >= NOTHING_S else None


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """What one rank, or all of them, spent in the operations of a line.

    Args:
        rank: None for all ranks together.
        numbers: how many there are in each timeline.
        waits: how long they waited for another rank.
        whole: how long they took in all, with what they waited.
    """

    location: Location | None
    name: str
    rank: int | None
    numbers: tuple[int, int]
    waits: Compared
    whole: Compared


@dataclass(frozen=True)
class Comparison:
    """Say where two timelines of one program differ.

    `print(comparison)` is a table, and `comparison.to_html()` a page with a picture of both.

    Args:
        first, second: the timelines, of as many ranks.
    """

    first: Timeline
    second: Timeline

    def __post_init__(self) -> None:
        if self.first.size != self.second.size:
            raise ValueError(
                f"timelines of one program have as many ranks, but these have {self.first.size:,} and "
                f"{self.second.size:,}"
            )

    @property
    def names(self) -> tuple[str, str]:
        """Return what to call the two."""
        both = self.first.origin, self.second.origin
        return both if both[0] != both[1] else ("first", "second")

    @property
    def makespan(self) -> Compared:
        """Return when the last rank was through."""
        return Compared(self.first.makespan_s, self.second.makespan_s)

    def lines(self) -> list[OperationTimes]:
        """Return what all ranks together spent in each line, those first in which the timelines differ most."""
        return self._operations(by_rank=False)

    def operations(self) -> list[OperationTimes]:
        """Return what each rank spent in each line, those first in which the timelines differ most."""
        return self._operations(by_rank=True)

    def _operations(self, by_rank: bool) -> list[OperationTimes]:
        files = _files(self.first, self.second)
        found: dict[tuple, list[list[float]]] = {}
        for which, timeline in enumerate((self.first, self.second)):
            for span in timeline.spans:
                place, name = span.location, span.name
                if place is not None and place[0] == "<unknown>":
                    place = None
                if span.kind == "exchange":
                    name = "exchange"  # a run calls it by what it was made of: psend and precv, or ppermute
                if which and place is not None:
                    place = files.get(place[0], place[0]), place[1]
                sums = found.setdefault((place, name, span.rank if by_rank else None), [[0, 0.0, 0.0] for _ in "12"])
                sums[which][0] += 1
                sums[which][1] += span.matched_s - span.start_s
                sums[which][2] += span.end_s - span.start_s
        rows = [
            OperationTimes(*key, (int(a[0]), int(b[0])), Compared(a[1], b[1]), Compared(a[2], b[2]))
            for key, (a, b) in found.items()
        ]
        return sorted(rows, key=lambda row: (-_apart(row.whole), line_of(row.location), row.name, row.rank or 0))

    def table(self, most_ranks: int = 32, most_operations: int = 20) -> str:
        """Return both headings, the time of each rank, and the operations in which they differ most, as plain text."""
        parts = ["\n".join(headings_of(self)), in_columns(rank_rows(self, most_ranks))]
        if self.first.size > most_ranks:
            parts[-1] += f"\nand {self.first.size - most_ranks:,} more ranks"
        for found in tables_of(self):
            if found:
                parts.append(in_columns(operation_rows(self, found[:most_operations])))
            if len(found) > most_operations:
                parts[-1] += f"\nand {len(found) - most_operations:,} more"
        if left_out := self.first.left_out + self.second.left_out:
            parts[-1] += f"\nof the operations that are kept; {left_out:,} are not"
        return "\n\n".join(parts)

    def to_svg(
        self,
        ranks: Sequence[int] | None = None,
        *,
        normalised: bool | None = None,
        most_ranks: int = 64,
        width: int = 1200,
    ) -> str:
        """Return a picture: for each rank both timelines, one above the other.

        Args:
            ranks: which ones to draw, in this order; by default all.
            normalised: whether each timeline has an axis of its own, as long as it is; by default if one is more than
                four times as long as the other.
            most_ranks: of at most so many ranks.
            width: in pixels.
        """
        from peerax.timeline._overlay import to_svg

        return to_svg(self, ranks, normalised, most_ranks, width)

    def to_html(
        self,
        ranks: Sequence[int] | None = None,
        *,
        normalised: bool | None = None,
        most_ranks: int = 64,
        width: int = 1200,
    ) -> str:
        """Return a page with the picture (see `to_svg`) and the tables, which loads nothing else."""
        from peerax.timeline._html import page, picture, table

        parts = [picture(self.to_svg(ranks, normalised=normalised, most_ranks=most_ranks, width=width))]
        parts += [table(rank_rows(self, 256))]
        parts += [table(operation_rows(self, found[:100])) for found in tables_of(self) if found]
        return page(heading_of_both(self), parts)

    def __str__(self) -> str:
        return self.table()


def heading_of_both(comparison: Comparison) -> str:
    """Return how the two compare, in a line."""
    first, second = comparison.names
    ratio = comparison.makespan.ratio
    times = f"{first} takes no time" if ratio is None else f"{second} takes {ratio:.3g} times as long as {first}"
    return f"{times}: {duration(comparison.first.makespan_s)}, {duration(comparison.second.makespan_s)}"


def headings_of(comparison: Comparison) -> list[str]:
    """Return what each timeline is of, and how the two compare."""
    found = []
    for name, timeline in zip(comparison.names, (comparison.first, comparison.second), strict=True):
        heading = heading_of(timeline)
        found.append(heading if heading.startswith(f"{name}:") else f"{name}, {heading}")
    return [*found, heading_of_both(comparison)]


def rank_rows(comparison: Comparison, most: int) -> list[list[str]]:
    """Return a row for each of the first ranks: what it computed, and how long it was in operations."""
    first, second = comparison.names
    rows = [["rank"]]
    for what in ("busy", "in operations", "end"):
        rows[0] += [f"{what}: {first}", second, "ratio"]
    for rank in range(min(most, comparison.first.size)):
        row = [str(rank)]
        a, b = comparison.first.ranks[rank], comparison.second.ranks[rank]
        inside = Compared(a.waiting_s + a.moving_s, b.waiting_s + b.moving_s)
        for pair in (Compared(a.busy_s, b.busy_s), inside, Compared(a.end_s, b.end_s)):
            row += [duration(pair.first_s), duration(pair.second_s), ratio_of(pair)]
        rows.append(row)
    return rows


def tables_of(comparison: Comparison) -> list[list[OperationTimes]]:
    """Return the operations of all ranks by line, and those of each rank; these are the same if there is one rank."""
    return [*([comparison.lines()] if comparison.first.size > 1 else []), comparison.operations()]


def operation_rows(comparison: Comparison, found: list[OperationTimes]) -> list[list[str]]:
    """Return a row for each of these operations."""
    first, second = comparison.names
    rows = [
        ["line", "operation", "rank", "times", f"waits: {first}", second, "ratio", f"in all: {first}", second, "ratio"]
    ]
    for row in found:
        numbers = [f"{number:,}" for number in dict.fromkeys(row.numbers)]
        line = [line_of(row.location), row.name, "all" if row.rank is None else str(row.rank), " and ".join(numbers)]
        for pair in (row.waits, row.whole):
            both = zip((pair.first_s, pair.second_s), row.numbers, strict=True)
            shown = [duration(seconds) if number else "-" for seconds, number in both]
            line += [*shown, ratio_of(pair) if all(row.numbers) else ""]
        rows.append(line)
    return rows


def ratio_of(pair: Compared) -> str:
    """Return a ratio with three digits that count; nothing where there is none."""
    return "" if pair.ratio is None else f"{pair.ratio:.3g}"


def _apart(pair: Compared) -> float:
    # Of what differs by rounding only, the order is that of the lines.
    return round(abs(pair.second_s - pair.first_s), 13)


def _files(first: Timeline, second: Timeline) -> dict[str, str]:
    """Return, for files of the second timeline that the first one does not have, the one that must be meant.

    One may have "train.py" where the other one has the whole path.
    """
    known, others = ({s.location[0] for s in t.spans if s.location is not None} for t in (first, second))
    found = {}
    for file in others - known:
        meant = [name for name in known - others if f"/{file}".endswith(f"/{name}") or f"/{name}".endswith(f"/{file}")]
        if len(meant) == 1:
            found[file] = meant[0]
    return found
