"""One run of a program, without data: it decides, because no order of events can lead elsewhere.

A message can only ever meet one other end, and a collective only its members, so two events that are possible at the
same time do not disturb each other. Whatever order they happen in, the same ranks are stuck at the end, or none.
"""

from collections import deque
from dataclasses import dataclass, field

from peerax.verifier._code import END, FENCE, JOIN, JUMP, LOOP, NEXT, PARTS, RECV, SEND, SWITCH, Code
from peerax.verifier._ir import Operation, Table
from peerax.verifier._periods import Periods
from peerax.verifier._totals import Totals, kind_of

Iterations = tuple[tuple[int, int], ...]  # (iteration, trip count) of each loop around, outermost first


@dataclass(frozen=True)
class Mismatch:
    """Two ends that met, or two members of a collective, and are not alike."""

    channel: int | None
    group: int | None
    ranks: tuple[int, int]
    operations: tuple[Operation, Operation]
    found: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass
class Run:
    """Where a program is, and what has been seen so far.

    Args:
        buffered: whether a send completes without a receive.
        at: by rank, the position of its next instruction, or of the one that it is blocked in.
        left: by rank, how many ends of that instruction have not completed; 0 if it is not blocked.
        waiting: by channel, rank + 1 if a send waits, -(rank + 1) if a receive does, 0 if none.
        backlog, taken: by channel, messages in buffers, and messages that were ever taken out of one.
        arrived: by group, members that wait in a collective.
        loops: by rank, [iteration, trip count, number of the activation, whether it is plain] of each loop around.
        limits, used: by end, how many of them have another end, and how many were seen.
        pending: by channel with several types, what is in buffers or waits.
        joined: by group with several kinds of collective, who is there.
        mismatches, dropped: what was found, once for each pair of operations, and for each end.
        covered: (rank, n) if an iteration of a loop of unknown length was seen to repeat the one n before.
        unclean: a message was in a buffer when all ranks came to a fence.
        gave_up: there were too many iterations.
        iterations_seen: iterations that were not skipped, of loops without tables.
    """

    code: Code
    buffered: bool
    at: list[int]
    left: list[int]
    waiting: list[int]
    backlog: list[int]
    taken: list[int]
    arrived: list[int]
    loops: list[list[list]]
    limits: dict[tuple, int]
    used: dict[tuple, int]
    pending: dict[int, deque]
    joined: dict[int, list]
    mismatches: dict[tuple, Mismatch] = field(default_factory=dict)
    dropped: dict[tuple, tuple[int, Operation, Iterations]] = field(default_factory=dict)
    covered: set[tuple[int, int]] = field(default_factory=set)
    unclean: bool = False
    gave_up: bool = False
    iterations_seen: int = 0

    @property
    def stuck(self) -> list[int]:
        """Return the ranks that did not reach their end."""
        return [rank for rank, at in enumerate(self.at) if self.code.ranks[rank][at][0] != END]

    def iterations(self, rank: int) -> Iterations:
        """Return where the rank is in the loops around it."""
        return tuple((loop[0], loop[1]) for loop in self.loops[rank])


def start(code: Code, totals: Totals, buffered: bool) -> Run:
    """Return a run in which nothing has happened. Ends that can have no other end are going to be passed over."""
    limits = {(role, c): n for c, n in totals.unequal_channels().items() for role in (SEND, RECV)}
    for group, number in totals.unequal_groups(code.groups).items():
        limits |= {("join", group, rank): number for rank in code.groups[group]}
    ranks, channels = len(code.ranks), len(code.channels)
    return Run(
        code,
        buffered,
        at=[0] * ranks,
        left=[0] * ranks,
        waiting=[0] * channels,
        backlog=[0] * channels,
        taken=[0] * channels,
        arrived=[0] * len(code.groups),
        loops=[[] for _ in range(ranks)],
        limits=limits,
        used=dict.fromkeys(limits, 0),
        pending={c: deque() for c in sorted(totals.mixed_channels())},
        joined={g: [] for g in sorted(totals.mixed_groups())},
    )


def run(state: Run, most_iterations: int = 5_000_000) -> Run:
    """Run a program until nothing more can happen, and return the run.

    Iterations that repeat others are skipped. Where too many are left, of loops without tables, the run gives up.
    """
    at, left, waiting, backlog, arrived = state.at, state.left, state.waiting, state.backlog, state.arrived
    taken, buffered, groups = state.taken, state.buffered, state.code.groups
    periods = Periods(state)
    # A channel or group that needs more than matching is handled by _Ends.
    ends = _Ends(state)
    special = {channel for _, channel in (key for key in state.limits if len(key) == 2)} | set(state.pending)
    special_groups = {key[1] for key in state.limits if len(key) == 3} | set(state.joined)
    # First come, first served: so the ranks stay close to each other, and their states repeat soon.
    ready = deque(range(len(at)))
    activations = iterations = 0
    while ready:
        rank = ready.popleft()
        code, loops, pc = state.code.ranks[rank], state.loops[rank], at[rank]
        while True:
            instruction = code[pc]
            kind = instruction[0]
            if kind == SEND and instruction[1] not in special:
                channel = instruction[1]
                peer = -waiting[channel] - 1
                if peer >= 0:
                    waiting[channel] = 0
                    left[peer] -= 1
                    if not left[peer]:
                        at[peer] += 1
                        ready.append(peer)
                elif buffered:
                    backlog[channel] += 1
                else:
                    waiting[channel] = rank + 1
                    left[rank] = 1
                    break
                pc += 1
            elif kind == RECV and instruction[1] not in special:
                channel = instruction[1]
                peer = waiting[channel] - 1
                if peer >= 0:
                    waiting[channel] = 0
                    left[peer] -= 1
                    if not left[peer]:
                        at[peer] += 1
                        ready.append(peer)
                elif backlog[channel]:
                    backlog[channel] -= 1
                    taken[channel] += 1
                else:
                    waiting[channel] = -rank - 1
                    left[rank] = 1
                    break
                pc += 1
            elif kind <= PARTS:
                if not ends.post(rank, instruction, ready):
                    break
                pc += 1
            elif kind == NEXT:
                loop = loops[-1]
                if loop[0] + 1 < loop[1]:
                    loop[0] += 1
                    pc = instruction[1]
                    if instruction[2]:
                        at[rank] = pc
                        periods.visit(rank)
                        iterations += 1
                        if iterations > most_iterations:
                            state.gave_up = True
                            return state
                else:
                    loops.pop()
                    pc += 1
            elif kind == SWITCH:
                table = instruction[1]
                pc = instruction[2][table.values[loops[-1 - table.depth][0]]]
            elif kind == JUMP:
                pc = instruction[1]
            elif kind == LOOP:
                trip = instruction[1]
                if isinstance(trip, Table):
                    trip = trip.values[loops[-1 - trip.depth][0]]
                if trip:
                    activations += 1
                    loops.append([0, trip, activations, not instruction[3]])
                    pc += 1
                else:
                    pc = instruction[2]
            elif kind == JOIN or kind == FENCE:
                group = instruction[1]
                if group in special_groups and not ends.join(rank, instruction):
                    pc += 1
                    continue
                members = groups[group] if kind == JOIN else instruction[2].members
                arrived[group] += 1
                if arrived[group] < len(members):
                    left[rank] = 1
                    break
                arrived[group] = 0
                if kind == FENCE and any(backlog):
                    state.unclean = True
                for peer in members:
                    if peer != rank:
                        left[peer] = 0
                        at[peer] += 1
                        ready.append(peer)
                pc += 1
            else:
                break  # END
        at[rank] = pc
    state.iterations_seen = iterations
    return state


class _Ends:
    """The ends of messages and collectives that need more than matching: several at once, limits, types."""

    def __init__(self, state: Run) -> None:
        self._state = state

    def post(self, rank: int, instruction: tuple, ready: deque[int]) -> bool:
        """Post all ends of an instruction, and return whether they all completed."""
        state = self._state
        if instruction[0] == PARTS:
            parts, operation = instruction[1:]
        else:
            parts, operation = ((instruction[0], instruction[1], instruction[3]),), instruction[2]
        # One more than there are ends: a part that meets another of the same rank does not let it go on from here.
        state.left[rank] = len(parts) + 1
        for role, channel, types in parts:
            if self._passes_over((role, channel), rank, operation) or self._meets(
                rank, role, channel, types, operation, ready
            ):
                state.left[rank] -= 1
        state.left[rank] -= 1
        return not state.left[rank]

    def _meets(self, rank, role, channel, types, operation, ready) -> bool:
        state, waiting = self._state, self._state.waiting
        pending = state.pending.get(channel)
        waits = waiting[channel]
        if waits and (waits > 0) == (role == RECV):
            waiting[channel] = 0
            peer = abs(waits) - 1
            state.left[peer] -= 1
            if not state.left[peer]:
                state.at[peer] += 1
                ready.append(peer)
        elif role == RECV and state.backlog[channel]:
            state.backlog[channel] -= 1
            state.taken[channel] += 1
        else:
            if pending is not None:
                pending.append((types, operation))
            if role == SEND and state.buffered:
                state.backlog[channel] += 1
                return True
            waiting[channel] = rank + 1 if role == SEND else -rank - 1
            return False
        if pending is not None:
            theirs = pending.popleft()
            if theirs[0] != types:
                mine = (types, operation)
                self._note(channel, *((mine, theirs) if role == SEND else (theirs, mine)))
        return True

    def _note(self, channel: int, sent: tuple, received: tuple) -> None:
        ends = self._state.code.channels[channel]
        mismatch = Mismatch(
            channel, None, (ends.source, ends.destination), (sent[1], received[1]), (sent[0], received[0])
        )
        self._state.mismatches.setdefault((channel, id(sent[1]), id(received[1])), mismatch)

    def join(self, rank: int, instruction: tuple) -> bool:
        """Return whether the rank really joins the collective."""
        _, group, operation = instruction
        if self._passes_over(("join", group, rank), rank, operation):
            return False
        joined = self._state.joined.get(group)
        if joined is not None:
            joined.append((rank, operation))
            if len(joined) == len(self._state.code.groups[group]):
                self._compare(group, joined)
                joined.clear()
        return True

    def _compare(self, group: int, joined: list) -> None:
        (first_rank, first), *rest = sorted(joined, key=lambda member: member[0])
        for rank, operation in rest:
            if kind_of(operation) != kind_of(first):
                mismatch = Mismatch(
                    None,
                    group,
                    (first_rank, rank),
                    (first, operation),
                    ((first.name, *first.types), (operation.name, *operation.types)),
                )
                self._state.mismatches.setdefault((group, id(first), id(operation)), mismatch)

    def _passes_over(self, end: tuple, rank: int, operation: Operation) -> bool:
        """Count an end, and return whether it is one that can have no other end."""
        state = self._state
        limit = state.limits.get(end)
        if limit is None:
            return False
        if state.used[end] >= limit:
            state.dropped.setdefault(end, (rank, operation, state.iterations(rank)))
            return True
        state.used[end] += 1
        return False
