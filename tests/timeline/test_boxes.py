"""The boxes of a row are its time, however much is put together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Span
from peerax.timeline._boxes import boxes, describe
from peerax.verifier import Cost, simulate
from tests.timeline.timelines import line
from tests.verifier.programs import small_programs
from tests.verifier.times import BYTES_PER_S, LATENCY_S, compute_s


def times(found):
    """Sums of (computing, waiting, moving) over boxes."""
    sums = [0.0, 0.0, 0.0]
    for box in found:
        for kind, waits, part in box.shares or ((box.kind, box.waits, 1.0),):
            sums[0 if kind == "compute" else 1 if waits else 2] += part * (box.end_s - box.start_s)
    return sums


@given(small_programs(), st.floats(0, 200), st.sampled_from(["rendezvous", "buffered"]))
def test_boxes_are_the_time_of_a_rank(program, least_s, semantics):
    timeline = simulate(program, Cost(LATENCY_S, BYTES_PER_S, compute_s, 2.0), semantics=semantics)
    for rank, time in enumerate(timeline.ranks):
        found = list(boxes(timeline, rank, [span for span in timeline.spans if span.rank == rank], least_s))
        assert times(found) == pytest.approx([time.busy_s, time.waiting_s, time.moving_s], abs=1e-6)
        edges = [0.0, *(edge for box in found for edge in (box.start_s, box.end_s)), time.end_s]
        assert edges[::2] == edges[1::2]


def test_what_is_put_together_is_as_long_as_asked():
    timeline = line(2, 400)
    (all_together,) = boxes(timeline, 0, [s for s in timeline.spans if s.rank == 0], 1e9)
    assert "400 operations, 0 s to 421.6 ms\ncomputes 95 %" in all_together.title()
    several = list(boxes(timeline, 0, [s for s in timeline.spans if s.rank == 0], 0.05))
    assert len(several) == 9
    assert all(box.end_s - box.start_s >= 0.05 for box in several[:-1])


def test_operations_that_are_not_kept_are_one_box():
    timeline = line(2, 400, most_spans=20)
    *_, last = boxes(timeline, 0, [s for s in timeline.spans if s.rank == 0], 0.0)
    assert (last.kind, last.label(), last.end_s) == ("more", "390 more operations", timeline.ranks[0].end_s)


@pytest.mark.parametrize(
    ("kind", "channels", "text"),
    [
        ("send", ((1, 2, 0),), "name > 2"),
        ("recv", ((1, 2, 7),), "name < 1 tag 7"),
        ("exchange", ((2, 0, 0), (1, 2, 0)), "name > 0 < 1"),
        ("exchange", ((2, 2, 0), (2, 2, 0)), "name > 2 < 2"),
        ("send", ((2, 2, 0),), "name > 2"),
        ("recv", ((2, 2, 0),), "name < 2"),
        ("exchange", ((1, 2, 0),), "name < 1"),
        ("collective", (), "name"),
    ],
)
def test_what_an_operation_is(kind, channels, text):
    rank = 1 if text == "name > 2" and channels[0][0] == 1 else 2
    assert describe(Span(rank, kind, "name", 0.0, 0.0, 0.0, channels=channels)) == text
