"""What may be wrong with a schedule, and how it is said."""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from peerax.pipeline.schedules._action import COMPUTE, MESSAGES, Action
from peerax.pipeline.schedules._needs import Value, consumed, needs, provided, providers, receiver
from peerax.pipeline.schedules._schedule import Schedule

_MOST_FAULTS, _MOST_RANKS, _AROUND = 8, 16, 5


@dataclass(frozen=True)
class Fault:
    """Say what is wrong with one action of a schedule.

    Args:
        rank: whose list it is in, or must be in.
        action: what is wrong, or missing.
        why: in words.
        places: (rank, position in its list) of the actions that have to do with it; none if it is missing.
    """

    rank: int
    action: Action
    why: str
    places: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        at = f" (action {self.places[0][1] + 1} of its list)" if self.places else ""
        return f"rank {self.rank}: {self.action}{at} {self.why}"


class ScheduleError(ValueError):
    """A schedule cannot be run.

    Args:
        schedule: the schedule.
        faults: what is wrong with it.
    """

    def __init__(self, schedule: Schedule, faults: tuple[Fault, ...]) -> None:
        self.schedule, self.faults = schedule, faults
        lines = [f"the schedule {schedule.name} cannot be run"]
        lines += [f"  {fault}" for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            lines.append(f"  and {len(faults) - _MOST_FAULTS} more")
        super().__init__("\n".join([*lines, *_grid(schedule, faults[:_MOST_FAULTS])]))


def faults(schedule: Schedule) -> tuple[Fault, ...]:
    """Return what is wrong; what follows from something else is not said."""
    return (
        tuple(_misplaced(schedule))
        or tuple(_counted(schedule))
        or (tuple(_messages(schedule)) if schedule.has_messages else ())
        or tuple(_stuck(schedule))
    )


def _all(schedule: Schedule) -> Iterator[tuple[int, int, Action]]:
    for rank, row in enumerate(schedule.actions):
        for position, action in enumerate(row):
            for leaf in action.leaves:
                yield rank, position, leaf


def _misplaced(schedule: Schedule) -> Iterator[Fault]:
    """What is of no stage or microbatch, or of another rank; all of a stage that is on the wrong rank is one fault."""
    strays: dict[tuple[int, int], list[tuple[int, Action]]] = defaultdict(list)
    for rank, position, leaf in _all(schedule):
        why = ""
        if leaf.stage >= schedule.stages:
            why = f"is of stage {leaf.stage}, but the stages are 0..{schedule.stages - 1}"
        elif leaf.microbatch is not None and leaf.microbatch >= schedule.microbatches:
            why = f"is of microbatch {leaf.microbatch}, but the microbatches are 0..{schedule.microbatches - 1}"
        elif schedule.placement[leaf.stage] != rank:
            strays[rank, leaf.stage].append((position, leaf))
        if why:
            yield Fault(rank, leaf, why, ((rank, position),))
    for (rank, stage), found in strays.items():
        more = f", as {len(found) - 1} more of the list are" if len(found) > 1 else ""
        why = f"is of stage {stage}, which is on rank {schedule.placement[stage]}{more}"
        yield Fault(rank, found[0][1], why, tuple((rank, position) for position, _ in found))


def _counted(schedule: Schedule) -> Iterator[Fault]:
    """Each stage must compute each microbatch once: a forward, and a backward or both its halves."""
    places: dict[Action, list[tuple[int, int]]] = defaultdict(list)
    for rank, position, leaf in _all(schedule):
        if leaf.kind in (*COMPUTE, *MESSAGES):
            places[leaf].append((rank, position))
    for action, found in places.items():
        if len(found) > 1:
            before = f"is there already, as action {found[0][1] + 1}"
            yield Fault(found[1][0], action, before, (found[1], found[0], *found[2:]))
    for stage, rank in enumerate(schedule.placement):
        for microbatch in range(schedule.microbatches):
            forward, backward, half, weights = (Action(kind, stage, microbatch) for kind in COMPUTE)
            if forward not in places:
                yield Fault(rank, forward, "is missing")
            halves = [action for action in (half, weights) if action in places]
            if backward in places:
                for action in halves:
                    why = f"is part of {backward}, which is there as well"
                    yield Fault(rank, action, why, (places[action][0], places[backward][0]))
            elif not halves:
                # Which of them is meant is seen by what the stage has otherwise.
                split = any(Action("I", stage, other) in places for other in range(schedule.microbatches))
                missing = f"and {weights} are missing" if split else "is missing"
                yield Fault(rank, half if split else backward, missing)
            else:
                for action in (half, weights):
                    if action not in halves:
                        yield Fault(rank, action, "is missing")


def _messages(schedule: Schedule) -> Iterator[Fault]:
    """If sends and receives are written, each value that goes to another rank has one of each, at the right place."""
    at = {leaf: (rank, position) for rank, position, leaf in _all(schedule)}
    wanted: set[Action] = set()
    for rank, position, leaf in _all(schedule):
        for value in provided(leaf):
            if value.sent or receiver(schedule, value) is None:
                continue
            send = Action("SEND_F" if value.what == "output" else "SEND_B", value.stage, value.microbatch)
            wanted.add(send)
            if send not in at:
                yield Fault(rank, send, f"is missing: {leaf} is for rank {receiver(schedule, value)}")
            elif at[send][1] < position:
                yield Fault(rank, send, f"comes before {leaf}", (at[send], (rank, position)))
        if leaf.kind not in COMPUTE:
            continue
        for value in consumed(schedule, leaf):
            if schedule.placement[value.stage] == rank:
                continue
            receive = Action("RECV_F" if value.what == "output" else "RECV_B", leaf.stage, leaf.microbatch)
            wanted.add(receive)
            if receive not in at:
                source = schedule.placement[value.stage]
                yield Fault(rank, receive, f"is missing: {leaf} needs what rank {source} sends")
            elif at[receive][1] > position:
                yield Fault(rank, receive, f"comes after {leaf}, which needs it", (at[receive], (rank, position)))
    for action, place in at.items():
        if action.kind in MESSAGES and action not in wanted:
            ahead = action.kind in ("SEND_F", "RECV_B")
            other = action.stage + (1 if ahead else -1)
            why = "is for a stage of the same rank" if 0 <= other < schedule.stages else "is for no other stage"
            yield Fault(place[0], action, why, (place,))


def _stuck(schedule: Schedule) -> Iterator[Fault]:
    """Let each rank go on as far as it can; ranks that wait for each other in a circle are stuck."""
    written, done = schedule.has_messages, set()
    heads = [0] * schedule.ranks
    waiting: dict[Value, list[int]] = defaultdict(list)
    going = deque(range(schedule.ranks))
    while going:
        rank = going.popleft()
        row = schedule.actions[rank]
        while heads[rank] < len(row):
            missing = next((v for v in needs(schedule, row[heads[rank]], written) if v not in done), None)
            if missing is not None:
                waiting[missing].append(rank)
                break
            for value in provided(row[heads[rank]]):
                done.add(value)
                going += waiting.pop(value, ())
            heads[rank] += 1
    made = providers(schedule)
    # Each rank waits for one other, so that from each of them a way leads into one circle.
    for_whom = {rank: made[value] for value, ranks in waiting.items() for rank in ranks}
    seen: set[int] = set()
    for rank in sorted(for_whom):
        way: list[int] = []
        while rank not in seen:
            seen.add(rank)
            way.append(rank)
            rank = for_whom[rank][0]
        if rank in way:
            circle = way[way.index(rank) :]
            yield _circle(schedule, circle, heads, for_whom)


def _circle(schedule: Schedule, circle: list[int], heads: list[int], for_whom: dict[int, tuple[int, int]]) -> Fault:
    words = []
    for rank in circle:
        other, position = for_whom[rank]
        needed = schedule.actions[other][position]
        head = schedule.actions[other][heads[other]]
        if needed == head:
            words.append(f"needs itself, as {head}")
        elif len(circle) == 1:
            words.append(f"needs {needed}, which comes later in the same list")
        else:
            words.append(f"waits for {needed}, which rank {other} does after {head}")
    why = "; and that ".join(words)
    places = tuple((rank, heads[rank]) for rank in circle)
    places += tuple(for_whom[rank] for rank in circle)
    return Fault(circle[0], schedule.actions[circle[0]][heads[circle[0]]], why, tuple(dict.fromkeys(places)))


def _grid(schedule: Schedule, found: tuple[Fault, ...]) -> Iterator[str]:
    """Yield the lists of the ranks, as much of them as is near to what is wrong, which is in >arrows<."""
    marked = {place for fault in found for place in fault.places}
    ranks = sorted({fault.rank for fault in found} | {rank for rank, _ in marked})
    for rank in ranks[:_MOST_RANKS]:
        row = schedule.actions[rank]
        near = [position for other, position in marked if other == rank]
        shown = {p for n in near for p in range(n - _AROUND, n + _AROUND + 1)} or set(range(2 * _AROUND))
        words, last = [], -1
        for position in sorted(p for p in shown if 0 <= p < len(row)):
            if position > last + 1:
                words.append("...")
            words.append(f">{row[position]}<" if position in near else str(row[position]))
            last = position
        if last + 1 < len(row):
            words.append("...")
        yield f"    rank {rank}: {' '.join(words)}"
    if len(ranks) > _MOST_RANKS:
        yield f"    and {len(ranks) - _MOST_RANKS} more ranks"
