"""Who waits for whom in a run that is stuck, and the cycles in that."""

from collections import deque
from dataclasses import dataclass

from peerax.verifier._code import FENCE, JOIN, PARTS, RECV, SEND
from peerax.verifier._engine import Iterations, Run
from peerax.verifier._ir import Operation


@dataclass(frozen=True)
class Wait:
    """A rank that waits for another one.

    Args:
        operation: what the rank is in.
        role: SEND or RECV for a message, JOIN for a collective, FENCE.
        channel: number of the channel of a message, else None.
        group: number of the group of a collective, else None.
        needed: the operation of the other rank that would end the wait, if it has one.
    """

    rank: int
    peer: int
    operation: Operation
    role: int
    channel: int | None
    group: int | None
    needed: Operation | None
    iterations: Iterations


@dataclass(frozen=True)
class Cycle:
    """Ranks that wait for each other in turn, and those that wait for them."""

    waits: tuple[Wait, ...]
    victims: tuple[Wait, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks of the cycle."""
        return tuple(wait.rank for wait in self.waits)


def find_cycles(run: Run) -> list[Cycle]:
    """Return a shortest cycle for each set of ranks that hold each other up."""
    edges = {rank: _edges(run, rank) for rank in run.stuck}
    cycles = []
    victims = set(edges)
    for component in _components({rank: [peer for peer, _, _ in waits] for rank, waits in edges.items()}):
        if len(component) == 1 and not any(peer == component[0] for peer, _, _ in edges[component[0]]):
            continue
        ranks = _shortest(component, edges)
        victims -= set(ranks)
        waits = tuple(
            _wait(run, rank, next(edge for edge in edges[rank] if edge[0] == peer))
            for rank, peer in zip(ranks, [*ranks[1:], ranks[0]], strict=True)
        )
        cycles.append(Cycle(waits))
    cycles.sort(key=lambda cycle: cycle.ranks)
    return [Cycle(cycle.waits, _victims(run, edges, cycle.ranks, victims)) for cycle in cycles]


def _edges(run: Run, rank: int) -> list[tuple[int, int, int | None]]:
    """Return (peer, role, channel) for each rank that a rank waits for."""
    instruction = run.code.ranks[rank][run.at[rank]]
    if instruction[0] in (JOIN, FENCE):
        members = run.code.groups[instruction[1]] if instruction[0] == JOIN else instruction[2].members
        absent = [peer for peer in members if run.code.ranks[peer][run.at[peer]][:2] != instruction[:2]]
        return [(peer, instruction[0], None) for peer in absent]
    parts = instruction[1] if instruction[0] == PARTS else (instruction[:2],)
    edges = []
    for role, channel, *_ in parts:
        if run.waiting[channel] == (rank + 1 if role == SEND else -rank - 1):
            ends = run.code.channels[channel]
            edges.append((ends.destination if role == SEND else ends.source, role, channel))
    return edges


def _wait(run: Run, rank: int, edge: tuple[int, int, int | None]) -> Wait:
    peer, role, channel = edge
    instruction = run.code.ranks[rank][run.at[rank]]
    operation = instruction[2]
    group = None
    if channel is None:
        group = instruction[1]
        needed = _next(run, peer, lambda other: other[:2] == instruction[:2])
    else:
        wanted = (RECV if role == SEND else SEND, channel)
        needed = _next(
            run,
            peer,
            lambda other: other[:2] == wanted or (other[0] == PARTS and any(part[:2] == wanted for part in other[1])),
        )
    return Wait(rank, peer, operation, role, channel, group, needed, run.iterations(rank))


def _next(run: Run, rank: int, matches) -> Operation | None:
    """The next operation of a rank that matches: behind where it is, or else at the start of a loop around."""
    code, at = run.code.ranks[rank], run.at[rank]
    for positions in (range(at, len(code)), range(at)):
        for i in positions:
            if matches(code[i]):
                return code[i][2]
    return None


def _victims(run: Run, edges: dict, ranks: tuple[int, ...], others: set[int]) -> tuple[Wait, ...]:
    """The ranks that wait for those of a cycle, or for others that do."""
    behind: dict[int, list[tuple[int, tuple]]] = {}
    for rank in sorted(others):
        for edge in edges[rank]:
            behind.setdefault(edge[0], []).append((rank, edge))
    found: dict[int, Wait] = {}
    queue = deque(ranks)
    while queue:
        for rank, edge in behind.get(queue.popleft(), ()):
            if rank not in found:
                found[rank] = _wait(run, rank, edge)
                queue.append(rank)
    return tuple(found[rank] for rank in sorted(found))


def _shortest(component: list[int], edges: dict) -> tuple[int, ...]:
    """A shortest cycle through one of the first ranks of a strongly connected component."""
    inside, best = set(component), ()
    for start in sorted(component)[:64]:
        before: dict[int, int] = {}
        queue, closed = deque([start]), None
        while queue and closed is None:
            rank = queue.popleft()
            for peer, _, _ in edges[rank]:
                if peer == start:
                    closed = rank
                    break
                if peer in inside and peer not in before:
                    before[peer] = rank
                    queue.append(peer)
        if closed is None:
            continue
        path = [closed]
        while path[-1] != start:
            path.append(before[path[-1]])
        if not best or len(path) < len(best):
            best = tuple(reversed(path))
    return best


def _components(graph: dict[int, list[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components, without recursion."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    components = []
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            rank, peers = work[-1]
            for peer in peers:
                if peer not in graph:
                    continue
                if peer not in number:
                    number[peer] = lowest[peer] = len(number)
                    stack.append(peer)
                    on_stack.add(peer)
                    work.append((peer, iter(graph[peer])))
                    break
                if peer in on_stack:
                    lowest[rank] = min(lowest[rank], number[peer])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[rank])
                if lowest[rank] == number[rank]:
                    component = []
                    while not component or component[-1] != rank:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    components.append(component)
    return components
