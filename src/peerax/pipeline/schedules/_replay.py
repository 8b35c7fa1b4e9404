"""A schedule with times: when each rank does what.

Each action starts when its rank is done with the one before, and what it needs is there. So all times follow by maxima
and sums, and it does not matter in which order they are found.

If sends and receives are written, a message leaves at its send; a receive takes no time, and only what needs it waits.
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from peerax.pipeline.schedules._action import COMPUTE, Action
from peerax.pipeline.schedules._costs import Costs
from peerax.pipeline.schedules._needs import SENT, Value, needs, provided, receiver
from peerax.pipeline.schedules._schedule import Schedule


@dataclass(frozen=True, slots=True)
class Timed:
    """An action and its times.

    Args:
        order: of all actions, in which order they were found: what an action needs has a smaller number.
    """

    action: Action
    start_s: float
    end_s: float
    order: int


@dataclass(frozen=True)
class Replay:
    """Say when each rank does what. `str(replay)` is a table of the ranks.

    Args:
        schedule: what is replayed.
        costs: what its actions cost.
        times: for each rank its actions in order.
    """

    schedule: Schedule
    costs: Costs
    times: tuple[tuple[Timed, ...], ...]

    @cached_property
    def makespan_s(self) -> float:
        """Return how long it takes in all."""
        return max((row[-1].end_s for row in self.times if row), default=0.0)

    @cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Return how long each rank computes."""
        return tuple(sum(timed.end_s - timed.start_s for timed in row) for row in self.times)

    @cached_property
    def spans_s(self) -> tuple[float, ...]:
        """Return how long it is from the first to the last action of each rank that computes."""
        spans = []
        for row in self.times:
            computing = [timed for timed in row if timed.action.leaves[0].kind in COMPUTE]
            spans.append(computing[-1].end_s - computing[0].start_s if computing else 0.0)
        return tuple(spans)

    @property
    def bubble(self) -> float:
        """Return the share of the time of all ranks in which they are idle."""
        whole = self.makespan_s * self.schedule.ranks
        return 1 - sum(self.busy_s) / whole if whole else 0.0

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """Return for each rank how many forwards it must keep the activations of at most, in stages and microbatches.

        They are kept until the backward, or the half of it for the weights, is over.
        """
        return tuple(self._most_kept(rank, ("B", "W")) for rank in range(self.schedule.ranks))

    @cached_property
    def peaks_until_input(self) -> tuple[int, ...]:
        """Return the same if what the half for the weights needs is not counted."""
        return tuple(self._most_kept(rank, ("B", "I")) for rank in range(self.schedule.ranks))

    @cached_property
    def messages(self) -> tuple[int, ...]:
        """Return how many messages each rank sends."""
        counts = [0] * self.schedule.ranks
        for rank in range(self.schedule.ranks):
            for leaf in self.schedule.leaves(rank):
                counts[rank] += sum(receiver(self.schedule, v) is not None for v in provided(leaf) if not v.sent)
        return tuple(counts)

    @property
    def heading(self) -> str:
        """Return what it is and what came out of it, in a line."""
        from peerax.pipeline.schedules._table import heading

        return heading(self)

    def table(self) -> str:
        """Return a table of the ranks: when they are busy, what they keep, and what they send."""
        from peerax.pipeline.schedules._table import table

        return table(self)

    def chart(self, *, width: int = 120) -> list[list[tuple[str, str]]]:
        """Return the lines of `to_text` in pieces, each with the kind of its action, "idle", or "" for other text."""
        from peerax.pipeline.schedules._chart import lines

        return list(lines(self, width))

    def to_text(self, *, width: int = 120) -> str:
        """Return plain text: a row for each rank, time to the right, in lines of this width."""
        from peerax.pipeline.schedules._chart import to_text

        return to_text(self, width)

    def to_svg(self, *, width: int | None = None) -> str:
        """Return a picture: a row for each rank, time to the right, a box for each action."""
        from peerax.pipeline.schedules._svg import to_svg

        return to_svg(self, width)

    def to_html(self, *, width: int | None = None) -> str:
        """Return a page that needs nothing else: the picture, a table of the ranks, and the lists."""
        from peerax.pipeline.schedules._html import to_html

        return to_html(self, width)

    def __str__(self) -> str:
        return f"{self.heading}\n{self.table()}"

    def _most_kept(self, rank: int, freed_by: tuple[str, str]) -> int:
        kept = most = 0
        for leaf in self.schedule.leaves(rank):
            kept += (leaf.kind == "F") - (leaf.kind in freed_by)
            most = max(most, kept)
        return most


def replay(schedule: Schedule, costs: Costs) -> Replay:
    """Find the times of a schedule without faults."""
    costs.require(schedule.stages)
    written = schedule.has_messages
    ready: dict[Value, float] = {}
    waiting: dict[Value, int] = {}
    times: list[list[Timed]] = [[] for _ in schedule.actions]
    found = 0
    going = deque(range(schedule.ranks))
    while going:
        rank = going.popleft()
        row, done = schedule.actions[rank], times[rank]
        while len(done) < len(row):
            action = row[len(done)]
            start = done[-1].end_s if done else 0.0
            for value in needs(schedule, action, written):
                if value not in ready:
                    waiting[value] = rank
                    break
                away = schedule.placement[value.stage] != rank and action.kind not in SENT
                start = max(start, ready[value] + (costs.message_s if away else 0.0))
            else:
                end = start + costs.of(action)
                done.append(Timed(action, start, end, found))
                found += 1
                for value in provided(action):
                    ready[value] = end
                    if value in waiting:
                        going.append(waiting.pop(value))
                continue
            break
    assert found == sum(map(len, schedule.actions)), "a schedule without faults stops"
    return Replay(schedule, costs, tuple(map(tuple, times)))
