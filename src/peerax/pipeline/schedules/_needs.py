"""What an action needs, and which action provides it: the dependencies between the actions of a pipeline.

A forward needs that of the stage before, of the same microbatch. A backward, or its half for the input, needs the
forward of its own stage, and the gradient that the stage behind returns; the half for the weights needs the half for
the input. If sends are written in the lists, what comes from another rank is provided by the send.
"""

from collections.abc import Iterator
from typing import NamedTuple

from peerax.pipeline.schedules._action import Action
from peerax.pipeline.schedules._schedule import Schedule

_PROVIDED = {"F": ("output",), "B": ("gradient", "weights"), "I": ("gradient",), "W": ("weights",)}
SENT = {"SEND_F": "output", "SEND_B": "gradient"}
RECEIVED = {"RECV_F": ("output", -1), "RECV_B": ("gradient", 1)}


class Value(NamedTuple):
    """What a stage makes of a microbatch.

    Args:
        what: "output" of the forward, "gradient" of the input, or "weights", their gradient.
        sent: whether it is meant as what a send has sent.
    """

    what: str
    stage: int
    microbatch: int
    sent: bool = False


def provided(action: Action) -> Iterator[Value]:
    """Yield what an action provides."""
    for leaf in action.leaves:
        for what in _PROVIDED.get(leaf.kind, ()):
            yield Value(what, leaf.stage, leaf.microbatch)
        if leaf.kind in SENT:
            yield Value(SENT[leaf.kind], leaf.stage, leaf.microbatch, sent=True)


def consumed(schedule: Schedule, action: Action) -> Iterator[Value]:
    """Yield what an action needs from the actions that compute."""
    for leaf in action.leaves:
        kind, stage, microbatch = leaf.kind, leaf.stage, leaf.microbatch
        if kind == "F" and stage:
            yield Value("output", stage - 1, microbatch)
        elif kind in ("B", "I"):
            yield Value("output", stage, microbatch)
            if stage + 1 < schedule.stages:
                yield Value("gradient", stage + 1, microbatch)
        elif kind == "W":
            yield Value("gradient", stage, microbatch)
        elif kind in SENT:
            yield Value(SENT[kind], stage, microbatch)


def needs(schedule: Schedule, action: Action, has_messages: bool) -> Iterator[Value]:
    """Yield what must be there before an action; from another rank it is what was sent, if sends are written."""
    here = schedule.placement[action.stage]
    for value in consumed(schedule, action):
        yield value._replace(sent=has_messages and schedule.placement[value.stage] != here)


def providers(schedule: Schedule) -> dict[Value, tuple[int, int]]:
    """Return for each value the rank, and the position in its list, of the action that provides it."""
    return {
        value: (rank, position)
        for rank, row in enumerate(schedule.actions)
        for position, action in enumerate(row)
        for value in provided(action)
    }


def receiver(schedule: Schedule, value: Value) -> int | None:
    """Return the rank that a value is sent to; None if it stays where it is."""
    to = value.stage + (1 if value.what == "output" else -1)
    if value.what == "weights" or not 0 <= to < schedule.stages:
        return None
    rank = schedule.placement[to]
    return None if rank == schedule.placement[value.stage] else rank
