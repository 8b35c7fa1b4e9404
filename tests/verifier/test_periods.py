"""Iterations that repeat others are skipped: long loops take no longer than short ones, and nothing is missed."""

import pytest

from peerax.verifier import Branch, Exchange, Loop, Program, Recv, Send, Table, check_program
from peerax.verifier._code import lower
from peerax.verifier._engine import run, start
from peerax.verifier._totals import count

MANY = 10**12
FWD = tuple((i, i + 1) for i in range(7))
RING = (*FWD, (7, 0))


def at(line):
    return ("step.py", line)


def S(line, perm=FWD, type="f[8]"):
    return Send(perm, (type,), at(line))


def R(line, perm=FWD, type="f[8]"):
    return Recv(perm, (type,), at(line))


def loop(trip, *body):
    return Loop(trip, body, at(90))


def iterations(program, buffered=False):
    """How many iterations a run looks at."""
    code = lower(program)
    state = run(start(code, count(code), buffered))
    assert not state.gave_up
    return state.iterations_seen


LONG = {
    "a line": [loop(MANY, S(1), R(2))],
    "a ring of pairs": [loop(MANY, Exchange(RING, ("f[8]",), at(1), at(2), 0))],
    "prologue and epilogue": [R(1), loop(MANY, S(2), R(3)), S(4)],
    "sends, then receives": [loop(MANY, S(1, FWD[:1])), loop(MANY, R(2, FWD[:1]))],
    "two receives in one iteration": [loop(2 * MANY, S(1, FWD[:1])), loop(MANY, R(2, FWD[:1]), R(3, FWD[:1]))],
    "loops in a loop": [loop(MANY, loop(MANY, S(1), R(2)), loop(7, S(3), R(4)))],
    "lines that have nothing to do with each other": [
        loop(MANY, S(1, ((0, 1), (2, 3), (4, 5))), R(2, ((0, 1), (2, 3), (4, 5)))),
    ],
}


@pytest.mark.parametrize("name", LONG)
def test_long_loops(name):
    program = Program.spmd(8, LONG[name])
    assert check_program(program).ok and check_program(program, "buffered").ok
    assert iterations(program) < 10_000
    assert iterations(program, buffered=True) < 10_000


def test_two_types_in_turn():
    sends, receives = [S(1), S(2, type="f[4]")], [R(3, FWD[:1]), R(4, FWD[:1], type="f[4]")]
    good = Program.of([(loop(MANY, *sends),), (loop(MANY, *receives),), *[()] * 6])
    assert check_program(good).ok and iterations(good) < 100
    bad = Program.of([(loop(MANY, *sends),), (loop(MANY, *receives[::-1]),), *[()] * 6])
    assert [found.code for found in check_program(bad).diagnostics] == ["PX203", "PX203"]


@pytest.mark.parametrize("less", [1, 2, 1000])
def test_the_last_iterations_count(less):
    sends, receives = (loop(MANY, S(1)),), (loop(MANY - less, R(2, FWD[:1])), *[R(3, FWD[:1])] * (less - 1))
    report = check_program(Program.of([sends, receives, *[()] * 6]))
    assert [found.code for found in report.diagnostics] == ["PX201"]


def test_a_cycle_behind_a_long_loop():
    everyone = ((0, 1), (1, 0))
    program = Program.spmd(2, [loop(MANY, S(1, FWD[:1]), R(2, FWD[:1])), S(3, everyone), R(4, everyone)])
    (found,) = check_program(program).diagnostics
    assert (found.code, found.locations) == ("PX208", (at(3), at(4)))


def test_a_table_in_a_long_loop():
    tables = [(1, 0, 1), (0, 1, 1)]
    bodies = [
        (loop(MANY, Loop(3, (Branch(Table(table), ((), (kind,)), at(5)), Loop(MANY, (), at(6))), at(7))),)
        for table, kind in zip(tables, (S(1), R(2)), strict=True)
    ]
    program = Program.of([*bodies, *[()] * 6])
    assert check_program(program).ok and iterations(program) < 100


def test_trip_counts_by_table():
    body = (loop(3, Loop(Table((1, 0, 4)), (S(1, FWD[:1]),), at(5)), Loop(Table((2, 3, 0)), (R(2, FWD[:1]),), at(5))),)
    assert check_program(Program.spmd(8, body), "buffered").ok
    assert check_program(Program.spmd(8, body)).ok


def test_a_loop_whose_iterations_never_repeat_is_given_up(monkeypatch):
    monkeypatch.setattr("peerax.verifier._periods.Periods._skip", lambda self, *state: None)
    monkeypatch.setattr("peerax.verifier._judge.run", lambda state: run(state, most_iterations=1000))
    program = Program.of([(loop(MANY, S(1)),), (loop(MANY, R(2, FWD[:1])),), *[()] * 6])
    report = check_program(program)
    assert report.verdict == "undecided"
    assert [found.code for found in report.diagnostics] == ["PX211"]
