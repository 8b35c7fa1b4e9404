"""Ranks that go through their lists each at its own pace: where each receives and sends. Pure standard library.

What a rank does is in rows: in each it receives, then does one action, then sends what that made. Row k of a rank has
nothing to do with row k of another one.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace

from peerax.pipeline.executor._ticks import COLUMN_OF, Tick
from peerax.pipeline.schedules import Action, Schedule
from peerax.pipeline.schedules._action import MESSAGES
from peerax.pipeline.schedules._messages import ends, messages_of
from peerax.pipeline.schedules._needs import RECEIVED, SENT, consumed

Channel = tuple[int, int]  # the buffer that is sent, and how far (modulo ranks) the destination is from the source
WORDS = {kind: ("forward", "backward", "weights")[number] for kind, number in COLUMN_OF.items()}


@dataclass
class Row:
    """What a rank does in a round of its loop, in this order.

    Args:
        receives: what comes by which channels.
        action: one at most.
        send: what is sent then, and by which channel.
    """

    receives: dict[Channel, Action] = field(default_factory=dict)
    action: Action | None = None
    send: tuple[Channel, Action] | None = None

    @property
    def tick(self) -> Tick:
        """Return the action as a tick."""
        return Tick(**{WORDS[self.action.kind]: self.action}) if self.action else Tick()


@dataclass(frozen=True)
class Rows:
    """The rows of all ranks.

    Args:
        of_ranks: for each rank its rows, all as many.
        buffers: 1 if what is made is sent before something else is made, and 2 if what a forward has made and what a
            backward has made may both wait for that.
    """

    of_ranks: tuple[tuple[Row, ...], ...]
    buffers: int


def in_rows(schedule: Schedule) -> Rows:
    """Return the rows of a schedule without faults.

    Sends and receives that are written in its lists stay where they are. If there are none, a rank sends at once, and
    receives right before it needs something, so that it waits for nothing else.

    Raises ValueError if messages are not received in the order in which they are sent, or are sent too late.
    """
    if schedule.has_messages:
        _check_order(schedule)
        schedule = schedule.without_overlaps()
    else:
        schedule = received_late(schedule)
    buffers = _buffers(schedule)
    of_ranks = [_of_rank(schedule, rank, buffers) for rank in range(schedule.ranks)]
    most = max(map(len, of_ranks))
    return Rows(tuple(tuple(rows + [Row()] * (most - len(rows))) for rows in of_ranks), buffers)


def _of_rank(schedule: Schedule, rank: int, buffers: int) -> list[Row]:
    rows = [Row()]
    for action in schedule.actions[rank]:
        row = rows[-1]
        if action.kind in MESSAGES:
            other, buffer = _other(schedule, action), (buffers - 1) * action.kind.endswith("B")
        if action.kind in RECEIVED:
            channel = buffer, (rank - other) % schedule.ranks
            if row.action or row.send or any(channel <= before for before in row.receives):
                rows.append(row := Row())
            row.receives[channel] = action
        elif action.kind in SENT:
            if row.send:
                rows.append(row := Row())
            row.send = (buffer, (other - rank) % schedule.ranks), action
        elif action.kind in COLUMN_OF:
            if row.action or row.send:
                rows.append(row := Row())
            row.action = action
    return rows


def _buffers(schedule: Schedule) -> int:
    """Return how many are needed for what is made and not yet sent; there are two at most."""
    buffers = 1
    for rank, row in enumerate(schedule.actions):
        made: dict[str, Action] = {}  # by a forward and by a backward
        last = None
        for number, action in enumerate(row, 1):
            if action.kind in ("F", "B", "I"):
                last = "F" if action.kind == "F" else "B"
                made[last] = action
            elif action.kind in SENT:
                what, new = SENT[action.kind], made[action.kind[-1]]
                if (new.stage, new.microbatch) != (action.stage, action.microbatch):
                    raise ValueError(
                        f"{schedule.name}: rank {rank} sends {action} (action {number} of its list) after {new}, and "
                        f"only the last {what} is there to be sent\n  help: put each send behind what makes it, as "
                        "Schedule.with_messages does"
                    )
                if last != action.kind[-1]:
                    buffers = 2
    return buffers


def received_late(schedule: Schedule) -> Schedule:
    """Return the schedule with all messages, sent at once and received as late as possible.

    From one rank to another, messages are received in the order in which they are sent: what was sent before the one
    that is needed is received with it, and takes no time, since it is there.
    """
    schedule = schedule.without_overlaps()
    coming: dict[tuple[int, int], list[Action]] = defaultdict(list)
    for rank, row in enumerate(schedule.actions):
        for action in row:
            for _, receive, to in messages_of(schedule, action):
                coming[rank, to].append(receive)
    rows = []
    for rank, row in enumerate(schedule.actions):
        made: list[Action] = []
        for action in row:
            for value in consumed(schedule, action):
                source = schedule.placement[value.stage]
                if source != rank and (receive := ends(value)[1]) in coming[source, rank]:
                    number = coming[source, rank].index(receive) + 1
                    made += coming[source, rank][:number]
                    del coming[source, rank][:number]
            made.append(action)
            made += [send for send, _, _ in messages_of(schedule, action)]
        rows.append(tuple(made))
    return replace(schedule, actions=tuple(rows))


def _other(schedule: Schedule, action: Action) -> int:
    """Return the rank at the other end of a send or a receive."""
    step = {"SEND_F": 1, "SEND_B": -1, "RECV_F": -1, "RECV_B": 1}[action.kind]
    return schedule.placement[action.stage + step]


def _check_order(schedule: Schedule) -> None:
    """Messages from one rank to another are told apart by their order only."""
    sent: dict[tuple[int, int], list[Action]] = defaultdict(list)
    for rank, row in enumerate(schedule.actions):
        for action in row:
            if action.kind in SENT:
                step = 1 if action.kind == "SEND_F" else -1
                receive = Action(f"RECV_{action.kind[-1]}", action.stage + step, action.microbatch)
                sent[rank, _other(schedule, action)].append(receive)
    for rank, row in enumerate(schedule.actions):
        for number, action in enumerate(row, 1):
            if action.kind not in RECEIVED:
                continue
            source = _other(schedule, action)
            if (first := sent[source, rank].pop(0)) != action:
                raise ValueError(
                    f"{schedule.name}: rank {rank} receives {action} (action {number} of its list) before {first}, "
                    f"which rank {source} sends first\n  help: leave sends and receives out of the lists, or put them "
                    "where Schedule.with_messages does"
                )
