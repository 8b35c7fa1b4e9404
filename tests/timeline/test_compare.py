"""Two timelines beside each other: the numbers are those of each, and the picture has both."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Timeline
from peerax.verifier import Cost, Exchange, Loop, Program, Recv, Send, simulate
from tests.timeline.timelines import TYPES, deadlock, line
from tests.verifier.programs import small_programs

SVG = "{http://www.w3.org/2000/svg}"
LEFT, PLOT, TOP = 122, 1200 - 122 - 58, 104

TABLE = """\
simulated: 2 ranks, rendezvous sends, 2.108 ms in all, bubble 5 %
measured: 2 ranks, rendezvous sends, 4.216 ms in all, bubble 5 %
measured takes 2 times as long as simulated: 2.108 ms, 4.216 ms

rank  busy: simulated  measured  ratio  in operations: simulated  measured  ratio  end: simulated  measured  ratio
0     2 ms             4 ms      2      108 µs                    216 µs    2      2.108 ms        4.216 ms  2
1     2 ms             4 ms      2      108 µs                    216 µs    2      2.108 ms        4.216 ms  2

line        operation  rank  times  waits: simulated  measured  ratio  in all: simulated  measured  ratio
pipe.py:11  precv      all   2      0 s               0 s              108 µs             216 µs    2
pipe.py:12  psend      all   2      0 s               0 s              108 µs             216 µs    2

line        operation  rank  times  waits: simulated  measured  ratio  in all: simulated  measured  ratio
pipe.py:11  precv      1     2      0 s               0 s              108 µs             216 µs    2
pipe.py:12  psend      0     2      0 s               0 s              108 µs             216 µs    2"""


def pair_of_ranks(times, file="pipe.py"):
    """Two messages from 0 to 1, which both ranks are there for at the same time."""
    step = (Send(((0, 1),), TYPES, (file, 12)), Recv(((0, 1),), TYPES, (file, 11)))
    cost = Cost(5e-5 * times, 1e9 / times, lambda rank, operation: 1e-3 * times * isinstance(operation, Send))
    return simulate(Program.spmd(2, [Loop(2, step, (file, 10))]), cost)


def measured(timeline):
    return replace(timeline, origin="measured")


def drawn(comparison, **options):
    return ElementTree.fromstring(comparison.to_svg(**options))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def bars(root):
    """By y, the ends of the boxes that are in the rows."""
    found = {}
    for rect in root.iter(f"{SVG}rect"):
        if rect.find(f"{SVG}title") is not None:
            edges = float(rect.get("x")), float(rect.get("x")) + float(rect.get("width"))
            found.setdefault(float(rect.get("y")), []).extend(edges)
    return found


def test_table():
    assert str(pair_of_ranks(1).compare(measured(pair_of_ranks(2)))) == TABLE


def test_a_file_may_be_written_in_full():
    short, full = pair_of_ranks(1), measured(pair_of_ranks(2, "/home/me/pipe.py"))
    assert str(short.compare(full)) == TABLE
    assert [row.location[0] for row in full.compare(short).lines()] == ["/home/me/pipe.py"] * 2
    other = short.compare(measured(pair_of_ranks(2, "/home/me/other_pipe.py")))
    assert {row.numbers for row in other.lines()} == {(2, 0), (0, 2)}
    assert re.search(r"pipe.py:12 +psend +all +2 and 0 +0 s +- +108 µs +-$", other.table(), re.MULTILINE)


def test_a_file_that_may_be_one_of_two_is_another_one():
    both = replace(pair_of_ranks(1), spans=pair_of_ranks(1, "a/pipe.py").spans + pair_of_ranks(1, "b/pipe.py").spans)
    found = both.compare(measured(pair_of_ranks(2))).lines()
    assert {row.numbers for row in found if row.location[0] == "pipe.py"} == {(0, 2)}


@given(small_programs(), st.sampled_from(["rendezvous", "buffered"]))
def test_nothing_is_lost(program, semantics):
    first = simulate(program, Cost(1e-3, 7.0, 0.1))
    second = simulate(program, Cost(2e-3, 9.0, 0.2), semantics=semantics)
    comparison = first.compare(second)
    for rows in (comparison.lines(), comparison.operations()):
        for which, timeline in enumerate((first, second)):
            waits = [(row.waits.first_s, row.waits.second_s)[which] for row in rows]
            whole = [(row.whole.first_s, row.whole.second_s)[which] for row in rows]
            assert sum(row.numbers[which] for row in rows) == len(timeline.spans)
            assert sum(waits) == pytest.approx(sum(rank.waiting_s for rank in timeline.ranks))
            assert sum(whole) == pytest.approx(sum(map(timeline.idle_s, range(timeline.size))))
        gaps = [round(abs(row.whole.first_s - row.whole.second_s), 13) for row in rows]
        assert gaps == sorted(gaps, reverse=True)
    ElementTree.fromstring(comparison.to_svg())


def test_the_same_twice():
    comparison = line(3, 2).compare(line(3, 2))
    assert comparison.names == ("first", "second")
    assert comparison.makespan.ratio == 1
    assert all(row.whole.ratio == 1 for row in comparison.operations())
    assert comparison.table().startswith("first, simulated: 3 ranks, ")


def test_other_sizes():
    with pytest.raises(ValueError, match="as many ranks, but these have 2 and 3"):
        line(2, 1).compare(line(3, 1))


def test_both_are_on_one_axis():
    root = drawn(pair_of_ranks(1).compare(measured(pair_of_ranks(2))))
    rows = bars(root)
    assert len(rows) == 4
    ends = [max(edges) for _, edges in sorted(rows.items())]
    assert ends == pytest.approx([LEFT + PLOT / 2, LEFT + PLOT] * 2, abs=0.1)
    assert {"simulated: 2.108 ms", "measured: 4.216 ms"} <= set(texts(root))
    assert "of each rank: simulated above, measured below" in texts(root)
    assert texts(root).count("rank 1") == 1 and texts(root).count("2") == 2


@pytest.mark.parametrize(("times", "options"), [(2, {"normalised": True}), (5, {})])
def test_each_has_an_axis_of_its_own(times, options):
    root = drawn(pair_of_ranks(1).compare(measured(pair_of_ranks(times))), **options)
    assert [max(edges) for edges in bars(root).values()] == pytest.approx([LEFT + PLOT] * 4, abs=0.1)
    assert any("an axis of its own" in text for text in texts(root))
    assert "simulated: 2.108 ms" not in texts(root)


def test_many_ranks():
    first, second = line(200, 20), measured(line(200, 20, semantics="buffered"))
    root = drawn(first.compare(second))
    assert sum(text.startswith("rank ") for text in texts(root)) == 64
    assert any("136 more ranks are not drawn" in text for text in texts(root))
    assert "and 168 more ranks" in first.compare(second).table()
    assert len(first.compare(second).to_html()) < 2_000_000
    assert [t for t in texts(drawn(first.compare(second), ranks=[7, 3])) if t.startswith("rank ")] == [
        "rank 7",
        "rank 3",
    ]


def test_what_is_stuck_or_left_out():
    assert texts(drawn(deadlock().compare(measured(deadlock())))).count("stuck") == 3 + 1  # and the legend
    few = line(50, 4, most_spans=100)
    assert "of the operations that are kept; 292 are not" in few.compare(line(50, 4)).table()
    assert any("first: 292 operations are not kept" in text for text in texts(drawn(few.compare(line(50, 4)))))


@pytest.mark.parametrize("timeline", [deadlock(compute_s=0.0), line(1, 0), line(2, 0), Timeline((), (), ())])
def test_no_time_at_all(timeline):
    comparison = timeline.compare(measured(timeline))
    assert "simulated takes no time: 0 s, 0 s" in comparison.table()
    assert "simulated takes no time" in comparison.to_html()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": [2, 8]}, r"the ranks are 0\.\.7, not \[8\]"),
        ({"most_ranks": 0}, "1 or more, not 0"),
        ({"width": 100}, "640 or more, not 100"),
    ],
)
def test_what_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        line(8, 1).compare(line(8, 1)).to_svg(**options)


def test_a_page_loads_nothing():
    comparison = pair_of_ranks(1).compare(measured(pair_of_ranks(2)))
    page = comparison.to_html()
    assert comparison.to_svg() in page
    assert not re.search(r"<script|<link|<img|@import|\bsrc=|\bhref=", page)
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}


def test_an_exchange_of_a_run_is_that_of_a_simulation():
    """A run calls it psend or ppermute, and knows no line where the program has none."""
    ring, nowhere = ((0, 1), (1, 0)), ("<unknown>", 0)
    body = (Exchange(ring, TYPES, ("a.py", 3), ("a.py", 4), pair=0), Exchange(ring, TYPES, nowhere, nowhere, pair=1))
    simulated = simulate(Program.spmd(2, body), Cost(1e-5, 1e9))
    spans = [replace(s, name="psend", location=s.location if s.location[1] else None) for s in simulated.spans]
    found = simulated.compare(measured(replace(simulated, spans=tuple(spans)))).lines()
    assert {(row.location, row.name, row.numbers) for row in found} == {
        (("a.py", 3), "exchange", (2, 2)),
        (None, "exchange", (2, 2)),
    }
