"""One mistake in a correct program: the oracle says whether it matters, and then there is one report, of that line."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from peerax.verifier import Collective, Exchange, check_program
from tests.verifier.oracle import explore
from tests.verifier.programs import LARGE, SMALL, Op, Repeat, correct, to_program
from tests.verifier.test_against_oracle import PROGRAMS

NEW = ("new.py", 1)
ONE_SIDED = {"PX201", "PX202", "PX209"}


def _change(node, **fields):
    return replace(node, operation=replace(node.operation, **fields))


def _psum(size, ranks):
    return Op(Collective("psum", (tuple(range(size)),), (SMALL,), NEW), frozenset(ranks))


# What comes in place of one node, and the codes of what may be wrong then.
FAULTS = {
    "left out": (lambda node, size: [], ONE_SIDED),
    "twice": (lambda node, size: [node, node], ONE_SIDED),
    "in a loop": (lambda node, size: [Repeat(2, (node,))], ONE_SIDED),
    "on rank 0 only": (lambda node, size: [replace(node, ranks=frozenset([0]))], ONE_SIDED),
    "not on rank 0": (lambda node, size: [replace(node, ranks=node.ranks - {0})], ONE_SIDED),
    "another shape": (lambda node, size: [_change(node, types=(LARGE,) * len(node.operation.types))], {"PX203"}),
    "another dtype": (
        lambda node, size: [_change(node, types=tuple(f"b{name}" for name in node.operation.types))],
        {"PX204"},
    ),
    "another tag": (lambda node, size: [_change(node, tag=7)], {"PX205"}),
    "behind a psum": (lambda node, size: [_psum(size, range(size)), node], {"PX208"}),
    "behind a psum of rank 0": (lambda node, size: [_psum(size, [0]), node], {"PX209"}),
}


@pytest.mark.parametrize("name", FAULTS)
@settings(max_examples=PROGRAMS // 20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_fault(name, data):
    spoil, codes = FAULTS[name]
    size = data.draw(st.integers(2, 4))
    nodes = data.draw(correct(size))
    assume(check_program(to_program(size, nodes)).ok)
    at = data.draw(st.integers(0, len(nodes) - 1))
    operation = nodes[at].operation
    assume(not (name == "another tag" and isinstance(operation, Collective)))
    program = to_program(size, (*nodes[:at], *spoil(nodes[at], size), *nodes[at + 1 :]))
    report = check_program(program)
    assert report.ok == explore(program, 0).safe
    if report.ok:
        return
    assert len(report.diagnostics) == 1, (str(program), str(report))
    (finding,) = report.diagnostics
    assert finding.code in codes
    # Where other messages look like it, nobody can say which one is the mistake.
    pairs = set(getattr(operation, "perm", ()))
    alike = [node.operation for node in nodes if pairs & set(getattr(node.operation, "perm", ()))]
    if len(alike) == {Exchange: 1, Collective: 0}.get(type(operation), 2):
        # What is left out is not there to be named, but its other end is.
        lines = {NEW, *(other.location for other in alike or [operation])}
        assert lines & set(finding.locations), (str(program), str(report))
