"""Ranks that are not in step: the same numbers, no wait for more than what is needed, and nothing hangs or is left."""

import re
import threading
from collections import defaultdict, deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import peerax
from peerax.pipeline import SCHEDULES, Schedule, evaluate, schedule, value_and_grad
from peerax.pipeline.executor._own_time import in_rows, received_late
from peerax.pipeline.executor._tables import Keeps, own_time_table, positions
from peerax.verifier import check_program
from tests.pipeline.executor import models
from tests.pipeline.executor.test_tables import Rank, step
from tests.pipeline.made import schedules

# Ranks and microbatches, and whether it is safe also if sends wait, where it receives as late as possible.
SIZES = {
    "gpipe": (3, 2, True),
    "1f1b": (4, 2, False),
    "eager-1f1b": (3, 4, False),
    "interleaved-1f1b": (2, 4, False),
    "looped-bfs": (2, 8, False),
    "combined-tick": (2, 4, False),
    "circular": (2, 4, False),
    "zb-h1": (3, 4, False),
    "zb-h2": (3, 1, True),
    "interleaved-zb": (2, 4, False),
    "zbv": (2, 1, True),
    "dualpipev": (2, 4, False),
}


def arguments(made, examples=None):
    return models.weights_of(made), *models.vectors(examples or 2 * made.microbatches)


def is_safe(program):
    return tuple(check_program(program, semantics).ok for semantics in ("buffered", "rendezvous"))


def test_all_schedules_are_here():
    assert set(SIZES) == set(SCHEDULES)


@pytest.mark.parametrize("name", SIZES)
def test_of_every_schedule(name):
    *size, safe = SIZES[name]
    made = schedule(name, *size)
    given = arguments(made, 8)
    ours = models.of_vectors(made, remat=False, strategy="p2p")
    models.assert_close(models.quick(ours, *given), models.of_squares(made, *given))
    program = peerax.program(ours, *given)
    assert is_safe(program) == (True, safe)


@pytest.mark.parametrize("name", ["1f1b", "zbv"])
def test_it_is_the_same_to_the_bit_with_messages_that_are_written(name):
    made = schedule(name, 2, 5)
    given = arguments(made)
    ours = models.of_vectors(made.with_messages(), remat=False, strategy="p2p")
    models.assert_close(models.quick(ours, *given), models.quick(models.of_vectors(made, remat=False), *given), 0)
    assert is_safe(peerax.program(ours, *given)) == (True, True)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_safe_where_sends_wait(name):
    """What peerax.check says of the lists: late receives are safe only if no rank has a forward behind a backward."""
    for ranks, microbatches in ((2, 4), (4, 8), (3, 6)):
        made = schedule(name, ranks, microbatches)
        assert is_safe(received_late(made).program()) == (True, name == "gpipe")
        assert is_safe(made.with_messages().program()) == (True, True)


def test_a_slow_action_delays_nobody_who_needs_nothing_of_it():
    """Rank 1 stays in its second forward until rank 0 is through with its last one, three actions later."""
    made = schedule("gpipe", 3, 5)
    params, (x, targets) = models.weights_of(made), models.vectors(5)
    params = params | {"rank": np.arange(3, dtype=np.float32)}
    counts, through, waited, limit_s = [0, 0, 0], threading.Event(), [], []

    def called(rank):
        rank = int(rank)
        counts[rank] += 1
        if (rank, counts[rank]) == (0, 5):
            through.set()
        if (rank, counts[rank]) == (1, 2):
            waited.append(through.wait(*limit_s))
        return np.float32(0)

    def stage(weights, x):
        rank = jax.lax.stop_gradient(weights["rank"] + 0 * x.sum())
        nothing = jax.pure_callback(called, jax.ShapeDtypeStruct((), jnp.float32), rank)
        return models.stage(weights, x) + nothing

    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(3), "remat": False}
    for strategy, seconds in (("p2p", 30), ("exchange", 0.5)):
        counts[:], limit_s[:] = [0, 0, 0], [seconds]
        through.clear()
        step = value_and_grad(stage, models.squares, strategy=strategy, **options)
        jax.block_until_ready(models.quick(step, params, x, targets))
        assert counts == [5, 5, 5]  # no stage is computed where nobody asked for it
    assert waited == [True, False]


def test_the_trace_shows_each_message_and_none_is_left():
    made = schedule("1f1b", 4, 3)
    given = arguments(made)
    ours = jax.jit(models.of_vectors(made, strategy="p2p"), compiler_options=models.QUICK)
    with peerax.trace() as trace:
        jax.block_until_ready(ours(*given))
    between = [(m.source, m.destination) for m in trace.timeline.messages]
    assert sorted(between) == sorted([(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)] * 3)


def test_forwards_only_of_several_stages_with_aux():
    made = schedule("interleaved-1f1b", 2, 4)
    given = arguments(made)
    options = {"axis_name": "stage", "mesh": models.mesh(2), "has_aux": True}

    def both(strategy):
        return evaluate(
            lambda w, x: (models.stage(w, x), x.mean()),
            lambda y, targets: (models.squares(y, targets), y.sum()),
            schedule=made,
            strategy=strategy,
            **options,
        )

    models.assert_close(models.quick(both("p2p"), *given), models.quick(both("exchange"), *given), 0)


def test_the_loop_copies_no_ring_and_no_sums():
    made = schedule("1f1b", 4, 8)
    ours = jax.jit(models.of_vectors(made, remat=False, strategy="p2p"), compiler_options=models.QUICK)
    compiled = ours.lower(models.weights_of(made), *models.vectors(32)).compile().as_text()
    bodies = [part for part in compiled.split("\n\n") if re.match(r"%\S*region", part)]
    assert any('custom_call_target="peerax_send' in body for body in bodies)
    copied = [dims for body in bodies for dims in re.findall(r"= \w+\[([\d,]*)\]\S* copy\(", body)]
    largest = max(np.prod([int(size) for size in dims.split(",") if size], initial=1) for dims in copied)
    assert largest <= 4 * models.WIDTH  # a message


def test_a_tpu_has_none():
    made = schedule("1f1b", 4, 4)
    traced = jax.jit(models.of_vectors(made, strategy="p2p")).trace(*arguments(made))
    with pytest.raises(peerax.PeeraxError, match="PX213"):
        traced.lower(lowering_platforms=("tpu",))


def test_where_sends_wait_it_is_refused_or_written():
    """As it is by a compiler for GPUs."""
    made = schedule("1f1b", 2, 4)
    for order, goes in ((made, False), (made.with_messages(), True)):
        traced = jax.jit(models.of_vectors(order, strategy="p2p")).trace(*arguments(made))
        if goes:
            assert "stablehlo.send" in traced.lower(lowering_platforms=("cuda",)).as_text()
        else:
            with pytest.raises(peerax.PeeraxError, match="PX208"):
                traced.lower(lowering_platforms=("cuda",))


# The tables.


def play(of, made, keeps, pace):
    """Run a table; of all ranks the first one in `pace` that can go on does so until it cannot."""
    at = positions(made.columns)
    ranks = [Rank(made) for _ in range(of.ranks)]
    edges = defaultdict(deque)
    left = [deque(rows) for rows in zip(*made.rows, strict=True)]

    def can(number):
        cells = left[number] and left[number][0]
        return cells and all(edges[c, number] for c in channels if cells[at[f"receive_{c}"]])

    channels = range(len(made.channels))
    while any(left):
        number = next(number for number in pace if can(number))
        cells = left[number].popleft()
        cell, rank = {name: cells[place] for name, place in at.items()}, ranks[number]
        for c in channels:
            if cell[f"receive_{c}"]:
                rank.rings["message"][cell[f"arrival_{c}"]] = edges[c, number].popleft()
        step(of, made, rank, cell, keeps)
        for c, (buffer, perm) in enumerate(made.channels):
            if cell[f"send_{c}"]:
                edges[c, dict(perm)[number]].append(rank.out[buffer])
    assert not any(edges.values())
    return ranks


@given(schedules(), st.booleans(), st.sampled_from("FBW"), st.sampled_from("BW"), st.randoms(use_true_random=False))
def test_each_step_finds_what_it_needs(of, written, x, dy, random):
    keeps, pace = Keeps(x, dy), random.sample(range(of.ranks), of.ranks)
    made = own_time_table(of.with_messages() if written else of, keeps)
    done = [rank.done for rank in play(of, made, keeps, pace)]
    assert done == [[str(leaf) for leaf in of.leaves(rank)] for rank in range(of.ranks)]
    assert made.slots["both"] == max(of.replay().peaks)


@given(schedules())
def test_late_receives_cost_no_time_and_no_row(of):
    late = received_late(of)
    assert late.faults() == () and is_safe(late.program())[0]
    assert late.timeline().makespan_s == pytest.approx(of.without_overlaps().replay().makespan_s)
    received = sum(len(row.receives) for rows in in_rows(of).of_ranks for row in rows)
    assert received == sum(of.replay().messages)


@given(schedules(), st.booleans())
def test_rows_keep_the_order_of_lists(of, written):
    """A receive that moved in front of an action would make it wait."""
    lists = of.with_messages() if written else received_late(of)
    for rows, row in zip(in_rows(lists).of_ranks, lists.without_overlaps().actions, strict=True):
        in_order = [[*r.receives.values(), r.action, *(r.send or ())[1:]] for r in rows]
        assert [action for some in in_order for action in some if action] == list(row)


def test_there_is_a_row_for_each_action():
    made = in_rows(schedule("1f1b", 4, 8))
    assert ([len(rows) for rows in made.of_ranks], made.buffers) == ([16] * 4, 1)
    assert in_rows(schedule("dualpipev", 4, 8)).buffers == 1
    assert (
        in_rows(schedule("dualpipev", 4, 8).with_messages()).buffers == 2
    )  # both parts of an overlap, then both sends


# Rank 1 takes them the other way round than rank 0 makes them.
CROSSED = """0F0,0F1,0B0,0B1
1F1,1F0,1B0,1B1
"""


def test_what_is_needed_out_of_order_is_received_ahead():
    made = Schedule.from_csv(CROSSED, name="crossed").validate()
    given = arguments(made)
    models.assert_close(models.quick(models.of_vectors(made, strategy="p2p"), *given), models.of_squares(made, *given))


def test_what_is_written_out_of_order_is_refused():
    rows = """0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F1,1RECV_F0,1F1,1F0,1B0,1SEND_B0,1B1,1SEND_B1
"""
    made = Schedule.from_csv(rows, name="crossed").validate()
    with pytest.raises(ValueError, match=r"rank 1 receives 1RECV_F1 \(action 1 of its list\) before 1RECV_F0, which"):
        models.of_vectors(made, strategy="p2p")
    models.of_vectors(made)


def test_what_is_sent_too_late_is_refused():
    rows = """0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
"""
    made = Schedule.from_csv(rows, name="late").validate()
    with pytest.raises(
        ValueError, match=r"rank 0 sends 0SEND_F0 \(action 3 of its list\) after 0F1, and only the last"
    ):
        models.of_vectors(made, strategy="p2p")


@pytest.mark.parametrize("options", [{"strategy": "peer"}, {"strategy": "p2p", "ticks": "all"}])
def test_options_that_do_not_go_together(options):
    with pytest.raises(ValueError, match="strategy is exchange or p2p|ticks='all' is for strategy='exchange'"):
        models.of_vectors(schedule("1f1b", 2, 2), **options)
