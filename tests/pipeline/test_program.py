"""The messages of a schedule as a program: it cannot hang, and its simulation takes as long as the replay."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerax.pipeline.schedules import SCHEDULES, Costs, Schedule, schedule
from peerax.pipeline.schedules._messages import with_messages
from peerax.verifier import Send, check_program
from tests.pipeline.made import schedules

COSTS = Costs(1.0, 2.5, weight_s=1.0, latency_s=0.25, message_bytes=128, bandwidth_bytes_per_s=1024.0)


@pytest.mark.parametrize("semantics", ["rendezvous", "buffered"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_each_is_safe_and_drawn(name, semantics):
    made = schedule(name, 4, 8)
    report = check_program(made.program(COSTS, semantics=semantics), semantics)
    assert report.ok
    # Receives that are late hang where sends wait, which is a warning here.
    assert {found.code for found in report.diagnostics} <= ({"PX208"} if semantics == "buffered" else set())
    timeline = made.timeline(COSTS, semantics=semantics)
    assert not timeline.stuck and len(timeline.messages) == sum(made.replay().messages)
    assert timeline.to_svg().count('class="a"') > 40
    replay = made.replay(COSTS)
    if semantics == "buffered":
        assert timeline.makespan_s == pytest.approx(replay.makespan_s)
    else:
        assert timeline.makespan_s >= replay.makespan_s - 1e-9
    assert [rank.busy_s for rank in timeline.ranks] == pytest.approx(replay.busy_s)


@settings(max_examples=60, deadline=None)
@given(schedules(most_ranks=4, most_microbatches=8), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_random_ones(made, forward, backward, latency):
    costs = Costs(forward, backward, latency_s=latency)
    for semantics in ("rendezvous", "buffered"):
        assert check_program(made.program(costs, semantics=semantics), semantics).ok
    assert made.timeline(costs).makespan_s == pytest.approx(made.replay(costs).makespan_s)
    assert made.with_messages().faults() == ()
    assert made.with_messages().compute_only() == made
    # What is written is taken as it is.
    written = made.with_messages()
    assert check_program(written.program(costs), "rendezvous").ok
    assert written.replay(costs).makespan_s == made.replay(costs).makespan_s


@settings(max_examples=60, deadline=None)
@given(schedules(most_ranks=4, most_microbatches=8), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_messages_are_sent_at_once(made, forward, backward, latency):
    """Also if actions take no time, and whatever messages take."""
    written = with_messages(made, Costs(forward, backward, latency_s=latency))
    assert written.faults() == ()
    assert written == with_messages(made, Costs(forward, backward))
    for row in written.actions:
        before = None
        for action in row:
            if action.kind.startswith("SEND"):
                what = "F" if action.kind == "SEND_F" else "BI"
                made_by = [leaf for leaf in before.leaves if leaf.kind in what]
                assert [(leaf.stage, leaf.microbatch) for leaf in made_by] == [(action.stage, action.microbatch)]
            elif not action.kind.startswith("RECV"):
                before = action


@given(schedules(most_ranks=4, most_microbatches=8))
def test_both_ends_have_one_order(made):
    """On each channel, and even on each edge, messages are received in the order in which they are sent."""
    orders = {"SEND": defaultdict(list), "RECV": defaultdict(list)}
    for rank, row in enumerate(made.with_messages().actions):
        for action in row:
            end, _, what = action.kind.partition("_")
            if end in orders:
                step = {("SEND", "F"): 1, ("SEND", "B"): -1, ("RECV", "F"): -1, ("RECV", "B"): 1}[end, what]
                other = made.placement[action.stage + step]
                edge = (rank, other) if end == "SEND" else (other, rank)
                from_stage = action.stage if end == "SEND" else action.stage + step
                orders[end][edge].append((what, from_stage, action.microbatch))
    assert orders["SEND"] == orders["RECV"]
    assert sum(map(len, orders["SEND"].values())) == sum(made.replay().messages)


def test_the_other_way_round_it_hangs():
    """Receives right before they are needed hang if sends wait: what `rendezvous` avoids."""
    late = schedule("1f1b", 3, 6).program(semantics="buffered")
    assert not check_program(late, "rendezvous").ok
    assert check_program(late, "buffered").ok


def test_microbatches_in_another_order_on_the_next_rank():
    rows = "0F0,0F1,0F2,0B0,0B1,0B2\n1F2,1F0,1F1,1B0,1B1,1B2\n"
    made = Schedule.from_csv(rows)
    for semantics in ("rendezvous", "buffered"):
        assert check_program(made.program(semantics=semantics), semantics).ok
        assert not made.timeline(semantics=semantics).stuck
    assert made.timeline().makespan_s == made.replay().makespan_s == 3 + 3 + 6 + 2


def test_channels_and_lines():
    program = schedule("zbv", 2, 3).program(Costs(message_bytes=8))
    ends = {(end.tag, end.perm, end.types) for body in program.bodies() for end in body if isinstance(end, Send)}
    # Stages 0, 1, 2, 3 are on ranks 0, 1, 1, 0, and nothing goes from 1 to 2.
    to, back = ((0, 1),), ((1, 0),)
    assert ends == {(0, to, ("uint8[8]",)), (3, back, ("uint8[8]",)), (4, back, ("uint8[8]",)), (7, to, ("uint8[8]",))}
    first = program.bodies()[0][0]
    assert (first.location, schedule("zbv", 2, 3).actions[0][0].kind) == (("zbv", 1), "F")


def test_semantics_are_two():
    with pytest.raises(ValueError, match="semantics is 'rendezvous' or 'buffered'"):
        schedule("1f1b", 2, 2).program(semantics="eager")
