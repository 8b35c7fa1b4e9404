"""Who sent how much to whom, as a value, a table and a picture."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Timeline
from peerax.timeline._matrix import Traffic
from peerax.verifier import Cost, Program, Recv, Send, simulate
from tests.timeline.timelines import TYPES, deadlock, line, ring_of_pairs
from tests.verifier.programs import small_programs

SVG = "{http://www.w3.org/2000/svg}"

TABLE = """\
data: 9 messages, 35.16 KiB in all

from \\ to  0  1          2          3          all
0          .  11.72 KiB  .          .          11.72 KiB
1          .  .          11.72 KiB  .          11.72 KiB
2          .  .          .          11.72 KiB  11.72 KiB
3          .  .          .          .          .
all        .  11.72 KiB  11.72 KiB  11.72 KiB  35.16 KiB"""

FOLDED = """\
messages: 297 messages, 1.133 MiB in all

from \\ to  0-31  32-63  64-95  96-99  all
0-31       93    3      .      .      96
32-63      .     93     3      .      96
64-95      .     .      93     3      96
96-99      .     .      .      9      9
all        93    96     96     12     297"""


def two_pairs():
    """Two pairs of ranks, of which the first one can be made to wait."""
    perm = ((0, 1), (2, 3))
    return Program.spmd(4, [Send(perm, TYPES, ("a.py", 1)), Recv(perm, TYPES, ("a.py", 2))])


def drawn(matrix, *words, **options):
    return ElementTree.fromstring(matrix.to_svg(*words, **options))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def squares(root):
    return [e for e in root.iter(f"{SVG}rect") if e.find(f"{SVG}title") is not None]


def test_table():
    assert str(line(4, 3).matrix()) == TABLE


def test_a_table_of_many_ranks_is_folded():
    assert line(100, 3).matrix().table("messages", most=6) == FOLDED


def test_values():
    matrix = line(3, 2).matrix()
    assert matrix[0, 1] == Traffic(2, 8000, pytest.approx(1e-3))
    assert matrix[1, 2].longest_wait_s == pytest.approx(2.054e-3)
    assert matrix[2, 1] == Traffic()
    assert matrix.total.messages == 4
    assert matrix.total.longest_wait_s == matrix[1, 2].longest_wait_s
    for pair in ((0, 3), (-1, 0)):
        with pytest.raises(IndexError, match=r"0\.\.2"):
            matrix[pair]


@given(small_programs(), st.sampled_from(["rendezvous", "buffered"]), st.integers(1, 5))
def test_the_cells_are_the_messages(program, semantics, most):
    timeline = simulate(program, Cost(1e-3, 7.0, 0.1), semantics=semantics)
    matrix = timeline.matrix()
    for source in range(timeline.size):
        for destination in range(timeline.size):
            found = [m for m in timeline.messages if (m.source, m.destination) == (source, destination)]
            traffic = matrix[source, destination]
            assert (traffic.messages, traffic.size_bytes) == (len(found), sum(m.size_bytes for m in found))
    assert matrix.folded(most).total == matrix.total
    assert len(matrix.folded(most).names) <= most


def test_a_hang_waits_without_a_message():
    matrix = deadlock().matrix()
    assert {pair for pair, traffic in matrix.cells.items() if not traffic.messages} == {(0, 1), (1, 2), (2, 0)}


@pytest.mark.parametrize("measure", ["data", "messages", "waits"])
def test_each_pair_that_communicates_is_a_square(measure):
    matrix = ring_of_pairs().matrix()
    root = drawn(matrix, measure)
    assert len(squares(root)) == 6
    titles = [square.find(f"{SVG}title").text for square in squares(root)]
    assert titles[0].startswith("0 > 1: 4 messages, 15.62 KiB, longest wait ")


def test_what_is_more_is_darker():
    root = drawn(line(4, 3).matrix(), "waits")
    shown = {square.find(f"{SVG}title").text[:5]: float(square.get("fill-opacity")) for square in squares(root)}
    assert 0.1 < shown["0 > 1"] < shown["1 > 2"] < shown["2 > 3"] == 1
    numbers = [text for text in texts(root) if re.fullmatch(r"[\d.]+", text)]
    assert {"1", "3.108"} <= set(numbers)


def test_sources_are_rows():
    places = {
        square.find(f"{SVG}title").text[:5]: (float(square.get("x")), float(square.get("y")))
        for square in squares(drawn(line(4, 3).matrix()))
    }
    (x, y), (right, below) = places["0 > 1"], places["1 > 2"]
    assert (right - x, below - y) == (58, 58)
    assert y - 0.5 == 76 and x > 58 + 40  # the first row, and not the first column


def test_a_pair_that_does_not_wait_is_seen():
    (square,) = squares(drawn(line(2, 1, semantics="buffered").matrix().folded(1), "waits"))
    assert float(square.get("fill-opacity")) == 1
    matrix = simulate(two_pairs(), Cost(0.0, compute_s=lambda rank, _: 1.0 * (rank == 0))).matrix()
    shown = {s.find(f"{SVG}title").text[:5]: float(s.get("fill-opacity")) for s in squares(drawn(matrix, "waits"))}
    assert shown == {"0 > 1": 1.0, "2 > 3": 0.12}


def test_of_many_ranks_neighbours_are_put_together():
    matrix = line(200, 2).matrix()
    root = drawn(matrix)
    assert len(squares(root)) == 50 + 49
    assert "of the 200 ranks, neighbours are put together" in texts(root)
    assert "0-3" in texts(root) and len(matrix.to_svg()) < 100_000
    assert len(squares(drawn(matrix, most=200))) == 199


@pytest.mark.parametrize("timeline", [line(2, 0), line(1, 1), Timeline((), (), ())])
def test_nothing_was_sent(timeline):
    assert "nothing was sent" in texts(drawn(timeline.matrix()))
    assert "0 messages, 0 B in all" in timeline.matrix().table()


def test_what_is_missing_is_said():
    matrix = line(50, 4, most_spans=100).matrix()
    assert matrix.table().endswith("\nof the operations that are kept; 292 are not")
    assert "of the operations that are kept; 292 are not" in texts(drawn(matrix))


def test_other_measures():
    for view in (line(2, 1).matrix().table, line(2, 1).matrix().to_svg):
        with pytest.raises(ValueError, match="'data', 'messages' or 'waits', not 'bytes'"):
            view("bytes")
        with pytest.raises(ValueError, match="1 or more, not 0"):
            view(most=0)


def test_it_is_in_the_page():
    timeline = line(3, 2)
    page = timeline.to_html()
    assert timeline.matrix().to_svg() in page and timeline.matrix().to_svg("waits") in page
    assert "<td>pipe.py:12</td><td>pipe.py:11</td>" in page
