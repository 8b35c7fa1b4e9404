"""Small random programs: correct ones first, then spoilt a little. Each operation has a line of its own."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, Table, Unknown

SMALL, LARGE, HALF = "float32[4]", "float32[8]", "bfloat16[4]"


@dataclass(frozen=True)
class Op:
    """An operation that only some ranks run."""

    operation: Send | Recv | Exchange | Collective
    ranks: frozenset


@dataclass(frozen=True)
class Repeat:
    """Nodes that run several times."""

    trip: int
    nodes: tuple


@dataclass(frozen=True)
class Select:
    """Nodes that each rank runs in those iterations of a loop in which its row of the table has a 1."""

    tables: tuple
    nodes: tuple


@dataclass(frozen=True)
class Unsure:
    """Nodes of a loop of unknown length, or of one of the branches that a value chooses which is not known."""

    name: str
    kind: str
    branches: tuple


def to_program(size, nodes) -> Program:
    """Return what each rank does."""
    return Program.of(_body(nodes, rank) for rank in range(size))


def _body(nodes, rank):
    body = []
    for node in nodes:
        if isinstance(node, Op):
            body += [node.operation] if rank in node.ranks else []
        elif isinstance(node, Repeat):
            body.append(Loop(node.trip, _body(node.nodes, rank), ("loop.py", 1)))
        elif isinstance(node, Unsure):
            value, (first, *others) = Unknown(node.name, node.kind), [_body(nodes, rank) for nodes in node.branches]
            where = ("loop.py", 4)
            body.append(Branch(value, (first, *others), where) if others else Loop(value, first, where))
        else:
            table = node.tables[rank]
            branch = Branch(Table(table), ((), _body(node.nodes, rank)), ("loop.py", 3))
            body.append(Loop(len(table), (branch,), ("loop.py", 2)))
    return tuple(body)


@st.composite
def perms(draw, size, cycles):
    """One to three pairs, which all go up or all go down unless there may be cycles."""
    ranks = list(range(size)) if draw(st.booleans()) else list(range(size))[::-1]
    if cycles and draw(st.booleans()):
        return tuple(zip(ranks, ranks[1:] + ranks[:1], strict=True))
    pairs = [(a, b) for i, a in enumerate(ranks) for b in (ranks if cycles else ranks[i + 1 :])]
    chosen = []
    for a, b in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3)):
        if all(a != source and b != destination for source, destination in chosen):
            chosen.append((a, b))
    return tuple(chosen)


@st.composite
def correct(draw, size):
    """Nodes in which each send is followed by its receive, or is half of a pair, or a collective."""
    everyone = frozenset(range(size))
    nodes = []
    for i in range(draw(st.integers(1, 5))):
        where = [("step.py", 10 * i + j) for j in range(2)]
        kind = draw(st.sampled_from(["separate"] * 4 + ["pair", "collective"]))
        types = draw(st.sampled_from([(SMALL,), (SMALL,), (LARGE,), (SMALL, LARGE)]))
        if kind == "collective":
            groups = draw(st.sampled_from([(tuple(range(size)),), ((0, 1),)]))
            nodes.append(Op(Collective("psum", groups, types, where[0]), everyone))
            continue
        cycles = kind == "pair" or draw(st.integers(0, 15)) == 0
        perm, tag = draw(perms(size, cycles)), draw(st.sampled_from([0, 0, 1]))
        if kind == "pair":
            nodes.append(Op(Exchange(perm, types, *where, pair=i, tag=tag), everyone))
        else:
            nodes += [Op(Send(perm, types, where[0], tag), everyone), Op(Recv(perm, types, where[1], tag), everyone)]
    return tuple(nodes)


@st.composite
def spoilt(draw, size, nodes):
    """Nodes with one change, which may or may not be a mistake."""
    nodes = list(nodes)
    at = draw(st.integers(0, len(nodes) - 1))
    end = draw(st.integers(at + 1, min(len(nodes), at + 3)))
    what = draw(st.sampled_from(["swap", "swap", "move", "drop", "psum", "loop", "ranks", "type", "table", "tag"]))
    node = nodes[at]
    if what == "swap" and at + 1 < len(nodes):
        nodes[at : at + 2] = nodes[at + 1], node
    elif what == "move":
        nodes.insert(draw(st.integers(0, len(nodes) - 1)), nodes.pop(at))
    elif what == "drop" and len(nodes) > 1:
        del nodes[at]
    elif what == "psum":
        name = draw(st.sampled_from(["psum", "psum", "pmax"]))
        ranks = draw(st.sampled_from([frozenset(range(size)), frozenset(range(size)), frozenset([0])]))
        nodes.insert(at, Op(Collective(name, (tuple(range(size)),), (SMALL,), ("step.py", 90 + at)), ranks))
    elif what == "loop":
        nodes[at:end] = [Repeat(draw(st.integers(0, 2)), tuple(nodes[at:end]))]
    elif what == "table":
        rows = st.tuples(*[st.sampled_from([0, 1, 1])] * 2)
        tables = draw(st.one_of(rows.map(lambda row: (row,) * size), st.tuples(*[rows] * size)))
        nodes[at:end] = [Select(tables, tuple(nodes[at:end]))]
    elif what == "ranks" and isinstance(node, Op):
        nodes[at] = replace(node, ranks=draw(st.frozensets(st.integers(0, size - 1), min_size=1)))
    elif what == "type" and isinstance(node, Op):
        types = draw(st.sampled_from([(LARGE,), (HALF,), (SMALL, SMALL)]))
        nodes[at] = replace(node, operation=replace(node.operation, types=types))
    elif what == "tag" and isinstance(node, Op) and not isinstance(node.operation, Collective):
        nodes[at] = replace(node, operation=replace(node.operation, tag=2))
    return tuple(nodes)


@st.composite
def small_nodes(draw, changes=3):
    """Return the number of ranks, and nodes with up to so many changes."""
    size = draw(st.integers(2, 4))
    nodes = draw(correct(size))
    for _ in range(draw(st.integers(0, changes))):
        nodes = draw(spoilt(size, nodes))
    return size, nodes


def small_programs():
    """Programs that the oracle can try every order of."""
    return small_nodes().map(lambda made: to_program(*made))


@st.composite
def unsure_nodes(draw, kinds=("uniform",)):
    """Return the number of ranks, and nodes of which one or two parts depend on what is not known."""
    size, nodes = draw(small_nodes(changes=1))
    for name in ["p", "q"][: draw(st.integers(1, 2))]:
        at = draw(st.integers(0, len(nodes) - 1))
        end = draw(st.integers(at + 1, min(len(nodes), at + 4)))
        inside, others = nodes[at:end], draw(st.sampled_from([0, 0, 1, 2]))
        more = [(), inside, tuple(node for node in inside if draw(st.booleans()))][1 if others == 2 else 0 :: 2]
        branches = (inside, *(more[:1] if others else ()))
        nodes = (*nodes[:at], Unsure(name, draw(st.sampled_from(kinds)), branches), *nodes[end:])
    return size, nodes
