"""What must not change a verdict, or may change it in one direction only."""

import json
import subprocess
import sys
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from peerax.perm import inverse
from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, check_program
from peerax.verifier._judge import judge
from tests.verifier.programs import Op, Repeat, Select, correct, small_nodes, to_program
from tests.verifier.test_against_oracle import PROGRAMS

few = settings(max_examples=PROGRAMS // 10, deadline=None, suppress_health_check=list(HealthCheck))
BARRIER = ("barrier.py", 1)


def verdict(size, nodes):
    return check_program(to_program(size, nodes)).verdict


def codes(program, semantics="rendezvous"):
    return sorted(finding.code for finding in check_program(program, semantics).diagnostics)


def change(nodes, function):
    """Apply a function to each operation of nodes."""
    changed = []
    for node in nodes:
        if isinstance(node, Op):
            changed.append(function(node))
        else:
            changed.append(replace(node, nodes=change(node.nodes, function)))
    return tuple(changed)


def unrolled(body, counters=()):
    """A body without loops and branches."""
    flat = []
    for item in body:
        if isinstance(item, Loop):
            for i in range(item.trip):
                flat += unrolled(item.body, (*counters, i))
        elif isinstance(item, Branch):
            chosen = item.selector.values[counters[-1 - item.selector.depth]]
            flat += unrolled(item.branches[chosen], counters)
        else:
            flat.append(item)
    return flat


@few
@given(small_nodes(), st.randoms(use_true_random=False))
def test_new_numbers_for_the_ranks(made, random):  # P-4
    size, nodes = made
    number = random.sample(range(size), size)

    def renumber(op):
        operation = op.operation
        if isinstance(operation, Collective):
            operation = replace(operation, groups=tuple(tuple(number[r] for r in g) for g in operation.groups))
        else:
            operation = replace(operation, perm=tuple((number[s], number[d]) for s, d in operation.perm))
        return Op(operation, frozenset(number[rank] for rank in op.ranks))

    def tables(nodes):
        for node in nodes:
            if isinstance(node, Select):
                rows = dict(zip(number, node.tables, strict=True))
                node = replace(node, tables=tuple(rows[rank] for rank in range(size)))
            yield replace(node, nodes=tuple(tables(node.nodes))) if not isinstance(node, Op) else node

    assert verdict(size, tuple(tables(change(nodes, renumber)))) == verdict(size, nodes)


@few
@given(small_nodes(), st.randoms(use_true_random=False))
def test_another_order_of_the_pairs_of_a_perm(made, random):  # P-4
    size, nodes = made

    def shuffle(op):
        if isinstance(op.operation, Collective):
            return op
        perm = random.sample(op.operation.perm, len(op.operation.perm))
        return replace(op, operation=replace(op.operation, perm=tuple(perm)))

    assert check_program(to_program(size, change(nodes, shuffle))).verdict == verdict(size, nodes)


@few
@given(small_nodes())
def test_a_perm_in_two_operations(made):  # P-4
    size, nodes = made
    split = []
    for node in nodes:
        parts = [node]
        if isinstance(node, Op) and isinstance(node.operation, Send | Recv) and len(node.operation.perm) == 2:
            (a, b), (c, d) = node.operation.perm
            if len({a, b, c, d}) == 4:
                parts = [replace(node, operation=replace(node.operation, perm=(pair,))) for pair in ((a, b), (c, d))]
        split += parts
    assert verdict(size, tuple(split)) == verdict(size, nodes)


@few
@given(small_nodes(), st.integers(0, 40), st.integers(0, 6))
def test_an_unrolled_loop(made, trip, outer):  # P-4; iterations are skipped in one of the two
    size, nodes = made
    nodes = (Repeat(outer, (*nodes[:1], Repeat(trip, nodes[1:]))), *nodes[:2])
    program = to_program(size, nodes)
    flat = Program.of(unrolled(body) for body in program.bodies())
    for semantics in ("rendezvous", "buffered"):
        assert codes(program, semantics) == codes(flat, semantics)
        # Also where closed loops are not set apart.
        assert judge(program, semantics == "buffered").safe == check_program(flat, semantics).ok


@few
@given(small_nodes(), st.data())
def test_a_pair_in_place_of_two_neighbours(made, data):  # P-5
    size, nodes = made
    kinds = [node.operation for node in nodes if isinstance(node, Op)]
    fits = [
        i
        for i, (one, two) in enumerate(zip(nodes, nodes[1:], strict=False))
        if isinstance(one, Op)
        and isinstance(two, Op)
        and isinstance(one.operation, Send)
        and isinstance(two.operation, Recv)
        and one.ranks == two.ranks == frozenset(range(size))
        and set(one.operation.perm) == set(two.operation.perm)
        and one.operation.types == two.operation.types
        and one.operation.tag == two.operation.tag
        # Nothing else is on these channels, so it is the two that meet.
        and sum(bool(set(getattr(kind, "perm", ())) & set(one.operation.perm)) for kind in kinds) == 2
    ]
    assume(fits and len(kinds) == len(nodes) and verdict(size, nodes) == "safe")
    at = data.draw(st.sampled_from(fits))
    one, two = nodes[at].operation, nodes[at + 1].operation
    fused = Exchange(one.perm, one.types, one.location, two.location, 99, one.tag)
    assert verdict(size, (*nodes[:at], replace(nodes[at], operation=fused), *nodes[at + 2 :])) == "safe"


@few
@given(small_nodes(), st.data())
def test_a_barrier_repairs_nothing(made, data):  # P-6
    size, nodes = made
    at = data.draw(st.integers(0, len(nodes)))
    everyone = tuple(range(size))
    barrier = Op(Collective("psum", (everyone,), ("float32[]",), BARRIER), frozenset(everyone))
    if verdict(size, (*nodes[:at], barrier, *nodes[at:])) == "safe":
        assert verdict(size, nodes) == "safe"


@few
@given(small_nodes())
def test_the_transposed_program(made):  # P-7
    size, nodes = made

    def transposed(nodes):
        result = []
        for node in reversed(nodes):
            if isinstance(node, Op):
                operation = node.operation
                if isinstance(operation, Send | Recv):
                    other = Recv if isinstance(operation, Send) else Send
                    fields = (operation.types, operation.location, operation.tag, "c")
                    operation = other(inverse(operation.perm), *fields)
                elif isinstance(operation, Exchange):
                    operation = replace(operation, perm=inverse(operation.perm))
                result.append(replace(node, operation=operation))
            else:
                if isinstance(node, Select):
                    node = replace(node, tables=tuple(row[::-1] for row in node.tables))
                result.append(replace(node, nodes=transposed(node.nodes)))
        return tuple(result)

    assert verdict(size, transposed(nodes)) == verdict(size, nodes)


@few
@given(st.data())
def test_the_other_end_of_what_is_dropped_is_named(data):  # P-8
    size = data.draw(st.integers(2, 4))
    nodes = data.draw(correct(size))
    at = data.draw(st.integers(0, len(nodes) - 1))
    dropped = nodes[at].operation
    channels = [node.operation for node in nodes if isinstance(node.operation, type(dropped))]
    assume(isinstance(dropped, Send | Recv) and verdict(size, nodes) == "safe")
    assume(sum(bool(set(other.perm) & set(dropped.perm)) for other in channels) == 1)
    report = check_program(to_program(size, (*nodes[:at], *nodes[at + 1 :])))
    (finding,) = report.diagnostics
    other = nodes[at + 1 if isinstance(dropped, Send) else at - 1].operation
    assert finding.code == ("PX202" if isinstance(dropped, Send) else "PX201")
    assert finding.locations == (other.location,)


@few
@given(small_nodes())
def test_the_order_of_the_processes(made):  # P-10
    program = to_program(*made)
    turned = Program(tuple(replace(process, ranks=process.ranks[::-1]) for process in program.processes[::-1]))
    assert check_program(turned) == check_program(program)


def test_the_report_does_not_depend_on_hashes():  # P-10
    code = """
from hypothesis import HealthCheck, given, settings
from peerax.verifier import check_program
from tests.verifier.programs import small_programs

@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(small_programs())
def show(program):
    print(check_program(program).to_json())

show()
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (output,) = outputs
    assert {"safe", "unsafe"} == {json.loads(line)["verdict"] for line in output.splitlines()}
