"""Finds the times of a small program by asking, again and again, each end whether its other end is there yet.

Shares no code with the simulation: ends are numbered here, the k-th send of a channel and the k-th receive have equal
numbers, and leaves are always taken one by one.
"""

from dataclasses import dataclass
from math import ceil, log2

from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Send, Table

BYTES = {"float32[4]": 16, "float32[8]": 32, "bfloat16[4]": 8}
LATENCY_S, BYTES_PER_S = 3.0, 8.0  # sums of these are exact


@dataclass(frozen=True)
class Times:
    """What is found: (start, end) of each step by rank, the end of each rank, and who is stuck."""

    steps: tuple
    ends: tuple
    stuck: tuple


def compute_s(rank, operation):
    """What a rank computes before an operation, different for most."""
    return float((7 * rank + 3 * operation.location[1]) % 11)


def times(program: Program, buffered: bool, latency_s=LATENCY_S, compute=compute_s) -> Times:
    """Return the times of a program."""
    bodies = sorted((rank, process.body) for process in program.processes for rank in process.ranks)
    todo = [_steps(body, rank, [], buffered, latency_s, compute) for rank, body in bodies]
    clocks, done, posts = [0.0] * len(todo), [[] for _ in todo], {}
    heads = [_post(rank, todo, clocks, posts) for rank in range(len(todo))]
    changed = True
    while changed:
        changed = False
        for rank, head in enumerate(heads):
            if head is None:
                continue
            ends = [_end(part, posts, buffered, latency_s) for part in head[1]]
            if None not in ends:
                done[rank].append((head[0], max(ends)))
                clocks[rank] = max(ends)
                heads[rank] = _post(rank, todo, clocks, posts)
                changed = True
    stuck = tuple(rank for rank, head in enumerate(heads) if head)
    return Times(tuple(map(tuple, done)), tuple(clocks), stuck)


def _post(rank, todo, clocks, posts):
    """Begin the next step of a rank; None at its end."""
    while todo[rank]:
        computes, parts = todo[rank].pop(0)
        clocks[rank] += computes
        if parts:
            numbered = []
            for kind, where, what in parts:
                k = posts.setdefault((kind, where, rank), [])
                k.append((clocks[rank], what))
                numbered.append((kind, where, rank, len(k) - 1))
            return clocks[rank], numbered
    return None


def _end(part, posts, buffered, latency_s):
    kind, where, rank, k = part
    if kind == "join":
        there = [posts.get((kind, where, member), [])[k : k + 1] for member in where]
        if not all(there):
            return None
        size = max(found[0][1] for found in there)
        latest = max(found[0][0] for found in there)
        return latest + (latency_s * ceil(log2(len(where))) + size / BYTES_PER_S if len(where) > 1 else 0)
    if kind == "send" and buffered:
        return posts[kind, where, rank][k][0]
    sent = posts.get(("send", where, where[0]), [])[k : k + 1]
    wanted = posts.get(("receive", where, where[1]), [])[k : k + 1]
    if not sent or not wanted:
        return None
    (posted, travels), (waits, _) = sent[0], wanted[0]
    return max(posted + travels, waits) if buffered else max(posted, waits) + travels


def _steps(body, rank, counters, buffered, latency_s, compute):
    steps = []
    for item in body:
        if isinstance(item, Loop):
            trip = item.trip.values[counters[-1 - item.trip.depth]] if isinstance(item.trip, Table) else item.trip
            for i in range(trip):
                steps += _steps(item.body, rank, [*counters, i], buffered, latency_s, compute)
        elif isinstance(item, Branch):
            chosen = item.selector.values[counters[-1 - item.selector.depth]]
            steps += _steps(item.branches[chosen], rank, counters, buffered, latency_s, compute)
        else:
            steps.append((compute(rank, item), ()))
            steps += [(0.0, tuple(parts)) for parts in _parts(item, rank, buffered, latency_s) if parts]
    return steps


def _parts(item, rank, buffered, latency_s):
    if isinstance(item, Collective):
        size = sum(BYTES[name] for name in item.types)
        return [[("join", tuple(sorted(group)), size)] for group in item.groups if rank in group]
    leaves, size = [], 0
    for types in [item.types] if isinstance(item, Exchange) else [(name,) for name in item.types]:
        mine = sum(BYTES[name] for name in types)
        size += mine
        travels = latency_s + size / BYTES_PER_S
        if not buffered and size > mine:
            travels = mine / BYTES_PER_S
        parts = []
        for source, destination in item.perm:
            channel = (source, destination, item.tag, item.path, getattr(item, "pair", None))
            if source == rank and isinstance(item, (Send, Exchange)):
                parts.append(("send", channel, travels))
            if destination == rank and not isinstance(item, Send):
                parts.append(("receive", channel, None))
        leaves.append(parts)
    return leaves
