"""The verdict on a program with loops and branches that depend on values which are not known.

A branch whose bodies communicate in the same way is no question. What else depends on a value that may differ between
ranks is PX210. A value that is the same on all ranks is no question either where what it decides on is closed: each
body, begun with nothing in flight, runs to its end and leaves nothing. Such a part stands behind a fence, which all of
its ranks must reach without it. What remains is tried with each value.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from peerax.diagnostics import Diagnostic
from peerax.verifier._code import Fence, Probe
from peerax.verifier._findings import Single, lines_of, place, together
from peerax.verifier._ir import Body, Branch, Exchange, Item, Loop, Operation, Program, Recv, Send, Unknown
from peerax.verifier._judge import Judgement, judge

Nodes = dict[int, list[Item]]  # by rank

_MOST_ITERATIONS = 8
_PROBE = _MOST_ITERATIONS - 1  # so many iterations show whether they repeat each other
_MOST_TRIES = 64


def has_unknown(program: Program) -> bool:
    """Return whether anything in a program depends on a value that is not known."""
    return any(_unknown(item) for process in program.processes for item in _items(process.body))


def decide(program: Program, buffered: bool) -> Judgement:
    """Return the judgement on any program."""
    if not has_unknown(program):
        return _judge_known(program, buffered)
    bodies = [_settle(body, rank) for rank, body in enumerate(program.bodies())]
    if differing := _differing(bodies):
        return Judgement(tuple(differing))
    nodes = _outermost(bodies)
    if not nodes:
        return _judge_known(Program.of(bodies), buffered)
    still_open = {name: found for name, found in nodes.items() if not _closed(len(bodies), found, buffered)}
    if not still_open:
        fences = {name: Fence(name, tuple(found), _first(found).location) for name, found in nodes.items()}
        fenced = Program.of(_replace(body, lambda node: (fences[_name(node)],)) for body in bodies)
        judgement = judge(fenced, buffered)
        if not judgement.fenced:
            return judgement
    return _try(bodies, still_open or nodes, buffered)


def _judge_known(program: Program, buffered: bool) -> Judgement:
    """Judge a program in which nothing is unknown. Where all ranks share it, closed loops are checked once."""
    if len(program.processes) == 1 and any(isinstance(item, Loop) for item in program.processes[0].body):
        closed = Program.spmd(program.size, _close(program.processes[0].body, program.size, buffered))
        judgement = judge(closed, buffered)
        if not judgement.fenced and not judgement.findings:
            return judgement
    return judge(program, buffered)


def _close(body: Body, size: int, buffered: bool) -> Body:
    """Put a fence in place of each loop whose body is safe by itself, begun with nothing in flight."""
    items: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            try:
                closed = not decide(Program.spmd(size, item.body), buffered).findings
            except ValueError:  # a table depends on this loop, or on one around
                closed = False
            if closed:
                item = Fence(f"loop {id(item)}", tuple(range(size)), item.location)
            else:
                item = replace(item, body=_close(item.body, size, buffered))
        items.append(item)
    return tuple(items)


def _unknown(item: Item) -> Unknown | None:
    value = item.trip if isinstance(item, Loop) else item.selector if isinstance(item, Branch) else None
    return value if isinstance(value, Unknown) else None


def _name(item: Item) -> str:
    return _unknown(item).name


def _where(item: Item) -> str:
    return f"the {'loop' if isinstance(item, Loop) else 'branch'} at {place(item.location)}"


def _items(body: Body) -> Iterator[Item]:
    """All items of a body, those that contain others before these."""
    for item in body:
        yield item
        for inner in _parts(item):
            yield from _items(inner)


def _parts(item: Item) -> tuple[Body, ...]:
    """The bodies inside an item."""
    return (item.body,) if isinstance(item, Loop) else item.branches if isinstance(item, Branch) else ()


def _settle(body: Body, rank: int) -> Body:
    """Leave out what a rank has no part in, and each choice between bodies that communicate in the same way."""
    settled: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            if item.trip != 0 and (inner := _settle(item.body, rank)):
                settled.append(replace(item, body=inner))
        elif isinstance(item, Branch):
            branches = tuple(_settle(branch, rank) for branch in item.branches)
            if len({_alike(branch, rank) for branch in branches}) == 1:
                settled += branches[0]
            else:
                settled.append(replace(item, branches=branches))
        elif isinstance(item, Fence) or _ends(item, rank):
            settled.append(item)
    return tuple(settled)


def _ends(operation: Operation, rank: int) -> tuple:
    """What an operation is for one rank; empty if that has no part in it."""
    if not isinstance(operation, (Send, Recv, Exchange)):
        return tuple(group for group in operation.groups if rank in group)
    to = tuple(d for s, d in operation.perm if s == rank and not isinstance(operation, Recv))
    origin = tuple(s for s, d in operation.perm if d == rank and not isinstance(operation, Send))
    return (to, origin) if to or origin else ()


def _alike(body: Body, rank: int) -> tuple:
    """A body without its lines: equal ones communicate in the same way."""
    parts = []
    for item in body:
        if isinstance(item, Loop):
            parts.append((item.trip, _alike(item.body, rank)))
        elif isinstance(item, Branch):
            parts.append((item.selector, tuple(_alike(branch, rank) for branch in item.branches)))
        elif isinstance(item, (Send, Recv, Exchange)):
            pair = item.pair if isinstance(item, Exchange) else -1
            parts.append((type(item), _ends(item, rank), item.types, item.tag, item.path, pair))
        else:
            parts.append((type(item), getattr(item, "name", ""), _ends(item, rank), item.types))
    return tuple(parts)


def _differing(bodies: list[Body]) -> list[Diagnostic]:
    """Findings about choices that may not be the same on all ranks."""
    singles = []
    for rank, body in enumerate(bodies):
        for item in _items(body):
            value = _unknown(item)
            if value is None or value.kind == "uniform":
                continue
            inside = [operation for part in _parts(item) for operation in _items(part) if not _parts(operation)]
            what = "how often it runs" if isinstance(item, Loop) else "which branch is taken"
            if value.kind == "varying":
                code, message = "PX210", f"{_where(item)} communicates, and {what} may differ between ranks"
            else:
                code, message = "PX211", f"{_where(item)} communicates, and {what} may or may not differ between ranks"
            lines = dict.fromkeys((item.location, *lines_of(inside)))
            singles.append(Single(code, tuple(lines), (rank,), None, message))
    return together(singles)


def _outermost(bodies: list[Body]) -> dict[str, Nodes]:
    """By name, what depends on a value that is the same on all ranks, and is in nothing else that does."""
    found: dict[str, Nodes] = {}

    def search(rank: int, body: Body) -> None:
        for item in body:
            if _unknown(item):
                found.setdefault(_name(item), {}).setdefault(rank, []).append(item)
            else:
                for part in _parts(item):
                    search(rank, part)

    for rank, body in enumerate(bodies):
        search(rank, body)
    return found


def _first(nodes: Nodes) -> Item:
    return next(iter(nodes.values()))[0]


def _closed(size: int, nodes: Nodes, buffered: bool) -> bool:
    """Whether each body that a value chooses is safe by itself."""
    parts = {rank: _parts(items[0]) for rank, items in nodes.items()}
    if any(len(items) > 1 for items in nodes.values()) or len({len(part) for part in parts.values()}) > 1:
        return False
    for number in range(len(next(iter(parts.values())))):
        try:
            inside = Program.of(parts[rank][number] if rank in parts else () for rank in range(size))
        except ValueError:  # a table depends on a loop around
            return False
        if decide(inside, buffered).findings:
            return False
    return True


def _replace(body: Body, change) -> Body:
    """Put the items that change(node) returns in place of each outermost node."""
    replaced: list[Item] = []
    for item in body:
        if _unknown(item):
            replaced += change(item)
        elif isinstance(item, Loop):
            replaced.append(replace(item, body=_replace(item.body, change)))
        elif isinstance(item, Branch):
            branches = tuple(_replace(branch, change) for branch in item.branches)
            replaced.append(replace(item, branches=branches))
        else:
            replaced.append(item)
    return tuple(replaced)


def _try(bodies: list[Body], nodes: dict[str, Nodes], buffered: bool) -> Judgement:
    """Judge the program with each value. It is safe if it is with all of them, also with those that are not tried."""
    samples = [_first(found) for found in nodes.values()]
    choices = [range(_MOST_ITERATIONS) if isinstance(node, Loop) else range(len(node.branches)) for node in samples]
    number = prod(map(len, choices))
    loops = [found for node, found in zip(samples, nodes.values(), strict=True) if isinstance(node, Loop)]
    inside = nodes.keys() - {_name(item) for body in bodies for item in body if _unknown(item)}
    if inside or number > _MOST_TRIES:
        return _undecided(samples)
    bad: list[tuple[tuple[int, ...], Judgement]] = []
    warnings: list[Diagnostic] = []
    proved = len(loops) < 2
    for values in product(*choices):
        chosen = dict(zip(nodes, values, strict=True))
        judgement = decide(Program.of(_replace(body, partial(_fixed, chosen)) for body in bodies), buffered)
        if any(finding.code == "PX211" for finding in judgement.findings):
            return _undecided(samples)
        if not judgement.safe:
            bad.append((values, judgement))
        elif loops and _PROBE in (chosen[_name(node)] for node in samples if isinstance(node, Loop)):
            # On all ranks an iteration repeats the one n before: more of them change nothing, and fewer are tried.
            steps = {step for _, step in judgement.covered}
            proved = proved and len(steps) == 1 and {rank for rank, _ in judgement.covered} >= set(loops[0])
        warnings += judgement.findings
    if not bad:
        return Judgement(tuple(dict.fromkeys(warnings))) if proved else _undecided(samples)
    # Several values may depend on each other in a way that leaves out those with which the program is not safe.
    if len(bad) < number and len(nodes) > 1:
        return _undecided(samples)
    values, judgement = bad[0]
    return Judgement(tuple(_with_values(finding, samples, values) for finding in judgement.findings))


def _fixed(chosen: dict[str, int], node: Item) -> Body:
    value = chosen.get(_name(node))
    if value is None:
        return (node,)
    if isinstance(node, Branch):
        return node.branches[value] if value < len(node.branches) else ()
    return (replace(node, trip=Probe(value) if value == _PROBE else value),)


def _with_values(finding: Diagnostic, samples: list[Item], values: tuple[int, ...]) -> Diagnostic:
    notes = []
    for node, value in zip(samples, values, strict=True):
        if isinstance(node, Loop):
            notes.append(
                f"this is so if the loop at {place(node.location)} runs {value} time{'' if value == 1 else 's'}"
            )
        else:
            notes.append(f"this is so if branch {value} is taken at {place(node.location)}")
    return replace(finding, evidence=(*finding.evidence, *notes))


def _undecided(samples: list[Item]) -> Judgement:
    places = " and ".join(
        f"the {'loop' if isinstance(n, Loop) else 'branch'} at {place(n.location)}" for n in samples[:4]
    )
    return Judgement(
        (
            Diagnostic(
                "PX211",
                f"what {places} will do is not known, and not all of it is shown to be safe",
                tuple(dict.fromkeys(node.location for node in samples)),
            ),
        )
    )
