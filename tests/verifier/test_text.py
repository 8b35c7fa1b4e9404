"""The text of a program parses back exactly; the grid is for people."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, Table, Unknown

SIZE = 6
words = st.one_of(
    st.sampled_from(["x", "float32[8,3]", "key<fry>[2]", "", "a b", 'c"d\\', "e:1;f,g|h=i", "\n\t", "ü\u2028"]),
    st.text(),
)
locations = st.tuples(words, st.integers(0, 9999))
lists = st.lists(words, max_size=3).map(tuple)
small = st.integers(0, 3)


@st.composite
def perms(draw):
    number = draw(st.integers(0, SIZE))
    sources, destinations = (draw(st.permutations(range(SIZE)))[:number] for _ in range(2))
    if draw(st.booleans()):
        sources, destinations = range(number), [(i + 1) % SIZE for i in range(number)]
    return tuple(zip(sources, destinations, strict=True))


@st.composite
def groups(draw):
    ranks = draw(st.permutations(range(SIZE)))
    cuts = sorted(draw(st.sets(st.integers(1, SIZE - 1), max_size=3)))
    parts = [tuple(ranks[a:b]) for a, b in zip([0, *cuts], [*cuts, SIZE], strict=True)]
    return tuple(parts[: draw(st.integers(0, len(parts)))])


channel = st.tuples(st.integers(-3, 3), words, lists)
operations = st.one_of(
    st.builds(
        lambda kind, *args: kind(*args[:3], *args[3]), st.sampled_from([Send, Recv]), perms(), lists, locations, channel
    ),
    st.builds(lambda *args: Exchange(*args[:5], *args[5]), perms(), lists, locations, locations, small, channel),
    st.builds(Collective, words, groups(), lists, locations, lists),
)
unknowns = st.builds(Unknown, words, st.sampled_from(["uniform", "varying", "unknown"]))


@st.composite
def bodies(draw, trips=()):
    """A body; trips are those of the loops around it, innermost first, None if unknown."""
    items = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["operation", "operation", "loop", "branch"]))
        known = [depth for depth, trip in enumerate(trips) if trip is not None]

        def table(most, known=known):
            depth = draw(st.sampled_from(known))
            length = trips[depth] + draw(small)
            return Table(tuple(draw(st.lists(st.integers(0, most), min_size=length, max_size=length))), depth)

        if kind == "operation" or len(trips) > 1:
            items.append(draw(operations))
        elif kind == "loop":
            trip = table(3) if known and draw(st.booleans()) else draw(st.one_of(small, unknowns))
            longest = (
                max(trip.values, default=0) if isinstance(trip, Table) else trip if isinstance(trip, int) else None
            )
            items.append(Loop(trip, draw(bodies((longest, *trips))), draw(locations)))
        else:
            branches = tuple(draw(st.lists(bodies(trips), min_size=1, max_size=2)))
            selector = table(len(branches) - 1) if known and draw(st.booleans()) else draw(unknowns)
            items.append(Branch(selector, branches, draw(locations)))
    return tuple(items)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(bodies(), min_size=2, max_size=2), st.lists(st.booleans(), min_size=SIZE, max_size=SIZE))
def test_text_parses_back(two, which):
    program = Program.of(two[choice] for choice in which)
    text = str(program)
    assert Program.parse(text) == program
    assert str(Program.parse(text)) == text
    program.grid()


def at(line):
    return ("train step.py", line)


EXAMPLE = Program.of(
    [
        (
            Loop(6, (Send(((0, 1), (1, 2)), ("float32[8,3]", "int32[]"), at(4), axes=("stage",)),), at(3)),
            Branch(Unknown("while_1"), ((), (Collective("psum", ((0, 1, 2),), ("float32[]",), at(6)),)), at(5)),
        ),
        *[(Loop(2, (Branch(Table((0, 1)), ((), (Recv(((0, 1),), ("f[2]",), at(8), 3),)), at(7)),), at(7)),)] * 2,
    ]
)
TEXT = """\
program of 3 ranks
ranks 0:
  loop 6 at="train step.py":3
    send perm=0-1>1-2 types=float32[8,3];int32[] axes=stage at="train step.py":4
  branch uniform=while_1 at="train step.py":5
  case
  case
    collective name=psum groups=0-2 types=float32[] at="train step.py":6
ranks 1-2:
  loop 2 at="train step.py":7
    branch table=0,1 depth=0 at="train step.py":7
    case
    case
      recv perm=0>1 tag=3 types=f[2] at="train step.py":8
"""
GRID = """\
   rank 0             rank 1
1  loop x6            loop x2
2    send > 1           branch by table
3  branch by while_1    case 0
4  case 0               case 1
5  case 1                 recv < 0 tag 3
6    psum
and 1 more ranks"""


def test_the_text():
    assert str(EXAMPLE) == TEXT
    assert Program.parse(TEXT) == EXAMPLE


def test_the_grid():
    assert EXAMPLE.grid(columns=2) == GRID
    assert EXAMPLE.grid(rows=2).splitlines()[-1] == "and 4 more rows"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the text ends too early"),
        ("hello", "line 1: a program begins with"),
        ("program of 2 ranks\nranks 0:\n", "says 2 ranks, but has 1"),
        ("program of 1 ranks\nwhat\n", "line 2: expected 'ranks 0-3:'"),
        ("program of 1 ranks\nranks 0:\n  jump at=a:1\n", "line 3"),
        ("program of 1 ranks\nranks 0:\n  send perm= types=f at=a\n", "line 3"),
        ("program of 1 ranks\nranks 0:\n  send perm=0>1 types=f at=a:1\n", "is not a perm of ranks 0..0"),
        ("program of 1 ranks\nranks 0:\n      send perm= types=f at=a:1\n", "line 3: expected 'ranks 0-3:'"),
    ],
)
def test_what_is_not_a_program(text, why):
    with pytest.raises(ValueError) as caught:
        Program.parse(text)
    assert why in str(caught.value)


def test_a_table_must_fit_its_loop():
    for table in (Table((0,)), Table((0, 1), depth=1), Table((0, 2)), Table((0, -1))):
        with pytest.raises(ValueError):
            Program.spmd(1, [Loop(2, (Branch(table, ((), ()), at(1)),), at(1))])
    with pytest.raises(ValueError):
        Program.spmd(1, [Branch(Table((0,)), ((),), at(1))])
