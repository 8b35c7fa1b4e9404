"""The table says where the time went."""

import pytest

from tests.timeline.timelines import deadlock, line

TABLE = """\
simulated: 3 ranks, rendezvous sends, 4.216 ms in all, bubble 53 %

rank  busy        waits     moves data  after its end  operations
0     2 ms  47 %  54 µs     108 µs      2.054 ms       2
1     2 ms  47 %  1 ms      216 µs      1 ms           4
2     2 ms  47 %  2.108 ms  108 µs      0 s            2
mean  2 ms  47 %  1.054 ms  144 µs      1.018 ms       3

line        operation  waits, all ranks  moves data  times
pipe.py:11  precv      3.108 ms          216 µs      4
pipe.py:12  psend      54 µs             216 µs      4"""


def test_table():
    assert str(line(3, 2)) == TABLE


def test_a_rank_that_is_stuck():
    lines = deadlock().table().splitlines()
    assert lines[0].endswith("; stuck: 3 of 4 ranks (0, 1, 2)")
    assert lines[3].endswith("stuck in psend at dead.py:9")
    assert "stuck" not in lines[6]


def test_what_is_left_out():
    text = line(50, 4, most_spans=100).table(most_ranks=4, most_lines=1)
    assert "and 46 more ranks, of which the mean is too" in text
    assert "and 1 more lines" in text
    assert "of the operations that are kept; 292 are not" in text
    assert len(text.splitlines()) == 14


@pytest.mark.parametrize("timeline", [deadlock(compute_s=0.0), line(1, 1), line(2, 0)])
def test_no_time_at_all(timeline):
    assert " 0 s" in timeline.table()
