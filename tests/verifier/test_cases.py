"""Programs with a known verdict. Each operation is at the line of "step.py" that is its first argument."""

import pytest

from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, Unknown, check_program

FWD = ((0, 1), (1, 2), (2, 3))
BWD = ((1, 0), (2, 1), (3, 2))
RING = (*FWD, (3, 0))
ALL = ((0, 1, 2, 3),)
TYPE = "float32[8]"


def at(line):
    return ("step.py", line)


def S(line, perm, type=TYPE, tag=0):
    return Send(tuple(perm), (type,), at(line), tag)


def R(line, perm, type=TYPE, tag=0):
    return Recv(tuple(perm), (type,), at(line), tag)


def X(line, perm, pair=0):
    """A pair: psend at line, precv at line + 1."""
    return Exchange(tuple(perm), (TYPE,), at(line), at(line + 1), pair)


def C(line, groups=ALL, name="psum", type=TYPE):
    return Collective(name, groups, (type,), at(line))


def loop(trip, *body):
    return Loop(trip, body, at(90))


def either(kind, *branches, name="p"):
    return Branch(Unknown(name, kind), branches, at(91))


def repeat(kind, *body, name="n"):
    return Loop(Unknown(name, kind), body, at(92))


def spmd(*body, size=4):
    return Program.spmd(size, body)


def by_rank(*bodies):
    return Program.of(bodies)


def pairs(*numbers):
    """pairs(1, 12) is ((0, 1), (1, 2)): two digits a pair."""
    return tuple(divmod(number, 10) for number in numbers)


SAFE = {
    "U6": spmd(S(1, FWD), R(2, FWD)),
    "U7": spmd(S(1, pairs(1)), S(2, pairs(23)), R(3, pairs(1, 23))),
    "U8": spmd(R(1, FWD), S(2, FWD)),
    "U9": spmd(S(1, ()), R(2, ()), size=1),
    "T5": spmd(S(1, FWD, "f[4]"), R(2, FWD, "f[4]"), S(3, FWD), R(4, FWD)),
    "D3": spmd(X(1, RING)),
    "D4": spmd(S(1, FWD), R(2, FWD), S(3, pairs(30)), R(4, pairs(30))),
    "D6": spmd(S(1, pairs(1)), R(2, pairs(1)), S(3, pairs(10)), R(4, pairs(10)), size=2),
    "D8": spmd(X(1, pairs(1, 10)), size=2),
    "D10": spmd(*(op for i, p in enumerate((1, 12, 20)) for op in (S(i, pairs(p)), R(i + 5, pairs(p)))), size=3),
    "D12": spmd(S(1, pairs(1, 23)), R(2, pairs(1, 23)), S(3, pairs(12, 30)), R(4, pairs(12, 30))),
    "D14": spmd(S(1, pairs(1)), R(2, pairs(1)), S(3, pairs(12, 20)), R(4, pairs(12, 20)), size=3),
    "D16": spmd(X(1, pairs(22))),
    "L1": spmd(loop(3, S(1, FWD), R(2, FWD))),
    "L4": spmd(R(1, pairs(1)), loop(3, S(2, pairs(1)), R(3, pairs(1))), S(4, pairs(1)), size=2),
    "L5": spmd(S(1, pairs(1)), loop(3, S(2, pairs(1)), R(3, pairs(1))), R(4, pairs(1)), size=2),
    "L11": spmd(loop(0, S(1, FWD))),
    "L12": spmd(loop(4, loop(2, S(1, FWD), R(2, FWD)), C(3))),
    "B1": by_rank((S(1, pairs(1)),), (R(2, pairs(1)),)),
    "B4": by_rank((C(1, ((0, 1),)),), (C(2, ((0, 1),)),)),
    "W2": spmd(either("uniform", (S(1, FWD), R(2, FWD)), ())),
    "W4": spmd(either("varying", (S(1, FWD), R(2, FWD)), (S(3, FWD), R(4, FWD)))),
    "W5": spmd(repeat("uniform", S(1, FWD), R(2, FWD))),
    "W5 with a prologue and an epilogue": spmd(
        R(1, pairs(1)), repeat("uniform", S(2, pairs(1)), R(3, pairs(1))), S(4, pairs(1)), size=2
    ),
    "W5 inside a loop": spmd(loop(5, repeat("uniform", S(1, FWD), R(2, FWD)), C(3))),
    "W5 in itself": spmd(repeat("uniform", S(1, FWD), R(2, FWD), repeat("uniform", C(3), name="m"))),
    "W10, the same in both branches": spmd(either("unknown", (S(1, FWD), R(2, FWD)), (S(3, FWD), R(4, FWD)))),
    "one predicate, asked twice": spmd(either("uniform", (S(1, FWD),), ()), either("uniform", (R(2, FWD),), ())),
    "one predicate, asked twice, around a loop": spmd(
        either("uniform", (S(1, pairs(1)),), ()),
        repeat("uniform", S(2, pairs(23)), R(3, pairs(23))),
        either("uniform", (R(4, pairs(1)),), ()),
    ),
    "a predicate, and a loop with a prologue": spmd(
        either("uniform", (S(1, pairs(23)),), ()),
        R(2, pairs(1)),
        repeat("uniform", S(3, pairs(1)), R(4, pairs(1))),
        S(5, pairs(1)),
        either("uniform", (R(6, pairs(23)),), ()),
    ),
    "two leaves, received one by one": spmd(
        Send(FWD, ("f[1]", "f[2]"), at(1)), R(2, FWD, "f[1]"), R(3, FWD, "f[2]"), X(4, RING)
    ),
    "C2": spmd(S(1, pairs(1)), R(2, pairs(1)), C(3)),
    "C4": spmd(S(1, pairs(1)), C(2, ((2, 3),)), R(3, pairs(1))),
    "C5": spmd(C(1), S(2, FWD), R(3, FWD), X(4, RING)),
    "G1": spmd(S(1, FWD, tag=1), R(2, FWD, tag=1), S(3, FWD, tag=2), R(4, FWD, tag=2)),
    "G3": spmd(S(1, pairs(1)), S(2, pairs(1)), R(3, pairs(1)), R(4, pairs(1))),
    "M1": spmd(S(1, pairs(2, 13)), R(2, pairs(2, 13))),
    "M3": spmd(S(1, pairs(3)), R(2, pairs(3))),
    "V2": spmd(S(1, FWD), R(2, FWD), S(2, BWD), R(1, BWD)),
    "V5": spmd(R(4, pairs(10)), loop(3, S(3, pairs(10)), R(2, pairs(10))), S(1, pairs(10)), size=2),
    "X2": spmd(S(1, FWD), R(2, FWD), loop(6, X(3, FWD), X(5, BWD, 1)), S(7, BWD), R(8, BWD)),
    "X3": by_rank(
        (loop(3, S(1, pairs(1))), loop(3, R(2, pairs(10)))), (loop(3, R(3, pairs(1))), loop(3, S(4, pairs(10))))
    ),
    "X6": spmd(S(1, FWD), R(2, FWD), S(3, BWD), R(4, BWD)),
    "Q1, as a sequence": spmd(S(1, FWD), R(2, FWD)),
}

# For each finding: its code, and the lines it names, the faulty one first.
UNSAFE = {
    "U1": (spmd(S(1, pairs(1))), [("PX201", [1])]),
    "U2": (spmd(R(1, pairs(1))), [("PX202", [1])]),
    "U3": (spmd(S(1, FWD), R(2, FWD[:2])), [("PX201", [1])]),
    "P1": (spmd(S(1, pairs(1, 12)), R(2, pairs(1, 23))), [("PX201", [1]), ("PX202", [2])]),
    "P3": (spmd(S(1, pairs(1)), R(2, pairs(10)), size=2), [("PX201", [1]), ("PX202", [2])]),
    "T1": (spmd(S(1, FWD, "float32[64,128]"), R(2, FWD, "float32[128,128]")), [("PX203", [1, 2])]),
    "T3": (spmd(S(1, FWD, "bfloat16[8]"), R(2, FWD)), [("PX204", [1, 2])]),
    "T9": (spmd(S(1, FWD, "float32[64,128]"), R(2, FWD, "float32[8192]")), [("PX203", [1, 2])]),
    "D1": (spmd(S(1, RING), R(2, RING)), [("PX208", [1, 2])]),
    "D2": (spmd(R(1, RING), S(2, RING)), [("PX207", [1, 2])]),
    "D5": (spmd(S(1, pairs(1)), S(2, pairs(10)), R(3, pairs(1)), R(4, pairs(10)), size=2), [("PX208", [1, 2, 3, 4])]),
    "D7": (spmd(R(1, pairs(1)), R(2, pairs(10)), S(3, pairs(1)), S(4, pairs(10)), size=2), [("PX207", [2, 1, 4, 3])]),
    "D15": (spmd(S(1, pairs(22)), R(2, pairs(22))), [("PX208", [1, 2])]),
    "L2": (spmd(loop(3, S(1, pairs(1))), R(2, pairs(1))), [("PX201", [1, 2])]),
    "L6": (spmd(S(1, pairs(1)), loop(3, S(2, pairs(1)), R(3, pairs(1)))), [("PX201", [2, 3])]),
    "L8": (by_rank((loop(6, S(1, pairs(1))),), (loop(5, R(2, pairs(1))),)), [("PX201", [1, 2])]),
    "L9": (
        by_rank(*((loop(rank + 1, S(1, pairs(1)), R(2, pairs(1))),) for rank in range(2))),
        [("PX202", [2, 1])],
    ),
    "L10": (by_rank(*((loop(rank + 1, C(1)),) for rank in range(4))), [("PX209", [1])]),
    "B2": (by_rank((S(1, pairs(1)),), ()), [("PX201", [1])]),
    "B3": (by_rank((C(1, ((0, 1),)),), ()), [("PX209", [1])]),
    "B5": (
        by_rank((C(1, ((0, 1),)), S(2, pairs(1))), (R(3, pairs(1)), C(4, ((0, 1),)))),
        [("PX207", [1, 3, 4, 2])],
    ),
    "B7": (
        by_rank(*[(S(1, FWD), R(2, FWD))] * 2, *[(R(3, FWD), C(4))] * 2),
        [("PX202", [3]), ("PX209", [4])],
    ),
    "B10": (by_rank((C(1, ((0, 1),)),), (C(2, ((0, 1),), "pmax"),)), [("PX209", [1, 2])]),
    "W1": (spmd(either("varying", (S(1, FWD), R(2, FWD)), ())), [("PX210", [91, 1, 2])]),
    "W6": (spmd(repeat("varying", S(1, FWD), R(2, FWD))), [("PX210", [92, 1, 2])]),
    "C1": (spmd(S(1, pairs(1)), C(2), R(3, pairs(1))), [("PX208", [1, 2, 3])]),
    "C3": (spmd(R(1, pairs(1)), C(2), S(3, pairs(1))), [("PX207", [2, 1, 3])]),
    "M2": (spmd(S(1, pairs(2, 13)), R(2, pairs(1, 23))), [("PX201", [1]), ("PX202", [2])]),
    "M4": (spmd(S(1, pairs(2)), R(2, pairs(2, 13))), [("PX202", [2])]),
    "M7": (spmd(S(1, pairs(2, 13)), C(2, ((0, 2), (1, 3))), R(3, pairs(2, 13))), [("PX208", [1, 2, 3])]),
    "V6": (spmd(S(1, FWD), R(2, FWD), R(1, BWD)), [("PX202", [1])]),
    "X4": (spmd(loop(9, S(1, FWD), S(2, BWD), R(3, FWD), R(4, BWD))), [("PX208", [1, 2, 3, 4])]),
    "X7": (spmd(S(1, FWD), S(2, BWD), R(3, FWD), R(4, BWD)), [("PX208", [1, 2, 3, 4])]),
    "Q1, the first alone": (spmd(S(1, FWD)), [("PX201", [1])]),
    "Q1, the second alone": (spmd(R(2, FWD)), [("PX202", [2])]),
    "tags crossed": (spmd(S(1, FWD, tag=1), R(2, FWD, tag=2)), [("PX205", [1, 2])]),
    "a uniform branch, of which one side hangs": (
        spmd(either("uniform", (S(1, RING), R(2, RING)), ())),
        [("PX208", [1, 2])],
    ),
    "a loop of unknown length, which only sends": (spmd(repeat("uniform", S(1, FWD))), [("PX201", [1])]),
    "a collective too many, in front of a message": (
        by_rank((C(1, ((0, 1),)), S(2, pairs(1)), C(3, ((0, 1),))), (R(4, pairs(1)), C(3, ((0, 1),)))),
        [("PX209", [1, 3])],
    ),
    "a pair on one rank only": (by_rank((X(1, pairs(1, 10)),), ()), [("PX201", [1, 2])]),
}

UNDECIDED = {
    "W7": (
        spmd(repeat("uniform", S(1, FWD)), repeat("uniform", R(2, FWD), name="m")),
        [("PX211", [92])],
    ),
    "W10": (spmd(either("unknown", (S(1, FWD), R(2, FWD)), ())), [("PX211", [91, 1, 2])]),
    "W11": (spmd(either("unknown", (S(1, FWD), R(2, FWD)), (C(3),), ())), [("PX211", [91, 1, 2, 3])]),
}


def found(report):
    return [(finding.code, [line for _, line in finding.locations]) for finding in report.diagnostics]


@pytest.mark.parametrize("name", SAFE)
def test_safe(name):
    for semantics in ("rendezvous", "buffered"):
        report = check_program(SAFE[name], semantics)
        assert report.ok and found(report) == [], f"{name}: {report}"


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe(name):
    program, expected = UNSAFE[name]
    report = check_program(program)
    assert report.verdict == "unsafe" and found(report) == expected, f"{name}: {report}"
    # With buffers, a cycle that they resolve is a warning.
    with_buffers = check_program(program, "buffered")
    only_cycles = {code for code, _ in expected} == {"PX208"}
    assert with_buffers.ok == only_cycles, f"{name}: {with_buffers}"
    assert {finding.code for finding in with_buffers.diagnostics} == {code for code, _ in expected}


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided(name):
    program, expected = UNDECIDED[name]
    report = check_program(program)
    assert report.verdict == "undecided" and found(report) == expected, f"{name}: {report}"
    assert not report.ok
    report.raise_if_unsafe()
