"""What a replay says is what closed formulas say: how long ranks are idle, and what they keep."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerax.pipeline.schedules import Action, Costs, circular, interleaved_1f1b, schedule
from tests.pipeline.made import schedules

RANKS = st.integers(1, 8)
CHUNKS = st.integers(1, 3)
COST = st.integers(1, 20)


def idle(replay):
    """How long a rank is idle, which is the same for all ranks where all have the same costs."""
    (busy,) = set(replay.busy_s)
    return replay.makespan_s - busy


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
@given(ranks=RANKS, microbatches=st.integers(1, 24), forward=COST, backward=COST)
def test_flat(name, ranks, microbatches, forward, backward):
    replay = schedule(name, ranks, microbatches).replay(Costs(forward, backward))
    assert idle(replay) == (ranks - 1) * (forward + backward)
    assert replay.bubble == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    most = {
        "gpipe": [microbatches] * ranks,
        "1f1b": [ranks - rank for rank in range(ranks)],
        "eager-1f1b": [2 * (ranks - rank) - 1 for rank in range(ranks)],
    }[name]
    assert replay.peaks == replay.peaks_until_input == tuple(min(microbatches, kept) for kept in most)


@given(RANKS, st.integers(1, 4), CHUNKS, COST, COST, st.integers(0, 7))
def test_interleaved_and_looped(ranks, rounds, chunks, forward, backward, more):
    group = ranks + more % 3
    microbatches = rounds * group
    costs = Costs(forward, backward)
    made = interleaved_1f1b(ranks, microbatches, chunks, group=group)
    units = chunks * microbatches
    for replay in (made.replay(costs), schedule("looped-bfs", ranks, microbatches, chunks).replay(costs)):
        assert idle(replay) == (ranks - 1) * (forward + backward)
        assert replay.bubble == pytest.approx((ranks - 1) / (units + ranks - 1))
    most = [(chunks - 1) * group + 2 * (ranks - 1 - rank) + 1 for rank in range(ranks)]
    assert made.replay(costs).peaks == tuple(min(units, kept) for kept in most)
    assert replay.peaks == (units,) * ranks


@given(RANKS, st.integers(1, 3), CHUNKS, COST, COST)
def test_combined_tick(ranks, rounds, chunks, forward, backward):
    microbatches = rounds * ranks
    replay = schedule("combined-tick", ranks, microbatches, chunks).replay(Costs(forward, backward))
    units = chunks * microbatches
    assert replay.makespan_s == (units + ranks - 1) * (forward + backward)
    most = [chunks * ranks + ranks - 2 * rank - 1 for rank in range(ranks)]
    assert replay.peaks == tuple(min(units, kept) for kept in most)


@given(RANKS, st.integers(0, 8), CHUNKS, st.sampled_from([1, 2]))
def test_circular(ranks, more, chunks, delay):
    microbatches = delay * ranks + more
    made = circular(ranks, microbatches, chunks, delay=delay)
    # Of two steps that a message has, one is on its way.
    replay = made.replay(Costs(1, 1, latency_s=delay - 1))
    whole = chunks * microbatches + delay * (ranks - 1)
    assert replay.makespan_s == 2 * whole
    assert replay.bubble == pytest.approx(delay * (ranks - 1) / whole)


@given(RANKS, st.integers(0, 12), COST, COST, COST)
def test_zb_h1(ranks, more, forward, half, weight):
    microbatches = ranks + more
    replay = schedule("zb-h1", ranks, microbatches).replay(Costs(forward, half + weight, weight_s=weight))
    if weight <= min(forward, half):
        assert idle(replay) == (ranks - 1) * (forward + half - weight)
    assert replay.peaks == (min(microbatches, ranks),) * ranks
    assert replay.peaks_until_input == tuple(ranks - rank for rank in range(ranks))


@given(RANKS, st.integers(1, 3), CHUNKS)
def test_interleaved_zero_bubble(ranks, rounds, chunks):
    microbatches = rounds * ranks
    replay = schedule("interleaved-zb", ranks, microbatches, chunks).replay()
    units = chunks * microbatches
    assert replay.bubble == pytest.approx((ranks - 1) / (3 * units + ranks - 1))
    assert replay.peaks == (min(units, (chunks - 1) * ranks + ranks),) * ranks


@given(RANKS, st.integers(0, 12))
def test_zb_h2(ranks, more):
    microbatches = 2 * ranks - 1 + more
    replay = schedule("zb-h2", ranks, microbatches).replay()
    assert replay.makespan_s == 3 * microbatches + ranks - 1
    assert replay.spans_s == replay.busy_s
    assert replay.peaks == (2 * ranks - 1,) * ranks
    assert replay.peaks_until_input == tuple(2 * (ranks - rank) - 1 for rank in range(ranks))


@given(RANKS, st.integers(0, 12))
def test_zbv(ranks, more):
    microbatches = 2 * ranks - 1 + more
    replay = schedule("zbv", ranks, microbatches).replay()
    assert replay.makespan_s == 6 * microbatches + ranks - 1
    assert replay.spans_s == replay.busy_s
    # A single rank has nobody to wait for, and keeps its first stage and its last one of one microbatch.
    assert replay.peaks == (2 * ranks,) * ranks


@given(RANKS, st.integers(0, 12))
def test_dualpipev(ranks, more):
    microbatches = 2 * ranks + more
    made = schedule("dualpipev", ranks, microbatches)
    replay = made.replay()
    assert replay.bubble == pytest.approx((ranks - 1) / (3 * microbatches + ranks - 1))
    assert idle(replay) == (ranks - 1) * (3 + 2 - 3)
    assert replay.peaks == (2 * ranks + 1 if ranks > 1 else replay.peaks[0],) * ranks
    apart = made.without_overlaps().replay()
    assert apart.bubble == pytest.approx((ranks - 1) / (6 * microbatches + ranks - 1))
    # If it costs less to do both at the same time, it is what the last rank is idle, and none is for longer.
    cheaper = made.replay(Costs(overlap_s=2.5))
    assert cheaper.makespan_s - min(cheaper.busy_s) == (ranks - 1) * (2.5 + 2 - 3)


@given(schedules(), st.randoms())
def test_microbatches_have_no_order_of_their_own(made, random):
    names = list(range(made.microbatches))
    random.shuffle(names)

    def renamed(action):
        if action.parts:
            return Action.overlap(*map(renamed, action.parts))
        return Action(action.kind, action.stage, names[action.microbatch])

    other = replace(made, actions=[list(map(renamed, row)) for row in made.actions])
    assert other.faults() == ()
    first, second = made.replay(), other.replay()
    assert (first.makespan_s, first.peaks, first.messages) == (second.makespan_s, second.peaks, second.messages)


@given(schedules())
def test_messages(made):
    between = sum(made.placement[s] != made.placement[s + 1] for s in range(made.stages - 1))
    assert sum(made.replay().messages) == 2 * between * made.microbatches


@settings(max_examples=50)
@given(schedules(), COST, COST, st.integers(0, 5))
def test_times_are_the_earliest_possible(made, forward, backward, latency):
    """Each action starts when the one before is over and what it needs is there, and no later."""
    replay = made.replay(Costs(forward, backward, latency_s=latency))
    over = {}
    for row in replay.times:
        for timed in row:
            for leaf in timed.action.leaves:
                over["F" if leaf.kind == "F" else "W" if leaf.kind == "W" else "B", leaf.stage, leaf.microbatch] = timed
    for rank, row in enumerate(replay.times):
        at = 0.0
        for timed in row:
            starts = [at]
            for leaf in timed.action.leaves:
                s, i = leaf.stage, leaf.microbatch
                needed = {
                    "F": [("F", s - 1, i)], "W": [("B", s, i)], "B": [("F", s, i), ("B", s + 1, i)],
                    "I": [("F", s, i), ("B", s + 1, i)],
                }[leaf.kind]  # fmt: skip
                for key in needed:
                    if key in over:
                        away = made.placement[key[1]] != rank
                        starts.append(over[key].end_s + latency * away)
            assert timed.start_s == max(starts)
            at = timed.end_s


def test_stages_may_cost_differently():
    # The last stage has the loss as well: it is the slowest, and the others wait for it.
    costs = Costs([1, 1, 1, 3], [2, 2, 2, 6])
    replay = schedule("1f1b", 4, 8).replay(costs)
    assert replay.busy_s == (24, 24, 24, 72)
    assert replay.makespan_s == 72 + 3 * (1 + 2)
    with pytest.raises(ValueError, match="forward_s has 4 values for 2 stages"):
        schedule("1f1b", 2, 8).replay(costs)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"forward_s": -1}, "forward_s is a number, 0 or more, not -1"),
        ({"backward_s": [1, float("nan")]}, "backward_s is a number"),
        ({"latency_s": float("inf")}, "latency_s is finite"),
        ({"bandwidth_bytes_per_s": 0}, "bandwidth_bytes_per_s is a number above 0"),
        ({"message_bytes": 1.5}, "message_bytes is a whole number"),
        ({"weight_s": 3}, "half of a backward takes 3, which is more than the 2"),
        ({"forward_s": "1"}, "forward_s is a number"),
    ],
)
def test_no_costs(wrong, said):
    with pytest.raises(ValueError, match=said):
        Costs(**wrong)
