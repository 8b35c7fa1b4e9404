"""Schedules in which each rank has one stage: GPipe, 1F1B and the zero-bubble ones that come from it."""

from collections import deque
from collections.abc import Callable

from peerax.pipeline.schedules._action import Action
from peerax.pipeline.schedules._demand import require_counts
from peerax.pipeline.schedules._schedule import Schedule


def gpipe(ranks: int, microbatches: int) -> Schedule:
    """Make the schedule GPipe: all forwards, then all backwards (Huang et al., arXiv:1811.06965, section 2.2).

    The bubble is that of 1F1B, but a rank keeps the activations of all microbatches.

    Args:
        ranks, microbatches: any numbers.

    Returns:
        A Schedule.
    """
    require_counts("gpipe", ranks, microbatches)
    rows = [
        [Action(kind, rank, microbatch) for kind in "FB" for microbatch in range(microbatches)] for rank in range(ranks)
    ]
    return Schedule("gpipe", rows, range(ranks), microbatches)


def one_forward_one_backward(ranks: int, microbatches: int) -> Schedule:
    """Make the schedule 1F1B (PipeDream-flush; Narayanan et al., arXiv:2104.04473, section 2.2.1).

    A rank begins with as many forwards as there are ranks behind it, and then does one forward and one backward in
    turns, so that it keeps the activations of at most as many microbatches as there are ranks.

    Args:
        ranks, microbatches: any numbers.

    Returns:
        A Schedule.
    """
    return _flat("1f1b", ranks, microbatches, lambda behind: behind)


def eager_1f1b(ranks: int, microbatches: int) -> Schedule:
    """Make 1F1B with twice as many forwards at the beginning (as JaxPP has it, arXiv:2412.14374).

    A message then has the time of one more forward and backward to travel, and a rank keeps up to twice as much.

    Args:
        ranks, microbatches: any numbers.

    Returns:
        A Schedule.
    """
    return _flat("eager-1f1b", ranks, microbatches, lambda behind: 2 * behind)


def zb_h1(ranks: int, microbatches: int) -> Schedule:
    """Make ZB-H1: 1F1B with backwards in halves, those for the weights late (Qi et al., arXiv:2401.10241, fig. 3 top).

    The gradient of the input is on its way earlier, and the rest fills a part of the bubble, with what 1F1B keeps on
    its first rank on every rank.

    Args:
        ranks, microbatches: any numbers; below one microbatch for each rank the bubble is larger.

    Returns:
        A Schedule.
    """
    return _flat("zb-h1", ranks, microbatches, lambda behind: behind, lambda rank: rank)


def zb_h2(ranks: int, microbatches: int) -> Schedule:
    """Make ZB-H2: no rank is idle between its first and its last action (arXiv:2401.10241, fig. 3 bottom).

    It keeps nearly twice as much as ZB-H1. What is left is that ranks start and end at different times, which only goes
    where an optimiser does not wait for all of them: a norm of all gradients, for example, brings it back.

    Args:
        ranks, microbatches: any numbers; with fewer than 2 ranks - 1 microbatches ranks are idle in between.

    Returns:
        A Schedule.
    """
    return _flat("zb-h2", ranks, microbatches, lambda behind: 2 * behind, lambda rank: 2 * rank)


def _flat(
    name: str,
    ranks: int,
    microbatches: int,
    warmup: Callable[[int], int],
    late: Callable[[int], int] | None = None,
) -> Schedule:
    """Forwards by way of warm-up, then one forward and one backward in turns.

    Args:
        warmup: from the number of ranks behind a rank, how many forwards it begins with.
        late: from the rank, how many halves for the weights it is behind with; None if backwards are not split.
    """
    require_counts(name, ranks, microbatches)
    rows = []
    for rank in range(ranks):
        begun = min(warmup(ranks - 1 - rank), microbatches)
        row = [Action("F", rank, microbatch) for microbatch in range(begun)]
        pending: deque[int] = deque()
        for microbatch in range(microbatches):
            if begun < microbatches:
                row.append(Action("F", rank, begun))
                begun += 1
            row.append(Action("B" if late is None else "I", rank, microbatch))
            pending.append(microbatch)
            if late is not None and microbatch + 1 > late(rank):
                row.append(Action("W", rank, pending.popleft()))
        if late is not None:
            row += [Action("W", rank, microbatch) for microbatch in pending]
        rows.append(row)
    return Schedule(name, rows, range(ranks), microbatches)
