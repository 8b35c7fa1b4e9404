"""Says whether a small program can hang by trying every order of events. Shares no code with the check.

A program is unrolled into a list of steps per rank; a step is a set of parts that complete in any order. A part is
("send", channel, type), ("receive", channel, type) or ("join", group, kind). The state is what is left of each rank's
list, and what is in each channel's buffer.
"""

from dataclasses import dataclass

from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, Table


@dataclass(frozen=True)
class Outcome:
    """What can happen: the states in which nothing more can, and whether two ends that met were not alike."""

    terminal: frozenset
    mismatch: bool
    states: int

    @property
    def safe(self) -> bool:
        """Whether every order leads to the end of every rank, with nothing left over."""
        return not self.mismatch and all(
            all(not left for left in ranks) and not any(queue for _, queue in buffers)
            for ranks, buffers in self.terminal
        )


class _Open(Exception):
    """A value is not chosen yet: which one, and how many there are."""


class _Values:
    """Chosen values of what is not known: the k-th use of a uniform one is the same on all ranks."""

    def __init__(self, chosen):
        self._chosen, self._uses = chosen, {}

    def value(self, value, counters, rank, number):
        if isinstance(value, int):
            return value
        if isinstance(value, Table):
            return value.values[counters[-1 - value.depth]]
        use = self._uses[rank, value.name] = self._uses.get((rank, value.name), -1) + 1
        key = value.name, use, None if value.kind == "uniform" else rank
        if key not in self._chosen:
            raise _Open(key, number)
        return self._chosen[key]


def unroll(program: Program, chosen=None) -> list[list[tuple]]:
    """Return the steps of each rank."""
    bodies = sorted((rank, process.body) for process in program.processes for rank in process.ranks)
    values = _Values(chosen or {})
    return [_steps(body, rank, [], values) for rank, body in bodies]


def all_values(program: Program, chosen=None):
    """Yield each choice of what is not known; loops of unknown length run up to twice."""
    chosen = chosen or {}
    try:
        unroll(program, chosen)
        yield chosen
    except _Open as found:
        key, number = found.args
        for value in range(number):
            yield from all_values(program, {**chosen, key: value})


def _steps(body, rank, counters, values):
    steps = []
    for item in body:
        if isinstance(item, Loop):
            for i in range(values.value(item.trip, counters, rank, 3)):
                steps += _steps(item.body, rank, [*counters, i], values)
        elif isinstance(item, Branch):
            chosen = values.value(item.selector, counters, rank, len(item.branches))
            steps += _steps(item.branches[chosen], rank, counters, values)
        elif isinstance(item, Collective):
            for group in item.groups:
                if rank in group:
                    steps.append((("join", tuple(sorted(group)), (item.name, item.types)),))
        else:
            # A pair posts all its leaves together; they come one after the other on a channel of their own.
            for leaf in [item.types] if isinstance(item, Exchange) else item.types:
                parts = []
                for source, destination in item.perm:
                    channel = (source, destination, item.tag, item.path, getattr(item, "pair", None))
                    if source == rank and isinstance(item, Send | Exchange):
                        parts.append(("send", channel, leaf))
                    if destination == rank and isinstance(item, Recv | Exchange):
                        parts.append(("receive", channel, leaf))
                if parts:
                    steps.append(tuple(parts))
    return steps


def explore(program: Program, capacity: float, chosen=None) -> Outcome:
    """Try every order of events, with room for so many messages on each channel."""
    steps = unroll(program, chosen)
    # A rank is (position, parts of that step that are left).
    first = tuple((0, frozenset(range(len(rank[0]) if rank else 0))) for rank in steps)
    todo, seen = [(first, frozenset())], {(first, frozenset())}
    terminal, mismatch = set(), False
    while todo:
        state = todo.pop()
        following = list(_events(steps, state, capacity))
        mismatch |= any(wrong for _, wrong in following)
        if not following:
            ranks, buffers = state
            left = tuple((p, parts) if p < len(s) else () for (p, parts), s in zip(ranks, steps, strict=True))
            terminal.add((left, buffers))
        for after, _ in following:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return Outcome(frozenset(terminal), mismatch, len(seen))


def _events(steps, state, capacity):
    """Yield each state that one event leads to, and whether two ends met in it that are not alike."""
    ranks, buffers = state
    contents = dict(buffers)
    heads = [
        (rank, i, *steps[rank][position][i])
        for rank, (position, parts) in enumerate(ranks)
        if position < len(steps[rank])
        for i in parts
    ]
    for rank, i, kind, where, what in heads:
        if kind == "send" and capacity == 0:
            for peer, j, other, there, wanted in heads:
                if other == "receive" and there == where:
                    yield (_advance(steps, ranks, [(rank, i), (peer, j)]), buffers), what != wanted
        elif kind == "send" and len(contents.get(where, ())) < capacity:
            after = {**contents, where: (*contents.get(where, ()), what)}
            yield (_advance(steps, ranks, [(rank, i)]), _frozen(after)), False
        elif kind == "receive" and contents.get(where):
            sent, *rest = contents[where]
            after = {**contents, where: tuple(rest)}
            yield (_advance(steps, ranks, [(rank, i)]), _frozen(after)), sent != what
        elif kind == "join" and rank == min(where):
            there = [(r, j, w) for r, j, k, g, w in heads if k == "join" and g == where]
            if len(there) == len(where):
                after = _advance(steps, ranks, [(r, j) for r, j, _ in there])
                yield (after, buffers), any(w != what for _, _, w in there)


def _frozen(contents):
    return frozenset((channel, queue) for channel, queue in contents.items() if queue)


def _advance(steps, ranks, done):
    after = list(ranks)
    for rank, part in done:
        position, parts = after[rank]
        parts -= {part}
        if not parts:
            position += 1
            parts = frozenset(range(len(steps[rank][position]))) if position < len(steps[rank]) else frozenset()
        after[rank] = (position, parts)
    return tuple(after)
