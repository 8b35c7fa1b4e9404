"""The times of a simulation are those of closed forms, and of another program that finds them."""

import math
from collections import deque

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from peerax.verifier import Branch, Collective, Cost, Exchange, Loop, Program, Recv, Send, Table, Unknown, simulate
from peerax.verifier._code import lower
from peerax.verifier._engine import run, start
from peerax.verifier._simulate import Simulation
from peerax.verifier._totals import Totals
from tests.verifier.programs import small_nodes, small_programs, to_program
from tests.verifier.test_against_oracle import PROGRAMS
from tests.verifier.test_properties import change
from tests.verifier.times import BYTES_PER_S, LATENCY_S, compute_s, times

some = settings(max_examples=PROGRAMS // 10, deadline=None, suppress_health_check=list(HealthCheck))
COST = Cost(LATENCY_S, BYTES_PER_S, compute_s)
BOTH = ["rendezvous", "buffered"]
TYPES = ("float32[4]",)
UP, DOWN = ((0, 1),), ((1, 0),)


def at(line):
    return "step.py", line


def ping_pong(trips):
    there = (Send(UP, TYPES, at(1)), Recv(DOWN, TYPES, at(2)))
    back = (Recv(UP, TYPES, at(3)), Send(DOWN, TYPES, at(4)))
    return Program.of([[Loop(trips, there, at(0))], [Loop(trips, back, at(0))]])


def gpipe(stages, microbatches):
    """All forwards, then all backwards. A stage computes before it sends, and the ends of the line before nothing."""
    forward = tuple((i, i + 1) for i in range(stages - 1))
    backward = tuple((b, a) for a, b in forward)
    body = (
        Loop(microbatches, (Recv(forward, TYPES, at(1)), Send(forward, TYPES, at(2))), at(0)),
        Loop(microbatches, (Recv(backward, TYPES, at(3), tag=1), Send(backward, TYPES, at(4), tag=1)), at(0)),
    )
    return Program.spmd(stages, body)


@pytest.mark.parametrize("semantics", BOTH)
def test_ping_pong(semantics):
    timeline = simulate(ping_pong(5), Cost(2.0, 8.0), semantics=semantics)
    assert timeline.makespan_s == 2 * 5 * (2.0 + 16 / 8)
    assert [timeline.idle_s(rank) for rank in range(2)] == ([40.0, 40.0] if semantics == "rendezvous" else [40.0, 36.0])
    assert timeline.busy_s(0) == timeline.busy_s(1) == 0
    assert len(timeline.messages) == 10
    assert timeline.stuck == ()


@pytest.mark.parametrize("semantics", BOTH)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 1), (4, 4), (4, 9), (7, 3)])
def test_gpipe(stages, microbatches, semantics):
    forward_s, backward_s = 1.0, 2.0
    cost = Cost(compute_s={at(2): forward_s, at(4): backward_s})
    timeline = simulate(gpipe(stages, microbatches), cost, semantics=semantics)
    assert timeline.makespan_s == (microbatches + stages - 1) * (forward_s + backward_s)
    assert timeline.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))
    assert {timeline.busy_s(rank) for rank in range(stages)} == {microbatches * (forward_s + backward_s)}


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 9])
def test_collective(ranks):
    program = Program.spmd(ranks, [Collective("psum", (tuple(range(ranks)),), TYPES, at(1))])
    timeline = simulate(program, Cost(2.0, 8.0, lambda rank, _: float(rank)))
    assert {rank.end_s for rank in timeline.ranks} == {ranks - 1 + 2.0 * math.ceil(math.log2(ranks)) + 16 / 8}
    assert [rank.waiting_s for rank in timeline.ranks] == [ranks - 1 - rank for rank in range(ranks)]


def test_a_collective_of_one_rank_takes_no_time():
    program = Program.spmd(2, [Collective("psum", ((0,), (1,)), TYPES, at(1))])
    assert simulate(program, Cost(2.0, 8.0)).makespan_s == 0.0


def test_a_collective_takes_as_long_as_the_largest_part_of_it():
    joins = [Collective("psum", ((0, 1),), (name,), at(i)) for i, name in enumerate(["float32[8]", "float32[4]"])]
    for bodies in (joins, joins[::-1]):
        for first in range(2):
            cost = Cost(2.0, 8.0, lambda rank, operation, first=first: float(rank == first))
            assert simulate(Program.of([[body] for body in bodies]), cost).makespan_s == 1.0 + 2.0 + 32 / 8


def test_a_ring_of_pairs_takes_as_long_as_one_message():
    ring = tuple((i, (i + 1) % 6) for i in range(6))
    program = Program.spmd(6, [Loop(4, (Exchange(ring, TYPES, at(1), at(2), pair=0),), at(0))])
    timeline = simulate(program, Cost(2.0, 8.0, 1.0))
    assert timeline.makespan_s == 4 * (1.0 + 2.0 + 16 / 8)
    assert timeline.spans[0].channels == ((0, 1, 0), (5, 0, 0))


def test_what_a_rank_has_no_part_in_takes_its_time_too():
    program = Program.spmd(2, [Recv(UP, TYPES, at(1)), Send(UP, TYPES, at(2)), Collective("psum", ((0,),), (), at(3))])
    timeline = simulate(program, Cost(compute_s={at(2): 2.0, at(3): 0.5}), semantics="buffered")
    assert [rank.end_s for rank in timeline.ranks] == [2.5, 4.5]
    assert [len([s for s in timeline.spans if s.rank == rank]) for rank in range(2)] == [2, 1]


@pytest.mark.parametrize("semantics", BOTH)
def test_a_buffered_message_travels_while_its_receiver_computes(semantics):
    program = Program.of([[Send(UP, TYPES, at(1))], [Recv(UP, TYPES, at(2))]])
    timeline = simulate(program, Cost(2.0, 8.0, {at(2): 3.0}), semantics=semantics)
    assert timeline.makespan_s == (7.0 if semantics == "rendezvous" else 4.0)
    assert timeline.ranks[0].end_s == (7.0 if semantics == "rendezvous" else 0.0)


@settings(max_examples=PROGRAMS // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(small_programs(), st.sampled_from(BOTH))
def test_times_are_those_of_the_other_program(program, semantics):
    found = simulate(program, COST, semantics=semantics)
    expected = times(program, semantics == "buffered")
    assert found.stuck == expected.stuck
    for rank, steps in enumerate(expected.steps):
        spans = [span for span in found.spans if span.rank == rank and span.complete]
        if rank not in found.stuck:
            assert found.ranks[rank].end_s == expected.ends[rank]
            # A span has several steps if it has several leaves.
            assert {span.start_s for span in spans} <= {start for start, _ in steps}
        assert sorted({span.end_s for span in spans} - {end for _, end in steps}) == []
        assert found.ranks[rank].busy_s + found.idle_s(rank) == pytest.approx(found.ranks[rank].end_s, abs=1e-9)
        assert found.ranks[rank].end_s <= found.makespan_s
    for message in found.messages if not found.stuck else ():
        assert message.posted_s in [start for start, _ in expected.steps[message.source]]
        assert any(start <= message.received_s <= end for start, end in expected.steps[message.destination])
        assert message.posted_s < message.received_s


@some
@given(small_programs(), st.sampled_from(BOTH))
def test_stuck_are_those_of_the_engine(program, semantics):
    # Without totals the engine passes over nothing.
    engine = run(start(lower(program), Totals(), semantics == "buffered"))
    assert list(simulate(program, COST, semantics=semantics).stuck) == engine.stuck


@some
@given(small_programs(), st.sampled_from(BOTH), st.randoms(use_true_random=False))
def test_the_order_in_which_ranks_go_on_changes_nothing(program, semantics, random):
    def any_of(ready: deque) -> int:
        ready.rotate(random.randrange(len(ready)))
        return ready.popleft()

    buffered = semantics == "buffered"
    assert Simulation(program, COST, buffered, 1000, any_of).run() == simulate(
        program, COST, semantics=semantics, most_spans=1000
    )


@some
@given(small_programs(), st.sampled_from(BOTH), st.floats(0, 100))
def test_more_latency_never_makes_it_faster(program, semantics, more):
    slow = Cost(LATENCY_S + more, BYTES_PER_S, compute_s)
    fast, slow = (simulate(program, cost, semantics=semantics) for cost in (COST, slow))
    assert slow.stuck == fast.stuck
    assert slow.makespan_s >= fast.makespan_s


@some
@given(small_programs())
def test_buffers_never_make_it_slower(program):
    waits, buffers = (simulate(program, COST, semantics=semantics) for semantics in BOTH)
    assume(not waits.stuck)
    assert buffers.stuck == ()
    assert buffers.makespan_s <= waits.makespan_s


@some
@given(small_nodes(), st.randoms(use_true_random=False), st.sampled_from(BOTH))
def test_new_numbers_for_the_ranks(made, random, semantics):
    size, nodes = made
    number = random.sample(range(size), size)

    def renumbered(node):
        operation = node.operation
        if isinstance(operation, Collective):
            groups = tuple(tuple(number[rank] for rank in group) for group in operation.groups)
            changed = {"groups": groups}
        else:
            changed = {"perm": tuple((number[s], number[d]) for s, d in operation.perm)}
        ranks = frozenset(number[rank] for rank in node.ranks)
        return type(node)(type(operation)(**{**vars(operation), **changed}), ranks)

    assume(not any(hasattr(node, "tables") for node in nodes))
    old = simulate(to_program(size, nodes), Cost(LATENCY_S, BYTES_PER_S, 1.0), semantics=semantics)
    new = simulate(to_program(size, change(nodes, renumbered)), Cost(LATENCY_S, BYTES_PER_S, 1.0), semantics=semantics)
    assert new.stuck == tuple(sorted(number[rank] for rank in old.stuck))
    assert all(new.ranks[number[rank]] == old.ranks[rank] for rank in range(size))


def test_a_deadlock_ends_and_says_who_is_stuck():
    ring = tuple((i, (i + 1) % 3) for i in range(3))
    program = Program.spmd(4, [Send(ring, TYPES, at(1)), Recv(ring, TYPES, at(2))])
    timeline = simulate(program, Cost(1.0, 8.0, lambda rank, _: float(rank)))
    assert timeline.stuck == (0, 1, 2)
    assert [(s.rank, s.location, s.complete) for s in timeline.spans] == [(r, at(1), False) for r in range(3)]
    assert timeline.makespan_s == 6.0  # when rank 3 is through, which has no part in it
    assert [rank.waiting_s for rank in timeline.ranks] == [6.0, 5.0, 4.0, 0.0]
    assert simulate(program, Cost(1.0), semantics="buffered").stuck == ()


def test_a_receive_without_a_send_is_stuck():
    assert simulate(Program.spmd(2, [Recv(UP, TYPES, at(1))]), Cost()).stuck == (1,)


def test_only_so_many_spans_are_kept_and_all_are_counted():
    whole, part = (simulate(ping_pong(50), Cost(1.0), most_spans=most) for most in (1000, 20))
    assert (whole.left_out, part.left_out) == (0, 180)
    assert part.ranks == whole.ranks
    assert part.makespan_s == whole.makespan_s
    assert [span.rank for span in part.spans] == [0] * 10 + [1] * 10
    assert len(part.messages) == 10
    assert set(part.messages) < set(whole.messages)


def test_a_message_is_kept_if_both_its_ends_are():
    to_last = [[Send(((rank, 2),), TYPES, at(rank), tag=rank)] * 6 for rank in range(2)]
    receive = [Recv(((rank, 2),), TYPES, at(4), tag=rank) for rank in (0, 1)] * 6
    timeline = simulate(Program.of([*to_last, receive]), Cost(1.0), most_spans=9)
    assert [(m.source, m.destination) for m in timeline.messages] == [(0, 2), (1, 2), (0, 2)]


UNSURE = (
    Loop(
        Unknown("steps"),
        (Branch(Unknown("which"), ((), (Send(UP, TYPES, at(1)), Recv(UP, TYPES, at(2)))), at(3)),),
        at(4),
    ),
)


def test_values_of_what_is_not_known():
    program = Program.spmd(2, UNSURE)
    assert simulate(program, Cost(1.0), values={"steps": 3, "which": 1}).makespan_s == 3.0
    assert simulate(program, Cost(1.0), values={"steps": 3, "which": 0}).makespan_s == 0.0
    assert simulate(program, Cost(1.0), values={"steps": (3, 2), "which": 1}).stuck == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "give values for steps, which"),
        ({"steps": 1}, "give values for which"),
        ({"steps": 1, "which": 1, "other": 1}, "depends on other; what is not known: steps, which"),
        ({"steps": 1, "which": 2}, r"which is 2, and the branches at step.py:3 are 0\.\.1"),
        ({"steps": -1, "which": 1}, "cannot run -1 times"),
        ({"steps": (1, 2, 3), "which": 1}, "steps has 3 values for 2 ranks"),
        ({"steps": 1.5, "which": 1}, "steps is a number, or one for each rank, not 1.5"),
        ({"steps": "12", "which": 1}, "steps is a number, or one for each rank, not '12'"),
    ],
)
def test_values_that_do_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        simulate(Program.spmd(2, UNSURE), Cost(), values=values)


def test_a_dtype_that_is_not_known_is_named():
    with pytest.raises(ValueError, match="'float7' is not known; known are bool, int1"):
        simulate(Program.spmd(2, [Send(UP, ("float7[4]",), at(1))]), Cost())


def test_a_program_that_is_too_long(monkeypatch):
    monkeypatch.setattr("peerax.verifier._simulate._MOST_INSTRUCTIONS", 1000)
    assert simulate(ping_pong(100), Cost()).ranks[0].operations == 200
    with pytest.raises(ValueError, match="more than 1,000 steps; shorten its loops"):
        simulate(ping_pong(1000), Cost())


def test_no_other_semantics():
    with pytest.raises(ValueError, match="'rendezvous' or 'buffered'"):
        simulate(ping_pong(1), Cost(), semantics="eager")


def test_a_table_of_trip_counts():
    inner = Loop(Table((2, 0, 1)), (Collective("psum", ((0, 1),), TYPES, at(1)),), at(2))
    timeline = simulate(Program.spmd(2, [Loop(3, (inner,), at(3))]), Cost(1.0))
    assert timeline.makespan_s == 3.0
    assert [span.iterations for span in timeline.spans[:3]] == [((0, 3), (0, 2)), ((0, 3), (1, 2)), ((2, 3), (0, 1))]
