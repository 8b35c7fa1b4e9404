"""Schedules in which stages go down the ranks and up again: rank r has the stages r and 2 ranks - 1 - r."""

from collections import Counter, deque

from peerax.pipeline.schedules._action import Action
from peerax.pipeline.schedules._demand import require, require_counts
from peerax.pipeline.schedules._schedule import Schedule


def zbv(ranks: int, microbatches: int) -> Schedule:
    """Make ZBV: the zero-bubble schedule of two chunks in the form of a V (Qi et al., arXiv:2401.10241, section 6).

    No rank is idle between its first and its last action if all costs are equal, and each keeps what 1F1B keeps on its
    first rank. The first and the last stage are on the same rank. See zb_h2 for what is left of the bubble.

    Args:
        ranks, microbatches: any numbers; with fewer than 2 ranks - 1 microbatches ranks are idle in between.

    Returns:
        A Schedule.
    """
    require_counts("zbv", ranks, microbatches)
    rows = []
    for rank in range(ranks):
        made = _zbv_row(rank, ranks, max(microbatches, 2 * ranks - 1))
        rows.append([action for action in made if action.microbatch < microbatches])
    return _folded("zbv", rows, microbatches)


def _zbv_row(rank: int, ranks: int, count: int) -> list[Action]:
    row = _Row(rank, ranks)
    row.add("Fa", times=2 * (ranks - rank) - 1)
    row.add("Fb", "Fa", times=rank)
    row.add("Fb", "Ib", "Wb", times=ranks - rank)
    while row.counts["Fb"] < row.counts["Fa"] or row.counts["Fa"] < count:
        if row.counts["Fa"] < count:
            row.add("Fa")
        row.add("Ia", "Wa", "Fb", "Ib", "Wb")
    row.add("Ia", "Ib", times=rank)
    row.add("Ia", "Wa", times=ranks - rank)
    row.add("Wb", times=count - row.counts["Wb"])
    row.add("Wa", times=count - row.counts["Wa"])
    return row.actions


def dualpipev(ranks: int, microbatches: int) -> Schedule:
    """Make DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe, README).

    A forward of one chunk and a backward of the other take place at the same time, so that the messages of one, within
    the stage too, hide behind what the other one computes. Each rank keeps a little more than with ZBV.

    Args:
        ranks: any number.
        microbatches: at least twice as many.

    Returns:
        A Schedule.

    Raises:
        ValueError: there are too few microbatches.
    """
    require_counts("dualpipev", ranks, microbatches)
    demand = f"at least {2 * ranks} microbatches, 2 for each of the {ranks} ranks"
    require("dualpipev", microbatches, lambda m: m >= 2 * ranks, demand, "zbv, which takes any number")
    return _folded("dualpipev", [_dualpipev_row(rank, ranks, microbatches) for rank in range(ranks)], microbatches)


def _dualpipev_row(rank: int, ranks: int, microbatches: int) -> list[Action]:
    row, behind = _Row(rank, ranks), ranks - 1 - rank
    row.add("Fa", times=2 * behind)
    row.add("Fa", "Fb", times=rank + 1)
    for _ in range(behind):
        row.split("b")
        row.late()
        row.add("Fb")
    for number in range(microbatches - 2 * ranks + rank + 1):
        if number == 0 and behind == 0:
            # These two are apart in the source as well.
            row.add("Fa", "Bb")
        else:
            row.overlap("a", "b")
        row.overlap("b", "a")
    for _ in range(behind):
        row.add("Bb")
        row.overlap("b", "a")
    # From the middle on backwards are split, and their halves for the weights fill what would be idle.
    halves = False
    for number in range(rank + 1):
        for chunk, turns in (("b", rank % 2 == 1), ("a", rank % 2 == 0)):
            halves |= turns and number == (rank + 1) // 2
            row.backward(chunk, halves)
    for _ in range(behind):
        row.late()
        row.backward("a", halves)
    for _ in range(rank + 1):
        row.late()
    assert not row.deferred, "as many halves were made late as were left out"
    return row.actions


class _Row:
    """The list of a rank while it is made; of each action of each chunk the next microbatch comes next."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.actions: list[Action] = []
        self.counts: Counter[str] = Counter()
        self.deferred: deque[Action] = deque()
        self._stages = {"a": rank, "b": 2 * ranks - 1 - rank}

    def add(self, *words: str, times: int = 1) -> None:
        """Add actions such as "Fa", the next forward of chunk a."""
        for _ in range(times):
            self.actions += map(self._next, words)

    def split(self, chunk: str) -> None:
        """Add the half of a backward for the input; that for the weights comes later."""
        self.add(f"I{chunk}")
        half = self.actions[-1]
        self.deferred.append(Action("W", half.stage, half.microbatch))

    def late(self) -> None:
        """Add the oldest half that was left for later, if there is one."""
        if self.deferred:
            self.actions.append(self.deferred.popleft())

    def backward(self, chunk: str, halves: bool) -> None:
        """Add a backward, or only its half for the input."""
        if halves:
            self.split(chunk)
        else:
            self.add(f"B{chunk}")

    def overlap(self, forward: str, backward: str) -> None:
        """Add a forward and a backward at the same time."""
        self.actions.append(Action.overlap(self._next(f"F{forward}"), self._next(f"B{backward}")))

    def _next(self, word: str) -> Action:
        kind, chunk = word
        # A backward has the next microbatch of its chunk, whole or in halves.
        counted = f"I{chunk}" if kind == "B" else word
        microbatch = self.counts[counted]
        self.counts[counted] += 1
        return Action(kind, self._stages[chunk], microbatch)


def _folded(name: str, rows: list[list[Action]], microbatches: int) -> Schedule:
    ranks = len(rows)
    return Schedule(name, rows, [*range(ranks), *reversed(range(ranks))], microbatches)
