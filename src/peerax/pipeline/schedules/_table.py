"""What came out of a replay, in numbers."""

from peerax.pipeline.schedules._replay import Replay
from peerax.timeline._units import data, duration, in_columns, share


def heading(replay: Replay) -> str:
    """Return for example "1f1b: 4 ranks, 8 microbatches, 33 s in all, bubble 27 %"."""
    schedule = replay.schedule
    ranks = "1 rank" if schedule.ranks == 1 else f"{schedule.ranks:,} ranks"
    chunks = f" of {schedule.chunks} stages" if schedule.chunks > 1 else ""
    count = "1 microbatch" if schedule.microbatches == 1 else f"{schedule.microbatches:,} microbatches"
    times = f"{duration(replay.makespan_s)} in all, bubble {share(replay.bubble)}"
    return f"{schedule.name}: {ranks}{chunks}, {count}, {times}"


def table(replay: Replay) -> str:
    """Return the rows as text."""
    return in_columns(rows(replay))


def rows(replay: Replay) -> list[list[str]]:
    """Return a row for each rank, behind the names of the columns."""
    schedule, whole = replay.schedule, replay.makespan_s
    # What waits for its weights is kept by schedules only that split backwards.
    split = replay.peaks != replay.peaks_until_input
    head = ["rank", "stages", "busy", "idle", "idle in between", "keeps", *(["without W"] * split), "sends"]
    made = [head]
    for rank in range(schedule.ranks):
        busy, span = replay.busy_s[rank], replay.spans_s[rank]
        stages = ",".join(str(stage) for stage, on in enumerate(schedule.placement) if on == rank)
        sends = replay.messages[rank]
        amount = f", {data(sends * replay.costs.message_bytes)}" if replay.costs.message_bytes else ""
        until = [str(replay.peaks_until_input[rank])] * split
        idle = [duration(whole - busy), duration(span - busy)]
        row = [str(rank), stages or "none", duration(busy), *idle, str(replay.peaks[rank]), *until, f"{sends}{amount}"]
        made.append(row)
    return made
