"""From lists of actions to ticks, in which all ranks run in step. Pure standard library.

In a tick a rank does at most one forward, one backward or its half for the input, and one half for the weights, in this
order; at the end of it messages travel. So a tick lasts as long as what the rank with most to do does in it. There are
two ways to fill ticks: with one action each, and with all that is ready. Which is shorter depends on the schedule.
"""

from dataclasses import dataclass
from itertools import count

from peerax.pipeline.schedules import Action, Schedule
from peerax.pipeline.schedules._needs import Value, consumed, provided

COLUMN_OF = {"F": 0, "B": 1, "I": 1, "W": 2}
_UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
_MOST = {"shortest": (1, 3), "one": (1,), "all": (3,)}


@dataclass(frozen=True)
class Tick:
    """What a rank does in a tick: a forward, then a backward or its half for the input, then one for the weights."""

    forward: Action | None = None
    backward: Action | None = None
    weights: Action | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return what there is, in order."""
        return tuple(action for action in (self.forward, self.backward, self.weights) if action)


Ticks = tuple[tuple[Tick, ...], ...]  # for each tick what each rank does


def in_ticks(schedule: Schedule, filled: str = "shortest") -> Ticks:
    """Return the ticks of a schedule without faults.

    Args:
        filled: with "one" action of each rank, with "all" that are ready, or whichever is "shortest", if a forward
            costs 1, a backward 2, and its halves 1 each.
    """
    if filled not in _MOST:
        raise ValueError(f"ticks is one of {', '.join(_MOST)}, not {filled!r}")
    schedule = schedule.compute_only().without_overlaps()
    return min((_filled(schedule, most) for most in _MOST[filled]), key=units)


def units(ticks: Ticks) -> int:
    """Return how long it takes, if in each tick all wait for the rank with most to do."""
    return sum(max(sum(_UNITS[a.kind] for a in tick.actions) for tick in row) for row in ticks)


def forwards_only(schedule: Schedule, microbatches: int) -> Schedule:
    """Return the forwards of so many microbatches, with the stages where the schedule has them."""
    ranks = schedule.ranks

    def group_by_group(unit: tuple[int, int]) -> tuple[int, int, int]:
        stage, microbatch = unit
        return microbatch // ranks, schedule.chunk_of(stage), microbatch

    rows = []
    for rank in range(ranks):
        stages = [stage for stage, on in enumerate(schedule.placement) if on == rank]
        all_units = [(stage, microbatch) for stage in stages for microbatch in range(microbatches)]
        rows.append([Action("F", *unit) for unit in sorted(all_units, key=group_by_group)])
    return Schedule(f"forwards of {schedule.name}", rows, schedule.placement, microbatches)


def _filled(schedule: Schedule, most: int) -> Ticks:
    """Let each rank do in each tick what it can, but not more than so many actions."""
    done: dict[Value, int] = {}
    heads = [0] * schedule.ranks
    left = sum(map(len, schedule.actions))
    made = []
    for number in count():
        if not left:
            return tuple(made)
        row = []
        for rank, actions in enumerate(schedule.actions):
            chosen: list[Action | None] = [None, None, None]
            last = -1
            while heads[rank] < len(actions) and len([a for a in chosen if a]) < most:
                action = actions[heads[rank]]
                column = COLUMN_OF[action.kind]
                if column <= last or not _is_ready(schedule, rank, action, done, number):
                    break
                chosen[column], last = action, column
                heads[rank] += 1
                left -= 1
                done |= dict.fromkeys(provided(action), number)
            row.append(Tick(*chosen))
        if not any(tick.actions for tick in row):
            raise AssertionError("a schedule without faults stops")
        made.append(tuple(row))


def _is_ready(schedule: Schedule, rank: int, action: Action, done: dict[Value, int], now: int) -> bool:
    """What another rank did is here in the tick after that."""
    for value in consumed(schedule, action):
        if value not in done or (done[value] == now and schedule.placement[value.stage] != rank):
            return False
    return True
