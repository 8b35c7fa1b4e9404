"""A timeline as a table for people: where the time of each rank went, and in which lines the ranks wait."""

from peerax.timeline._timeline import Timeline
from peerax.timeline._units import duration, heading, in_columns, line_of, share


def table(timeline: Timeline, most_ranks: int, most_lines: int) -> str:
    """Return the heading and both tables as plain text, without a newline at its end."""
    parts = [heading_of(timeline), in_columns(rank_rows(timeline, most_ranks))]
    if timeline.size > most_ranks:
        parts[-1] += f"\nand {timeline.size - most_ranks:,} more ranks, of which the mean is too"
    lines, more = line_rows(timeline, most_lines)
    if len(lines) > 1:
        parts.append(in_columns(lines))
        if more:
            parts[-1] += f"\nand {more:,} more lines"
        if timeline.left_out:
            parts[-1] += f"\nof the operations that are kept; {timeline.left_out:,} are not"
    return "\n\n".join(parts)


def heading_of(timeline: Timeline) -> str:
    """Return what the timeline is of, and who is stuck."""
    text = heading(timeline.origin, timeline.size, timeline.semantics, timeline.makespan_s, timeline.bubble)
    if timeline.stuck:
        ranks = ", ".join(map(str, timeline.stuck[:16])) + (", ..." if len(timeline.stuck) > 16 else "")
        text += f"; stuck: {len(timeline.stuck):,} of {timeline.size:,} ranks ({ranks})"
    return text


def rank_rows(timeline: Timeline, most: int) -> list[list[str]]:
    """Return a row for each of the first ranks, and one for the mean of all."""
    whole = timeline.makespan_s
    held = {span.rank: span for span in timeline.spans if not span.complete}
    rows = [["rank", "busy", "", "waits", "moves data", "after its end", "operations", ""]]

    def row(name, busy, waits, moves, end, operations, note=""):
        times = [duration(busy), share(busy / whole if whole else 0), duration(waits), duration(moves)]
        return [name, *times, duration(max(0.0, whole - end)), operations, note]

    for rank, time in enumerate(timeline.ranks[:most]):
        note = ""
        if rank in timeline.stuck:
            span = held.get(rank)
            note = f"stuck in {span.name} at {line_of(span.location)}" if span else "stuck"
        rows.append(
            row(str(rank), time.busy_s, time.waiting_s, time.moving_s, time.end_s, f"{time.operations:,}", note)
        )
    if timeline.size > 1:
        n = timeline.size
        busy = sum(r.busy_s for r in timeline.ranks) / n
        waits, moves = sum(r.waiting_s for r in timeline.ranks) / n, sum(r.moving_s for r in timeline.ranks) / n
        operations = sum(r.operations for r in timeline.ranks)
        rows.append(row("mean", busy, waits, moves, sum(r.end_s for r in timeline.ranks) / n, f"{operations / n:,.0f}"))
    return rows


def line_rows(timeline: Timeline, most: int) -> tuple[list[list[str]], int]:
    """Return a row for each of the lines in which the ranks wait longest in all, and how many others there are."""
    found: dict[tuple, list] = {}
    for span in timeline.spans:
        times = found.setdefault((span.location, span.name), [0.0, 0.0, 0])
        times[0] += span.matched_s - span.start_s
        times[1] += span.end_s - span.matched_s
        times[2] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1][0] - item[1][1], str(item[0])))
    rows = [["line", "operation", "waits, all ranks", "moves data", "times"]]
    for (location, name), (waits, moves, times) in ordered[:most]:
        rows.append([line_of(location), name, duration(waits), duration(moves), f"{times:,}"])
    return rows, max(0, len(ordered) - most)
