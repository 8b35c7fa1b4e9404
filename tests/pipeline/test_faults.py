"""What is wrong with a schedule is found, and said with rank, action and cause."""

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peerax.pipeline.schedules import Action, Schedule, ScheduleError, schedule
from tests.pipeline.made import schedules


def graph(made):
    """Return what each action needs, from the rules alone: an oracle that replays nothing."""
    home = {}
    for row in made.actions:
        for action in row:
            for leaf in action.leaves:
                home[leaf.kind if leaf.kind in "FW" else "G", leaf.stage, leaf.microbatch] = action
    needed = {action: set() for action in home.values()}
    for (kind, stage, microbatch), action in home.items():
        behind = {"F": [("F", stage - 1)], "W": [("G", stage)], "G": [("F", stage), ("G", stage + 1)]}[kind]
        needed[action] |= {home[k, s, microbatch] for k, s in behind if 0 <= s < made.stages}
    for row in made.actions:
        for first, second in zip(row, row[1:], strict=False):
            needed[second].add(first)
    return needed


def can_run(made):
    try:
        TopologicalSorter(graph(made)).prepare()
    except CycleError:
        return False
    return True


def needs_itself(made, action):
    """Whether an action waits, through others, for itself."""
    needed, seen = graph(made), set()
    left = list(needed[action])
    while left:
        other = left.pop()
        if other not in seen:
            seen.add(other)
            left += needed[other]
    return action in seen


def with_row(made, rank, row):
    return replace(made, actions=[row if other == rank else kept for other, kept in enumerate(made.actions)])


def some_place(data, made):
    rank = data.draw(st.integers(0, made.ranks - 1))
    return rank, data.draw(st.integers(0, len(made.actions[rank]) - 1))


@given(schedules(most_ranks=4, most_microbatches=6), st.data())
def test_two_are_swapped(made, data):
    rank, first = some_place(data, made)
    second = data.draw(st.integers(0, len(made.actions[rank]) - 1))
    row = list(made.actions[rank])
    row[first], row[second] = row[second], row[first]
    wrong = with_row(made, rank, row)
    found = wrong.faults()
    assert bool(found) == (not can_run(wrong))
    for fault in found:
        assert needs_itself(wrong, wrong.actions[fault.rank][fault.places[0][1]])
        for place_rank, position in fault.places:
            assert needs_itself(wrong, wrong.actions[place_rank][position])


@given(schedules(most_ranks=4, most_microbatches=6), st.data())
def test_one_is_dropped(made, data):
    rank, position = some_place(data, made)
    row = list(made.actions[rank])
    dropped = row.pop(position)
    found = with_row(made, rank, row).faults()
    assert [fault.rank for fault in found] == [rank] * len(dropped.leaves)
    for fault, leaf in zip(found, sorted(dropped.leaves, key=lambda leaf: leaf.stage), strict=True):
        # If all of a schedule was one backward in halves, what is missing may be a whole one as well.
        assert (fault.action.stage, fault.action.microbatch) == (leaf.stage, leaf.microbatch)
        assert fault.action.kind == leaf.kind or made.microbatches == 1
        assert fault.why.endswith("missing")


@given(schedules(most_ranks=4, most_microbatches=6), st.data())
def test_one_is_there_twice(made, data):
    rank, position = some_place(data, made)
    row = list(made.actions[rank])
    row.insert(data.draw(st.integers(0, len(row))), row[position])
    wrong = with_row(made, rank, row)
    found = wrong.faults()
    assert [(fault.rank, fault.action) for fault in found] == [(rank, leaf) for leaf in row_leaf(made, rank, position)]
    assert all("is there already, as action" in fault.why for fault in found)


def row_leaf(made, rank, position):
    return made.actions[rank][position].leaves


@given(schedules(most_ranks=4, most_microbatches=6), st.data())
def test_a_stage_is_moved(made, data):
    assume(made.ranks > 1)
    stage = data.draw(st.integers(0, made.stages - 1))
    home = made.placement[stage]
    to = data.draw(st.integers(0, made.ranks - 1).filter(lambda rank: rank != home))
    placement = [to if other == stage else rank for other, rank in enumerate(made.placement)]
    (fault,) = replace(made, placement=placement).faults()
    assert (fault.rank, fault.action.stage) == (home, stage)
    assert fault.why.startswith(f"is of stage {stage}, which is on rank {to}")


@given(schedules(most_ranks=4, most_microbatches=6), st.data())
def test_an_action_is_on_another_rank(made, data):
    assume(made.ranks > 1)
    rank, position = some_place(data, made)
    to = data.draw(st.integers(0, made.ranks - 1).filter(lambda other: other != rank))
    rows = list(map(list, made.actions))
    moved = rows[rank].pop(position)
    rows[to].append(moved)
    found = replace(made, actions=rows).faults()
    assert {(fault.rank, fault.action) for fault in found} == {(to, leaf) for leaf in moved.leaves}


def test_a_circle_is_said():
    wrong = Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n")
    with pytest.raises(ScheduleError) as caught:
        wrong.validate()
    assert (
        str(caught.value)
        == """\
the schedule custom cannot be run
  rank 0: 0B0 (action 2 of its list) waits for 1B0, which rank 1 does after 1F1; and that waits for 0F1, which rank 0 \
does after 0B0
    rank 0: 0F0 >0B0< >0F1< 0B1
    rank 1: >1F1< 1F0 1B1 >1B0<"""
    )
    assert caught.value.schedule is wrong and len(caught.value.faults) == 1
    with pytest.raises(ScheduleError):
        wrong.replay()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("0B0,0F0", "rank 0: 0B0 (action 1 of its list) needs 0F0, which comes later in the same list"),
        ("0F0,0W0,0I0", "rank 0: 0W0 (action 2 of its list) needs 0I0, which comes later in the same list"),
        ("(0F0;0B0)OVERLAP_F_B", "rank 0: (0F0;0B0)OVERLAP_F_B (action 1 of its list) needs itself"),
        ("0F0,0B0,0I0", "rank 0: 0I0 (action 3 of its list) is part of 0B0, which is there as well"),
        ("0F0,0I0,0W0,0F1,0W1", "rank 0: 0I1 is missing"),
        ("0F0,0I0,0W0,0F1", "rank 0: 0I1 and 0W1 are missing"),
        ("0F0,0B0,0F1", "rank 0: 0B1 is missing"),
        ("0F0,0B0\n1F0,1B0,0F1,0B1", "rank 1: 0F1 (action 3 of its list) is of stage 0, which is on rank 0"),
    ],
)
def test_what_is_said(rows, said):
    assert said in "\n".join(map(str, Schedule.from_csv(rows).faults()))


def test_numbers_that_are_not_there():
    wrong = replace(schedule("1f1b", 2, 3), microbatches=2)
    assert str(wrong.faults()[0]).endswith("is of microbatch 2, but the microbatches are 0..1")
    wrong = Schedule("short", schedule("1f1b", 2, 2).actions, [0], 2)
    assert str(wrong.faults()[0]).endswith("is of stage 1, but the stages are 0..0")


def test_the_grid_is_short():
    made = schedule("1f1b", 40, 40)
    wrong = replace(made, actions=[[action for action in row if action.microbatch != 3] for row in made.actions])
    with pytest.raises(ScheduleError) as caught:
        wrong.validate()
    lines = str(caught.value).splitlines()
    assert len(lines) < 30 and "  and 72 more" in lines
    assert max(map(len, lines)) < 200


def test_two_circles_are_two_faults():
    rows = "0B0,0F0\n1B0,1F0\n"
    assert [fault.rank for fault in Schedule.from_csv(rows).faults()] == [0, 1]


MESSAGES = [
    (lambda row: [a for a in row if str(a) != "0SEND_F0"], 0, "0SEND_F0 is missing: 0F0 is for rank 1"),
    (lambda row: [a for a in row if str(a) != "1RECV_F0"], 1, "1RECV_F0 is missing: 1F0 needs what rank 0 sends"),
    (lambda row: [*row, Action.parse("1RECV_F0")], 1, "1RECV_F0 (action 9 of its list) is there already"),
    (lambda row: [*row[1:], row[0]], 1, "1RECV_F0 (action 8 of its list) comes after 1F0"),
    (lambda row: [row[1], row[0], *row[2:]], 0, "0SEND_F0 (action 1 of its list) comes before 0F0"),
    (lambda row: [*row, Action.parse("1SEND_F0")], 1, "1SEND_F0 (action 9 of its list) is for no other stage"),
]


@pytest.mark.parametrize(("change", "rank", "said"), MESSAGES)
def test_messages_that_are_written(change, rank, said):
    made = schedule("gpipe", 2, 2).with_messages()
    assert made.faults() == ()
    assert [str(a) for a in made.actions[0]][:2] == ["0F0", "0SEND_F0"]
    found = with_row(made, rank, change(list(made.actions[rank]))).faults()
    assert found[0].rank == rank and f"rank {rank}: {said}" in str(found[0])


def test_a_message_to_the_same_rank():
    made = schedule("zbv", 2, 3)
    wrong = with_row(made.with_messages(), 1, [*made.with_messages().actions[1], Action.parse("1SEND_F0")])
    assert "is for a stage of the same rank" in str(wrong.faults()[0])


def test_sends_that_are_late_can_make_a_circle():
    """Each rank receives first, and sends when it has computed with what it received."""
    wrong = Schedule.from_csv(
        "0F0,1RECV_B0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n".replace("1RECV_B0,", ""), name="late"
    )
    assert "waits for 1SEND_B0" in str(wrong.faults()[0])
