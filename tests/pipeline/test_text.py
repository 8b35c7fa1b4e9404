"""Schedules print and parse, as text and as CSV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.pipeline.schedules import Action, Schedule, schedule
from tests.pipeline.made import schedules


@given(schedules(), st.booleans())
def test_round_trips(made, with_messages):
    made = made.with_messages() if with_messages else made
    assert Schedule.parse(str(made)) == made
    assert Schedule.from_csv(made.to_csv(), name=made.name) == made


@pytest.mark.parametrize(
    "text",
    ["2F0", "1I3", "0W11", "10B2", "2SEND_F0", "3RECV_F0", "1SEND_B3", "0RECV_B3", "(0F7;7B3)OVERLAP_F_B", "1UNSHARD",
     "1RESHARD", "0REDUCE_GRAD"],
)  # fmt: skip
def test_actions(text):
    assert str(Action.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "F0", "2F", "2X0", "2f0", "1UNSHARD3", "1OVERLAP_F_B2", "(0F7)OVERLAP_F_B", "(0B7;7F3)OVERLAP_F_B", "-1F0",
     "(0F7;(1F0;2B0)OVERLAP_F_B)OVERLAP_F_B"],
)  # fmt: skip
def test_no_actions(text):
    with pytest.raises(ValueError, match="is no"):
        Action.parse(text)


def test_text():
    assert (
        str(schedule("1f1b", 2, 2))
        == """\
schedule 1f1b: 2 ranks, 2 microbatches
stages on ranks 0 1
rank 0: 0F0 0F1 0B0 0B1
rank 1: 1F0 1B0 1F1 1B1
"""
    )
    assert str(schedule("gpipe", 1, 1)).startswith("schedule gpipe: 1 rank, 1 microbatch\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schedule", "plan"), "begins with a line such as"),
        (("stages on", "stages"), "the second line"),
        (("rank 1", "rank 2"), "line 4: expected 'rank 1: ...', not 'rank 2"),
        (("1B0", "1X0"), "line 4: '1X0' is no action"),
        (("2 ranks", "3 ranks"), "the text says 3 ranks, but has 2"),
        (("ranks 0 1", "ranks 0 7"), "stage 1 is on rank 7, but the ranks are 0..1"),
    ],
)
def test_no_schedule(change, said):
    text = str(schedule("1f1b", 2, 2)).replace(*change)
    with pytest.raises(ValueError, match=said):
        Schedule.parse(text)


def test_csv_as_others_write_it():
    """With empty cells where a rank is idle, quotes, spaces, other ends of lines, and what concerns weights."""
    text = '0F0, ,0F1,,"0B0",,0B1,0REDUCE_GRAD\r\n,1F0,1B0,1F1,1B1,,,1REDUCE_GRAD\r\n\r\n'
    read = Schedule.from_csv(text)
    assert read.compute_only().actions == schedule("1f1b", 2, 2).actions
    assert (read.placement, read.microbatches, read.faults()) == ((0, 1), 2, ())
    assert read.replay().makespan_s == schedule("1f1b", 2, 2).replay().makespan_s


def test_placement_of_csv():
    assert Schedule.from_csv(schedule("zbv", 3, 5).to_csv()).placement == (0, 1, 2, 2, 1, 0)
    # A stage is where most of it is, and what is elsewhere is the fault.
    (fault,) = Schedule.from_csv("0F2\n0F0,0B0,0F1,0B1,0B2\n").faults()
    assert str(fault) == "rank 0: 0F2 (action 1 of its list) is of stage 0, which is on rank 1"
    # A rank that does nothing in between is a rank.
    assert Schedule.from_csv("0F0,0B0\n\n1F0,1B0\n").placement == (0, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0B0,what\n", "row 1, column 3: 'what' is no action"),
        ("", "nothing is computed"),
        ("0UNSHARD\n", "nothing is computed"),
        ("0F0,0B0\n2F0,2B0\n", "stage 1 is on no rank, but there is a stage 2"),
    ],
)
def test_no_csv(text, said):
    with pytest.raises(ValueError, match=said):
        Schedule.from_csv(text)


@pytest.mark.parametrize(
    "arguments",
    [("", [[]], [0], 1), ("a\nb", [[]], [0], 1), ("x", [], [0], 1), ("x", [[]], [], 1), ("x", [[]], [0], 0)],
)
def test_no_value(arguments):
    with pytest.raises(ValueError):
        Schedule(*arguments)
