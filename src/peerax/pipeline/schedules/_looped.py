"""Schedules in which stages go around: stage s is on rank s mod ranks, so that each rank has several chunks."""

from collections import deque
from collections.abc import Callable, Iterator

from peerax.pipeline.schedules._action import Action
from peerax.pipeline.schedules._demand import require, require_counts
from peerax.pipeline.schedules._schedule import Schedule

Unit = tuple[int, int]  # (chunk, microbatch)


def interleaved_1f1b(
    ranks: int, microbatches: int, chunks: int = 2, *, group: int | None = None, overlap: bool = False
) -> Schedule:
    """Make interleaved 1F1B (Narayanan et al., arXiv:2104.04473, section 2.2.2).

    A group of microbatches goes through the first chunk of a rank, then through its second one, and so on, so that the
    bubble is that of 1F1B divided by the number of chunks, for more messages and more memory.

    Args:
        ranks, chunks: any numbers; with one chunk it is eager 1F1B.
        microbatches: a multiple of the number of groups, of which there are as many as groups of the size `ranks` fit.
        group: size of a group, from `ranks` to `microbatches`, if it is to be another one; the last group may be
            smaller, but not smaller than `ranks`.
        overlap: begin with one more forward, so that a forward and a backward that are neighbours are never of the same
            microbatch, and may take place at the same time.

    Returns:
        A Schedule.

    Raises:
        ValueError: microbatches or group do not fit; the message names those that do.
    """
    name = "interleaved-1f1b"
    size = _group(name, ranks, microbatches, chunks, group)

    def warmup(rank: int) -> int:
        return (chunks - 1) * size + 2 * (ranks - 1 - rank) + overlap

    return _interleaved(name, ranks, microbatches, chunks, size, warmup, None)


def interleaved_zero_bubble(ranks: int, microbatches: int, chunks: int = 2, *, group: int | None = None) -> Schedule:
    """Make interleaved 1F1B with backwards in halves, as torch.distributed.pipelining has it; see zb_h1.

    Args:
        ranks, microbatches, chunks, group: as for interleaved_1f1b; with one chunk it is ZB-H1.

    Returns:
        A Schedule.

    Raises:
        ValueError: microbatches or group do not fit; the message names those that do.
    """
    name = "interleaved-zb"
    size = _group(name, ranks, microbatches, chunks, group)
    return _interleaved(
        name,
        ranks,
        microbatches,
        chunks,
        size,
        lambda rank: (chunks - 1) * size + ranks - 1 - rank,
        lambda rank: rank,
    )


def looped_bfs(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Make looped breadth-first: GPipe with several chunks (Lamy-Poirier, arXiv:2211.05953).

    All microbatches go through a chunk before the next one begins, which is what weights that are gathered for each
    chunk need. The bubble is that of interleaved 1F1B, but everything is kept.

    Args:
        ranks, microbatches, chunks: any numbers.

    Returns:
        A Schedule.
    """
    require_counts("looped-bfs", ranks, microbatches, chunks)
    units = [(chunk, microbatch) for chunk in range(chunks) for microbatch in range(microbatches)]
    return _loop("looped-bfs", ranks, microbatches, chunks, lambda rank: _there_and_back(rank, ranks, units))


def circular(ranks: int, microbatches: int, chunks: int = 2, *, delay: int = 1) -> Schedule:
    """Make the circular schedule of praxis and MaxText, with backwards in the order that differentiation gives them.

    In step t rank r computes unit t - delay r, where a unit is a chunk and a microbatch, all microbatches of a chunk
    after each other; a message has `delay` steps to arrive. It is what the derivative of a loop of forwards does.

    Args:
        ranks, chunks: any numbers.
        microbatches: at least delay times ranks, if there is more than one chunk.
        delay: 1, or 2 if messages travel while the next step computes.

    Returns:
        A Schedule.

    Raises:
        ValueError: there are too few microbatches.
    """
    require_counts("circular", ranks, microbatches, chunks)
    if delay not in (1, 2):
        raise ValueError(f"circular: delay is 1 or 2, not {delay!r}")
    if chunks > 1:
        demand = f"at least {delay * ranks} microbatches, {delay} for each of the {ranks} ranks"
        require("circular", microbatches, lambda m: m >= delay * ranks, demand, "looped-bfs, which takes any number")
    units = [(chunk, microbatch) for chunk in range(chunks) for microbatch in range(microbatches)]
    return _loop("circular", ranks, microbatches, chunks, lambda rank: _there_and_back(rank, ranks, units))


def combined_tick(ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Make the schedule for ranks that run in step: one forward and one backward in each step.

    Forward unit k is in step k + r on rank r, and backward unit k in step (chunks ranks - 1) + (ranks - 1 - r) + k,
    where units go by groups of `ranks` microbatches through all chunks. In a step the forward comes first. If steps
    without a forward or without a backward cost less, it takes as long in step as interleaved 1F1B does out of it.

    Args:
        ranks, chunks: any numbers; with one chunk it has the order of eager 1F1B.
        microbatches: a multiple of ranks.

    Returns:
        A Schedule.

    Raises:
        ValueError: microbatches do not fit; the message names those that do.
    """
    require_counts("combined-tick", ranks, microbatches, chunks)
    demand = f"a multiple of {ranks} microbatches, the number of ranks"
    require("combined-tick", microbatches, lambda m: m % ranks == 0, demand, "eager-1f1b, which takes any number")
    forwards = list(_units(microbatches, chunks, ranks))
    backwards = [(chunks - 1 - chunk, microbatch) for chunk, microbatch in forwards]

    def row(rank: int) -> list[Action]:
        first = chunks * ranks - 1 + ranks - 1 - rank
        steps = [(k + rank, 0, Action("F", chunk * ranks + rank, m)) for k, (chunk, m) in enumerate(forwards)]
        steps += [(k + first, 1, Action("B", chunk * ranks + rank, m)) for k, (chunk, m) in enumerate(backwards)]
        return [action for _, _, action in sorted(steps, key=lambda step: step[:2])]

    return _loop("combined-tick", ranks, microbatches, chunks, row)


def _group(name: str, ranks: int, microbatches: int, chunks: int, group: int | None) -> int:
    require_counts(name, ranks, microbatches, chunks)

    def fits(size: int) -> bool:
        # A last group that does not reach the last rank before the first backward is due would wait for it for ever.
        last = microbatches % size
        return not last or last >= ranks

    least = min(ranks, microbatches)
    smallest = next(size for size in range(least, microbatches + 1) if fits(size))
    if group is not None:
        if not isinstance(group, int) or not least <= group <= microbatches or not fits(group):
            sizes = ", ".join(str(size) for size in range(least, microbatches + 1) if fits(size))
            raise ValueError(
                f"{name} needs groups of {ranks} microbatches or more, one for each rank, the last one too; "
                f"of {microbatches} there are no such groups of {group!r}\n  help: take a group of {sizes}"
            )
        return group

    def rounds(count: int) -> int:
        return max(1, count // ranks)

    demand = f"{rounds(microbatches)} equal groups of microbatches, each of {ranks} or more, one for each rank"
    instead = f"groups of another size: group={smallest}"
    require(name, microbatches, lambda count: count % rounds(count) == 0, demand, instead)
    return microbatches // rounds(microbatches)


def _units(microbatches: int, chunks: int, group: int) -> Iterator[Unit]:
    """Groups of microbatches, each through all chunks."""
    for first in range(0, microbatches, group):
        for chunk in range(chunks):
            for microbatch in range(first, min(first + group, microbatches)):
                yield chunk, microbatch


def _interleaved(
    name: str,
    ranks: int,
    microbatches: int,
    chunks: int,
    group: int,
    warmup: Callable[[int], int],
    late: Callable[[int], int] | None,
) -> Schedule:
    """As the flat schedules, with units in the place of microbatches."""
    units = list(_units(microbatches, chunks, group))

    def row(rank: int) -> list[Action]:
        forwards = [Action("F", chunk * ranks + rank, microbatch) for chunk, microbatch in units]
        begun = min(warmup(rank), len(units))
        made = forwards[:begun]
        pending: deque[Action] = deque()
        for k, (chunk, microbatch) in enumerate(units):
            made += forwards[begun + k : begun + k + 1]
            stage = (chunks - 1 - chunk) * ranks + rank
            made.append(Action("B" if late is None else "I", stage, microbatch))
            if late is not None:
                pending.append(Action("W", stage, microbatch))
                if k >= late(rank):
                    made.append(pending.popleft())
        return [*made, *pending]

    return _loop(name, ranks, microbatches, chunks, row)


def _there_and_back(rank: int, ranks: int, units: list[Unit]) -> list[Action]:
    """All forwards, and the backwards the other way round."""
    forwards = [Action("F", chunk * ranks + rank, microbatch) for chunk, microbatch in units]
    return [*forwards, *(Action("B", action.stage, action.microbatch) for action in reversed(forwards))]


def _loop(name: str, ranks: int, microbatches: int, chunks: int, row: Callable[[int], list[Action]]) -> Schedule:
    placement = [stage % ranks for stage in range(chunks * ranks)]
    return Schedule(name, [row(rank) for rank in range(ranks)], placement, microbatches)
