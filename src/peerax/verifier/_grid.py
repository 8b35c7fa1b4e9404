"""A program as a table for people: a column for each rank, a row for each item."""

from collections.abc import Iterator

from peerax.timeline._units import in_columns
from peerax.verifier._ir import Body, Branch, Collective, Exchange, Loop, Program, Recv, Send, Table, Unknown


def grid(program: Program, columns: int, rows: int) -> str:
    """Return the table as text."""
    head, cells, more = table(program, columns, rows)
    return "\n".join([in_columns([head, *cells]), *more])


def table(program: Program, columns: int, rows: int) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the head of the table, its rows, and what is said of rows and ranks that are left out.

    Ranks that share a body have each item in one row; "." stands for nothing to do.
    """
    bodies = program.bodies()
    shown = list(range(min(program.size, columns)))
    cells = [list(_cells(bodies[rank], rank, "")) for rank in shown]
    height = max(map(len, cells), default=0)
    body = [
        [str(row + 1), *(column[row] if row < len(column) else "" for column in cells)]
        for row in range(min(height, rows))
    ]
    more = [f"and {height - rows} more rows"] if height > rows else []
    more += [f"and {program.size - len(shown)} more ranks"] if program.size > len(shown) else []
    return ["", *(f"rank {rank}" for rank in shown)], body, more


def _cells(body: Body, rank: int, indent: str) -> Iterator[str]:
    for item in body:
        if isinstance(item, Loop):
            yield f"{indent}loop {_times(item.trip)}"
            yield from _cells(item.body, rank, indent + "  ")
        elif isinstance(item, Branch):
            yield f"{indent}branch {_chosen(item.selector)}"
            for number, branch in enumerate(item.branches):
                yield f"{indent}case {number}"
                yield from _cells(branch, rank, indent + "  ")
        else:
            yield indent + describe(item, rank)


def describe(item: Send | Recv | Exchange | Collective, rank: int) -> str:
    """Return what an item is on a rank, in a few characters."""
    if isinstance(item, Collective):
        return item.name if any(rank in group for group in item.groups) else "."
    to = next((destination for source, destination in item.perm if source == rank), None)
    origin = next((source for source, destination in item.perm if destination == rank), None)
    tag = f" tag {item.tag}" if item.tag else ""
    if isinstance(item, Send):
        return "." if to is None else f"send > {to}{tag}"
    if isinstance(item, Recv):
        return "." if origin is None else f"recv < {origin}{tag}"
    ends = [*([] if to is None else [f"> {to}"]), *([] if origin is None else [f"< {origin}"])]
    return f"pair {' '.join(ends)}{tag}" if ends else "."


def _times(trip: int | Table | Unknown) -> str:
    if isinstance(trip, int):
        return f"x{trip}"
    return f"x{trip.name}" if isinstance(trip, Unknown) else "x(by table)"


def _chosen(selector: Table | Unknown) -> str:
    return f"by {selector.name}" if isinstance(selector, Unknown) else "by table"
