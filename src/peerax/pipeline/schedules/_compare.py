"""Which schedule is best for a pipeline: all of them, replayed with the same costs."""

from dataclasses import dataclass

from peerax.pipeline.schedules._catalogue import KNOWN, schedule
from peerax.pipeline.schedules._costs import Costs
from peerax.pipeline.schedules._replay import Replay
from peerax.timeline._units import data, digits, duration, in_columns


@dataclass(frozen=True)
class Ranking:
    """Say how schedules compare. `str(ranking)` is a table.

    Args:
        replays: from the shortest to the longest; of two that take as long, first the one that keeps less.
        left_out: name of each schedule that there is not for these numbers, and why.
    """

    replays: tuple[Replay, ...]
    left_out: tuple[tuple[str, str], ...]

    def rows(self) -> list[list[str]]:
        """Return a row for each schedule, behind the names of the columns."""
        rows = [["schedule", "chunks", "time", "bubble", "keeps", "sends"]]
        for replay in self.replays:
            made = replay.schedule
            chunks, sends = made.chunks, max(replay.messages)
            amount = f", {data(sends * replay.costs.message_bytes)}" if replay.costs.message_bytes else ""
            rows.append(
                [
                    made.name,
                    str(chunks),
                    duration(replay.makespan_s),
                    f"{100 * replay.bubble:.1f} %",
                    digits(_kept(replay)),
                    f"{sends}{amount}",
                ]
            )
        return rows

    def __str__(self) -> str:
        return "\n".join([in_columns(self.rows()), *(f"{name}: {why}" for name, why in self.left_out)])


def compare(ranks: int, microbatches: int, costs: Costs | None = None, *, chunks: int = 2) -> Ranking:
    """Replay all schedules for a pipeline, and rank them.

    Args:
        ranks: number of ranks.
        microbatches: number of microbatches.
        costs: of all that a rank has, for one microbatch; a schedule with several chunks has them shared out among
            these, so that all do the same work. Messages are as large for chunks.
        chunks: how many stages a rank has where a schedule leaves the choice.

    Returns:
        A Ranking. What a rank keeps is in microbatches of all that it has; what it sends is of the busiest rank.

    Raises:
        ValueError: ranks, microbatches or chunks is no count.

    Example:
        >>> print(compare(8, 32, Costs(1e-3, 2e-3, message_bytes=2**24, bandwidth_bytes_per_s=50e9)))
    """
    costs = Costs() if costs is None else costs
    replays, left_out = [], []
    for name, known in KNOWN.items():
        try:
            made = schedule(name, ranks, microbatches, chunks if known.any_chunks else None)
        except ValueError as error:
            left_out.append((name, str(error).splitlines()[0].removeprefix(f"{name} ")))
        else:
            replays.append(made.replay(costs.for_chunks(made.chunks)))
    if not replays:
        schedule("gpipe", ranks, microbatches, None)  # takes any counts, and says what is wrong
    replays.sort(key=lambda replay: (round(replay.makespan_s, 12), _kept(replay), sum(replay.messages)))
    return Ranking(tuple(replays), tuple(left_out))


def _kept(replay: Replay) -> float:
    return max(replay.peaks) / replay.schedule.chunks
