"""A schedule as a program of sends and receives, for the verifier and its simulation."""

from collections import defaultdict
from dataclasses import replace
from typing import Literal

from peerax.pipeline.schedules._action import MESSAGES, Action
from peerax.pipeline.schedules._costs import Costs
from peerax.pipeline.schedules._messages import ends, messages_of, with_messages
from peerax.pipeline.schedules._needs import RECEIVED, SENT, Value, consumed
from peerax.pipeline.schedules._schedule import Schedule
from peerax.timeline import Timeline
from peerax.verifier import Cost, Program, Recv, Send, simulate

Semantics = Literal["rendezvous", "buffered"]


def program(schedule: Schedule, costs: Costs, semantics: Semantics) -> tuple[Program, Cost]:
    """Return the program, and what it costs."""
    if semantics not in ("rendezvous", "buffered"):
        raise ValueError(f"semantics is 'rendezvous' or 'buffered', not {semantics!r}")
    costs.require(schedule.stages)
    lowered = schedule
    if not schedule.has_messages:
        lowered = with_messages(schedule, costs) if semantics == "rendezvous" else _received_late(schedule)
    types, lines = (f"uint8[{costs.message_bytes}]",), _lines(lowered)
    bodies: list[list[Send | Recv]] = []
    before: dict[tuple[int, Send | Recv], float] = {}
    final = []
    for rank, row in enumerate(lowered.actions):
        body: list[Send | Recv] = []
        computed = 0.0
        for action in row:
            if action.kind not in MESSAGES:
                computed += costs.of(action)
                continue
            value = _moved(action)
            other = value.stage + (1 if value.what == "output" else -1)
            perm = ((lowered.placement[value.stage], lowered.placement[other]),)
            line = lines[action.kind[-1], action.stage, action.microbatch]
            end = Send if action.kind in SENT else Recv
            body.append(end(perm, types, (schedule.name, line), tag=2 * value.stage + (value.what == "gradient")))
            before[rank, body[-1]], computed = computed, 0.0
        bodies.append(body)
        final.append(computed)
    cost = Cost(
        costs.latency_s,
        costs.bandwidth_bytes_per_s,
        lambda rank, item: before[rank, item],
        tuple(final),
    )
    return Program.of(bodies), cost


def timeline(schedule: Schedule, costs: Costs, semantics: Semantics) -> Timeline:
    """Simulate the program."""
    made, cost = program(schedule, costs, semantics)
    return simulate(made, cost, semantics=semantics)


def _lines(schedule: Schedule) -> dict[tuple[str, int, int], int]:
    """Return the number of each forward and backward in its list; a send and a receive have that of theirs.

    So no two messages of a rank that have a stage in common have a line in common.
    """
    lines = {}
    for row in schedule.compute_only().actions:
        for number, action in enumerate(row, 1):
            for leaf in action.leaves:
                if leaf.kind != "W":
                    lines["F" if leaf.kind == "F" else "B", leaf.stage, leaf.microbatch] = number
    return lines


def _moved(action: Action) -> Value:
    """Return what a send or a receive moves."""
    what, step = (SENT[action.kind], 0) if action.kind in SENT else RECEIVED[action.kind]
    return Value(what, action.stage + step, action.microbatch)


def _received_late(schedule: Schedule) -> Schedule:
    """Send at once, and receive right before what needs it; earlier only what was sent before it to the same stage."""
    sent: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in schedule.actions:
        for action in row:
            for send, _, _ in messages_of(schedule, action):
                sent[send.kind, send.stage].append(send.microbatch)
    rows = []
    for rank, row in enumerate(schedule.actions):
        lowered: list[Action] = []
        for action in row:
            for value in consumed(schedule, action):
                if schedule.placement[value.stage] == rank:
                    continue
                send, receive = ends(value)
                coming = sent[send.kind, send.stage]
                # If it is not among them, it was received with one that was needed earlier, though sent later.
                while value.microbatch in coming:
                    lowered.append(replace(receive, microbatch=coming.pop(0)))
            lowered.append(action)
            lowered += [send for send, _, _ in messages_of(schedule, action)]
        rows.append(tuple(lowered))
    return replace(schedule, actions=tuple(rows))
