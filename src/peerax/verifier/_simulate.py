"""A run of a program with times, but without data: a timeline.

Each rank has a clock. Where two ends of a message meet, or the members of a collective, the time at which that is over
follows from the times at which they were posted, by maxima and sums. Which ends meet does not depend on time: the k-th
send of a channel meets the k-th receive, and each end belongs to one rank, which posts its ends in the order of the
program. So all times are determined before anything runs, and it does not matter in which order they are found: there
is no queue of events by time, and each rank simply goes on until it needs a time that is not known yet.

Nothing is skipped, so this takes as long as there are operations. What the engine passes over because it can have no
other end is stuck here, as it is in a run.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from peerax.diagnostics import Channel as Ends
from peerax.timeline import Message, RankTime, Span, Timeline
from peerax.timeline._timeline import Kind
from peerax.verifier._code import END, JOIN, JUMP, LOOP, NEXT, PARTS, PASS, RECV, SEND, SWITCH, Code, lower
from peerax.verifier._cost import Cost
from peerax.verifier._ir import Collective, Exchange, Operation, Program, Send, Table, operations
from peerax.verifier._known import Values, with_values
from peerax.verifier._sizes import size_bytes

_MOST_INSTRUCTIONS = 50_000_000


def simulate(
    program: Program,
    cost: Cost,
    *,
    semantics: Literal["rendezvous", "buffered"] = "rendezvous",
    values: Values | None = None,
    most_spans: int = 100_000,
) -> Timeline:
    """Predict when each rank does what, how long it takes in all, and how long each rank waits.

    A rank is in a receive until it has the message, in a collective until all members are there and it is over, and in
    an exchange until both of its parts are. A program that can hang hangs here too: the timeline ends where nothing
    more can happen, and says which ranks are stuck. What does not fit each other is for the check to say; here the
    size of a message is that of the sender.

    Args:
        program: what each rank will do.
        cost: how long messages travel and ranks compute.
        semantics: "rendezvous" if a send is over when the receiver has the message, which is what a GPU does: when both
            are there, it takes what the message costs. Or "buffered" if a send is over at once (the copy into the
            buffer takes no time), and the message travels from then on.
        values: for each value that is not known before the run, by name, the trip count or the number of the branch; or
            a sequence of them, one for each rank.
        most_spans: so many operations are kept, the first ones of each rank; all are counted.

    Returns:
        A Timeline. It is exact for these costs: no order of events leads to another one.

    Raises:
        ValueError: values are missing or do not fit, a dtype has no known size, or the program is too long.

    Example:
        >>> cost = peerax.Cost(latency_s=5e-6, bandwidth_bytes_per_s=50e9, compute_s={("train.py", 12): 1e-3})
        >>> print(peerax.simulate(program, cost))
    """
    if semantics not in ("rendezvous", "buffered"):
        raise ValueError(f"semantics is 'rendezvous' or 'buffered', not {semantics!r}")
    if most_spans < 0:
        raise ValueError(f"most_spans is a number of spans, 0 or more, not {most_spans!r}")
    program = with_values(program, values or {})
    lines = {operation.location for process in program.processes for operation in operations(process.body)}
    cost = cost.of_program(lines, program.size)
    return Simulation(program, cost, semantics == "buffered", most_spans).run()


class _Step(NamedTuple):
    """An instruction that takes time; several if the leaves of an operation travel one by one.

    Args:
        before_s: what the rank computes before the operation.
        first, last: whether the operation begins and ends with it.
        parts: (role, channel) of each end; none for a collective.
        group: number of the group of a collective, else -1.
        size_bytes: of the message, or what the rank gives to a collective.
        travels_s: how long the message travels.
        shown: what all its spans have in common: the kind, the name, the location, the channels, bytes of all leaves
            and the path.
    """

    before_s: float
    first: bool
    last: bool
    parts: tuple[tuple[int, int], ...]
    group: int
    size_bytes: int
    travels_s: float
    shown: tuple[Kind, str, tuple[str, int], tuple[Ends, ...], int, str]


def _steps(code: Code, rank: int, cost: Cost, buffered: bool) -> list[Any]:
    """Return, for each instruction of a rank, its step, what the rank computes for a PASS, or None if it is control."""
    steps: list[Any] = []
    leaf = before = 0
    for instruction in code.ranks[rank]:
        kind = instruction[0]
        if kind == PASS:
            steps.append(cost.before_s(rank, instruction[1]))
            continue
        if kind not in (SEND, RECV, PARTS, JOIN):
            steps.append(None)
            continue
        operation = instruction[2]
        parts: tuple[tuple[int, int], ...] = ()
        types = operation.types
        if kind == PARTS:
            parts = tuple((role, channel) for role, channel, _ in instruction[1])
        elif kind != JOIN:
            parts, types = (instruction[:2],), instruction[3]
        channels = tuple(code.channels[channel][:3] for _, channel in parts)
        size = sum(map(size_bytes, types))
        first, last = leaf == 0, leaf + len(types) == len(operation.types) or kind == JOIN
        # Leaves that are sent one by one travel behind each other, and cost together what one message would. A buffered
        # send does not wait for the leaf before.
        behind = not (buffered or first)
        travels = size / cost.bandwidth_bytes_per_s if behind else cost.message_s(before + size)
        leaf, before = (0, 0) if last else (leaf + len(types), before + size)
        group = instruction[1] if kind == JOIN else -1
        steps.append(
            _Step(
                cost.before_s(rank, operation) if first else 0.0,
                first,
                last,
                parts,
                group,
                size,
                travels,
                _shown(operation, channels),
            )
        )
    return steps


def _shown(operation: Operation, channels: tuple[Ends, ...]) -> tuple:
    size = sum(map(size_bytes, operation.types))
    if isinstance(operation, Collective):
        return "collective", operation.name, operation.location, channels, size, ""
    kind = "exchange" if isinstance(operation, Exchange) else "send" if isinstance(operation, Send) else "recv"
    name = {"exchange": "exchange", "send": "psend", "recv": "precv"}[kind]
    return kind, name, operation.location, channels, size, operation.path


class Simulation:
    """Where all ranks are, and what is known so far.

    Args:
        take: which rank goes on next, out of those that can; any choice gives the same timeline.
    """

    def __init__(
        self,
        program: Program,
        cost: Cost,
        buffered: bool,
        most_spans: int,
        take: Callable[[deque[int]], int] = deque.popleft,
    ) -> None:
        code = lower(program, passes=True)
        size = len(code.ranks)
        self._code, self._cost, self._buffered, self._take = code, cost, buffered, take
        self._most_kept = most_spans // max(1, size)
        self._steps = [_steps(code, rank, cost, buffered) for rank in range(size)]
        self._ready = deque(range(size))
        self._at = [0] * size
        self._loops: list[list[list[int]]] = [[] for _ in range(size)]
        self._clock = [0.0] * size
        # Of the operation that a rank is in: when it began, how many ends are open, when the last end met its other
        # one and when it was over, of those known so far.
        self._began = [0.0] * size
        self._open = [0] * size
        self._matched = [0.0] * size
        self._over = [0.0] * size
        # By channel: (posted, travels, bytes, number of the operation) of each send that is not received, and whether
        # its receive waits. By group: members that wait, and the most bytes that one of them gives.
        self._sent: list[deque[tuple[float, float, int, int]]] = [deque() for _ in code.channels]
        self._wanted = [False] * len(code.channels)
        self._arrived: list[list[int]] = [[] for _ in code.groups]
        self._bytes = [0] * len(code.groups)
        self._busy = [0.0] * size
        self._waiting = [0.0] * size
        self._moving = [0.0] * size
        self._number = [0] * size
        self._spans: list[list[Span]] = [[] for _ in range(size)]
        self._messages: list[Message] = []
        self._left = _MOST_INSTRUCTIONS

    def run(self) -> Timeline:
        """Go on until nothing more can happen."""
        while self._ready:
            self._go(self._take(self._ready))
        stuck = tuple(rank for rank, at in enumerate(self._at) if self._code.ranks[rank][at][0] != END)
        end_s = max(self._clock, default=0.0)
        for rank in stuck:
            self._clock[rank] = self._matched[rank] = end_s
            self._note(rank, self._steps[rank][self._at[rank]], end_s, complete=False)
        times = zip(self._clock, self._busy, self._waiting, self._moving, self._number, strict=True)
        return Timeline(
            tuple(RankTime(*time) for time in times),
            tuple(span for spans in self._spans for span in spans),
            tuple(sorted(self._messages, key=lambda m: (m.posted_s, m.received_s, m.source, m.destination, m.tag))),
            stuck,
            "simulated",
            "buffered" if self._buffered else "rendezvous",
        )

    def _go(self, rank: int) -> None:
        """Let a rank go on until it needs what is not known yet."""
        code, steps, loops, pc = self._code.ranks[rank], self._steps[rank], self._loops[rank], self._at[rank]
        while True:
            instruction = code[pc]
            kind = instruction[0]
            if kind in (SEND, RECV, PARTS, JOIN):
                self._at[rank] = pc
                if not self._post(rank, steps[pc]):
                    return
                pc += 1
            elif kind == PASS:
                self._compute(rank, steps[pc])
                pc += 1
            elif kind == NEXT:
                loop = loops[-1]
                if loop[0] + 1 < loop[1]:
                    loop[0] += 1
                    pc = instruction[1]
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
                    loops.append([0, trip])
                    pc += 1
                else:
                    pc = instruction[2]
            else:
                assert kind == END
                self._compute(rank, self._cost.after_s(rank))
                self._at[rank] = pc
                return
            self._left -= 1
            if not self._left:
                raise ValueError(f"the program is too long: more than {_MOST_INSTRUCTIONS:,} steps; shorten its loops")

    def _compute(self, rank: int, seconds: float) -> None:
        self._clock[rank] += seconds
        self._busy[rank] += seconds

    def _post(self, rank: int, step: _Step) -> bool:
        """Post all ends of a step, and return whether it is over as far as is known."""
        if step.first:
            self._compute(rank, step.before_s)
            self._began[rank] = self._clock[rank]
        now = self._matched[rank] = self._over[rank] = self._clock[rank]
        if step.group >= 0:
            return self._join(rank, step, now)
        # One more than there are ends: a part that meets another of the same rank does not let it go on from here.
        self._open[rank] = len(step.parts) + 1
        for role, channel in step.parts:
            sent = self._sent[channel]
            if role == SEND:
                sent.append((now, step.travels_s, step.size_bytes, self._number[rank]))
                if self._wanted[channel]:
                    self._meet(channel)
                if self._buffered:
                    self._finish(rank, now, now)
            else:
                self._wanted[channel] = True
                if sent:
                    self._meet(channel)
        self._open[rank] -= 1
        if self._open[rank]:
            return False
        self._end(rank, step)
        return True

    def _meet(self, channel: int) -> None:
        """Let the oldest send of a channel be received by the receive that waits."""
        source, destination, tag, _, _ = self._code.channels[channel]
        posted, travels, size, number = self._sent[channel].popleft()
        self._wanted[channel] = False
        wanted = self._clock[destination]
        both = max(posted, wanted)
        received = max(wanted, posted + travels) if self._buffered else both + travels
        most = self._most_kept
        if number < most and self._number[destination] < most:
            self._messages.append(Message(source, destination, tag, posted, received, size))
        self._finish(destination, both, received)
        if not self._buffered:
            self._finish(source, both, received)

    def _finish(self, rank: int, matched: float, over: float) -> None:
        """Note that an end is over, and let the rank go on if it was the last one and it waits."""
        self._matched[rank] = max(self._matched[rank], matched)
        self._over[rank] = max(self._over[rank], over)
        self._open[rank] -= 1
        if not self._open[rank]:
            self._end(rank, self._steps[rank][self._at[rank]])
            self._at[rank] += 1
            self._ready.append(rank)

    def _join(self, rank: int, step: _Step, now: float) -> bool:
        group = step.group
        arrived = self._arrived[group]
        arrived.append(rank)
        self._bytes[group] = max(self._bytes[group], step.size_bytes)
        members = self._code.groups[group]
        self._open[rank] = 1
        if len(arrived) < len(members):
            return False
        matched = max(self._clock[member] for member in members)
        over = matched + self._cost.collective_s(len(members), self._bytes[group])
        arrived.clear()
        self._bytes[group] = 0
        for member in members:
            if member != rank:
                self._finish(member, matched, over)
        self._matched[rank], self._over[rank], self._open[rank] = matched, over, 0
        self._end(rank, step)
        return True

    def _end(self, rank: int, step: _Step) -> None:
        """Set the clock to the end of a step."""
        self._clock[rank] = self._over[rank]
        if step.last:
            self._note(rank, step, self._clock[rank])

    def _note(self, rank: int, step: _Step, end_s: float, complete: bool = True) -> None:
        """Count the operation that a rank was in, and keep its span if there is room."""
        began, matched = self._began[rank], self._matched[rank]
        self._waiting[rank] += matched - began
        self._moving[rank] += end_s - matched
        if self._number[rank] < self._most_kept:
            kind, name, location, channels, size, path = step.shown
            iterations = tuple((loop[0], loop[1]) for loop in self._loops[rank])
            self._spans[rank].append(
                Span(rank, kind, name, began, matched, end_s, location, channels, size, iterations, path, complete)
            )
        self._number[rank] += 1
