"""Where the sends and receives of a schedule are.

Each message is put behind the action that makes it, in one order of all actions and messages, and both ranks take their
own ones from it. What is first in that order can always take place, also where a send waits until it is received: so
nothing can hang.
"""

from collections.abc import Iterator
from dataclasses import replace

from peerax.pipeline.schedules._action import MESSAGES, Action
from peerax.pipeline.schedules._costs import Costs
from peerax.pipeline.schedules._needs import Value, provided, receiver
from peerax.pipeline.schedules._replay import replay
from peerax.pipeline.schedules._schedule import Schedule

_WORDS = {"output": "F", "gradient": "B"}


def with_messages(schedule: Schedule, costs: Costs | None = None) -> Schedule:
    """Return the schedule with all sends and receives; the costs fix which of two messages comes first."""
    rows = tuple(tuple(action for action in row if action.kind not in MESSAGES) for row in schedule.validate().actions)
    schedule = replace(schedule, actions=rows)
    # As if messages took no time: where sends wait, other orders take longer as a rule, and are no safer.
    at_once = replace(costs or Costs(), latency_s=0.0, message_bytes=0)
    placed: list[tuple[float, float, int, int, Action]] = []
    for rank, row in enumerate(replay(schedule, at_once).times):
        for timed in row:
            placed.append((timed.start_s, timed.order, 0, rank, timed.action))
            for number, (send, receive, to) in enumerate(messages_of(schedule, timed.action), 1):
                when = timed.end_s, timed.order + 0.5, number
                placed += [(*when, rank, send), (*when, to, receive)]
    rows: list[list[Action]] = [[] for _ in schedule.actions]
    for _, _, _, rank, action in sorted(placed, key=lambda entry: entry[:3]):
        rows[rank].append(action)
    return replace(schedule, actions=tuple(map(tuple, rows)))


def messages_of(schedule: Schedule, action: Action) -> Iterator[tuple[Action, Action, int]]:
    """Yield for each message that an action makes the send, the receive, and the rank that receives."""
    for value in provided(action):
        to = receiver(schedule, value)
        if to is not None and not value.sent:
            yield *ends(value), to


def ends(value: Value) -> tuple[Action, Action]:
    """Return the send and the receive of a value."""
    word = _WORDS[value.what]
    other = value.stage + (1 if word == "F" else -1)
    return Action(f"SEND_{word}", value.stage, value.microbatch), Action(f"RECV_{word}", other, value.microbatch)
