"""What a trace records, against what the program says that it does. Each program here may hang."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import peerax
from peerax import runtime
from tests.ops.ranks import chain, on_ranks, pair, ring

pytestmark = pytest.mark.usefixtures("wait_limit")
STEPS = 5


def recorded(program, *args, times=1, **options):
    with peerax.trace(**options) as trace:
        assert trace.timeline is None
        for _ in range(times):
            jax.block_until_ready(program(*args))
    assert trace.timeline.origin == "measured"
    return trace.timeline


def pairs_of(messages):
    return sorted((message.source, message.destination) for message in messages)


def spans_of(timeline, name, rank=None):
    return [span for span in timeline.spans if span.name == name and rank in (None, span.rank)]


def scan(exchange, perm):
    def body(x):
        return lax.scan(lambda c, _: (exchange(c, "x", perm), None), x, None, length=STEPS)[0]

    return body


def separate(x, axis_name, perm):
    peerax.psend(x, axis_name, perm)
    return peerax.precv(peerax.create_token(), x, axis_name, perm)


@pytest.mark.parametrize("size", [3, 4, 8])
class TestMessages:
    def test_pairs_on_a_ring(self, size):
        timeline = recorded(on_ranks(scan(pair, ring(size)), size), jnp.arange(2.0 * size))
        assert pairs_of(timeline.messages) == sorted(ring(size) * STEPS)
        assert {span.kind for span in timeline.spans} == {"exchange"}
        assert len(timeline.spans) == size * STEPS and timeline.left_out == 0
        assert {span.size_bytes for span in timeline.spans} == {8}
        for rank in range(size):
            assert all(
                span.channels == ((rank, (rank + 1) % size, 0), ((rank - 1) % size, rank, 0))
                for span in spans_of(timeline, "psend", rank)
            )

    def test_separate_operations_on_a_chain(self, size):
        timeline = recorded(on_ranks(scan(separate, chain(size)), size), jnp.arange(2.0 * size))
        assert pairs_of(timeline.messages) == sorted(chain(size) * STEPS)
        # Ranks that have no part in an operation have no span of it.
        assert [len(spans_of(timeline, "psend", rank)) for rank in range(size)] == [STEPS] * (size - 1) + [0]
        assert [len(spans_of(timeline, "precv", rank)) for rank in range(size)] == [0] + [STEPS] * (size - 1)

    def test_several_on_one_channel_meet_in_their_order(self, size):
        def body(x):
            for i in range(3):
                peerax.psend(x[: i + 1], "x", chain(size))
            parts = [peerax.precv(peerax.create_token(), x[: i + 1], "x", chain(size)) for i in range(3)]
            return jnp.concatenate(parts)

        timeline = recorded(on_ranks(body, size), jnp.arange(4.0 * size))
        on_first = [message for message in timeline.messages if message.source == 0]
        assert [message.size_bytes for message in on_first] == [4, 8, 12]

    def test_large_arrays_in_place(self, size):
        def body(x):
            return scan(pair, ring(size))(jnp.tile(x, 2**18))[:2]

        timeline = recorded(on_ranks(body, size), jnp.arange(2.0 * size))
        assert pairs_of(timeline.messages) == sorted(ring(size) * STEPS)
        assert {message.size_bytes for message in timeline.messages} == {2**21}

    def test_collectives(self, size):
        def body(x):
            return pair(x, "x", ring(size)) + lax.psum(x, "x")

        timeline = recorded(on_ranks(body, size), jnp.arange(2.0 * size))
        assert {span.kind for span in spans_of(timeline, "psum")} == {"collective"}
        assert len(spans_of(timeline, "psum")) == size and pairs_of(timeline.messages) == sorted(ring(size))


class TestTimes:
    def test_order(self):
        timeline = recorded(on_ranks(scan(separate, chain(4))), jnp.arange(8.0), times=2)
        for rank in range(4):
            mine = [span for span in timeline.spans if span.rank == rank]
            for span in mine:
                assert 0 <= span.start_s <= span.matched_s <= span.end_s <= timeline.makespan_s
            assert all(a.end_s <= b.start_s for a, b in zip(mine, mine[1:], strict=False))
        for message in timeline.messages:
            assert message.posted_s <= message.received_s

    def test_the_time_of_a_rank_is_that_of_its_spans(self):
        timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0))
        for rank, total in enumerate(timeline.ranks):
            mine = [span for span in timeline.spans if span.rank == rank]
            assert total.operations == len(mine)
            np.testing.assert_allclose(total.waiting_s, sum(s.matched_s - s.start_s for s in mine), atol=1e-9)
            np.testing.assert_allclose(total.moving_s, sum(s.end_s - s.matched_s for s in mine), atol=1e-9)
            assert 0 <= total.busy_s <= total.end_s

    def test_who_waits_for_a_late_rank(self):
        def late(x):
            time.sleep(0.3)
            return x

        def body(x):
            def sleeps(x):
                return jax.pure_callback(late, x, x)

            x = lax.cond(lax.axis_index("x") == 0, sleeps, lambda x: x, x)
            return pair(x, "x", chain(4))

        timeline = recorded(on_ranks(body, check_vma=False), jnp.arange(8.0))
        assert timeline.ranks[1].waiting_s > 0.25
        assert timeline.ranks[0].waiting_s < 0.1 < timeline.ranks[0].busy_s
        assert timeline.ranks[3].waiting_s < 0.25

    def test_loops_count(self):
        timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0))
        numbers = [span.iterations for span in spans_of(timeline, "psend", 2)]
        assert numbers == [((i, STEPS),) for i in range(STEPS)]


class TestPauses:
    def test_between_programs(self):
        program = on_ranks(scan(pair, ring(4)))
        program(jnp.arange(8.0)).block_until_ready()
        with peerax.trace() as trace:
            for _ in range(3):
                program(jnp.arange(8.0)).block_until_ready()
                time.sleep(0.1)
        timeline = trace.timeline
        for rank in range(4):
            mine = [pause for pause in timeline.pauses if pause.rank == rank]
            assert [pause.end_s - pause.start_s > 0.09 for pause in mine][-2:] == [True, True]
            # Neither an operation nor computing is in a pause.
            spans = [span for span in timeline.spans if span.rank == rank]
            assert not any(s.start_s < p.end_s and p.start_s < s.end_s for s in spans for p in mine)
            assert timeline.ranks[rank].busy_s < timeline.makespan_s - 0.18


class TestBounds:
    def test_the_last_spans_of_a_run_are_kept(self):
        timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0), most_spans=8)
        assert len(timeline.spans) == 8 and timeline.left_out == 4 * STEPS - 8
        assert [span.iterations[-1][0] for span in spans_of(timeline, "psend", 0)] == [STEPS - 2, STEPS - 1]
        assert pairs_of(timeline.messages) == sorted(ring(4) * 2)

    def test_the_last_runs_are_kept(self):
        timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0), times=5, most_spans=4 * STEPS)
        assert len(timeline.spans) == 4 * STEPS

    def test_nothing_ran(self):
        timeline = recorded(lambda: None)
        assert (timeline.size, timeline.makespan_s) == (0, 0)
        assert str(timeline) and timeline.to_html()

    def test_nothing_is_recorded_outside(self):
        program = on_ranks(scan(pair, ring(4)))
        program(jnp.arange(8.0)).block_until_ready()
        timeline = recorded(program, jnp.arange(8.0))
        program(jnp.arange(8.0)).block_until_ready()
        assert len(timeline.spans) == 4 * STEPS
        assert recorded(lambda: None).spans == ()

    def test_one_at_a_time(self):
        with peerax.trace(), pytest.raises(RuntimeError, match="open already"), peerax.trace():
            pass
        recorded(lambda: None)

    def test_most_spans_is_checked(self):
        with pytest.raises(ValueError, match="1 or more"), peerax.trace(most_spans=0):
            pass

    def test_what_is_under_way_at_the_end_is_waited_for(self):
        program = on_ranks(scan(pair, ring(4)))
        with peerax.trace() as trace:
            for _ in range(10):
                program(jnp.arange(8.0))
        assert len(trace.timeline.spans) == 10 * 4 * STEPS
        assert runtime.extension().open_sessions() == 0


class TestFailedRuns:
    def test_the_stuck_ranks(self):
        def body(x):
            y = pair(x, "x", ring(4))
            peerax.psend(y, "x", [(0, 1)])
            return peerax.precv(peerax.create_token(), y, "x", [(0, 1), (2, 3)])

        program = on_ranks(body)
        with peerax.trace() as trace, pytest.raises(jax.errors.JaxRuntimeError, match="PX202"):
            jax.block_until_ready(program(jnp.arange(8.0)))
        timeline = trace.timeline
        (stuck,) = [span for span in timeline.spans if not span.complete]
        assert (stuck.rank, stuck.name) == (3, "precv") and timeline.stuck == (3,)
        assert pairs_of(timeline.messages) == sorted([*ring(4), (0, 1)])

    def test_the_error_of_the_program_is_the_one_that_is_seen(self):
        with pytest.raises(ZeroDivisionError), peerax.trace() as trace:
            1 / 0  # noqa: B018
        assert trace.timeline is not None


def test_a_timeline_can_be_written_and_compared():
    timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0))
    again = peerax.Timeline.from_json(timeline.to_json())
    assert again == timeline
    program = peerax.program(on_ranks(scan(pair, ring(4))), jnp.arange(8.0))
    simulated = peerax.simulate(program, cost=peerax.Cost.measured(timeline))
    assert len(simulated.spans) == len(timeline.spans)


def test_nobody_computes_in_a_pause():
    program = on_ranks(scan(pair, ring(4)))
    program(jnp.arange(8.0)).block_until_ready()
    with peerax.trace() as trace:
        for _ in range(3):
            program(jnp.arange(8.0)).block_until_ready()
            time.sleep(0.3)
    cost = peerax.Cost.measured(trace.timeline)
    predicted = peerax.simulate(peerax.program(program, jnp.arange(8.0)), cost=cost)
    assert predicted.makespan_s < 0.25


class TestWhatMeets:
    def test_a_permute_at_two_lines(self):
        def body(x):
            y = pair(x, "x", ring(4))

            def even(y):
                return lax.ppermute(y, "x", ring(4))

            def odd(y):
                return lax.ppermute(y + 1, "x", ring(4))

            return lax.cond(lax.axis_index("x") % 2 == 0, even, odd, y)

        timeline = recorded(on_ranks(body), jnp.arange(8.0))
        assert pairs_of(timeline.messages) == sorted(ring(4) * 2)

    def test_halves_of_a_pair_and_a_send_on_one_channel(self):
        def body(x):
            token = peerax.psend(x, "x", chain(4))
            peerax.psend(x[:1], "x", chain(4))
            z = peerax.precv(peerax.create_token(), x[:1], "x", chain(4))
            return peerax.precv(token, x, "x", chain(4)) + z

        timeline = recorded(on_ranks(body), jnp.arange(8.0))
        assert sorted((m.source, m.size_bytes) for m in timeline.messages) == [(r, b) for r in range(3) for b in (4, 8)]

    def test_a_rank_to_itself(self):
        timeline = recorded(on_ranks(scan(pair, [(1, 1), (0, 2)])), jnp.arange(8.0))
        assert pairs_of(timeline.messages) == sorted([(1, 1), (0, 2)] * STEPS)


class TestTotals:
    def test_what_is_not_kept_is_counted(self):
        timeline = recorded(on_ranks(scan(pair, ring(4))), jnp.arange(8.0), times=50, most_spans=16)
        assert sum(rank.operations for rank in timeline.ranks) == 50 * 4 * STEPS
        assert timeline.left_out == 50 * 4 * STEPS - len(timeline.spans) and len(timeline.spans) <= 16
        for rank in timeline.ranks:
            assert 0 <= rank.busy_s and rank.busy_s + rank.waiting_s + rank.moving_s <= rank.end_s + 1e-9

    def test_a_rank_that_ended_by_an_error_of_its_own(self):
        def bad(x):
            raise ValueError("bad data")

        def body(x):
            def raises(x):
                return jax.pure_callback(bad, x, x)

            return pair(lax.cond(lax.axis_index("x") == 1, raises, lambda x: x, x), "x", ring(4))

        good, wrong = on_ranks(scan(pair, ring(4))), on_ranks(body, check_vma=False)
        good(jnp.arange(8.0)).block_until_ready()
        runtime.extension().set_timeout_s(1)  # so long the others wait for it
        try:
            with peerax.trace() as trace:
                good(jnp.arange(8.0)).block_until_ready()
                with pytest.raises(jax.errors.JaxRuntimeError):
                    jax.block_until_ready(wrong(jnp.arange(8.0)))
        finally:
            runtime.extension().set_timeout_s(20)
        assert all(rank.busy_s > 0 for rank in trace.timeline.ranks)


@pytest.mark.parametrize("most_spans", [10.5, "many", None])
def test_a_trace_that_could_not_open_is_in_nobodys_way(most_spans):
    with pytest.raises(TypeError), peerax.trace(most_spans=most_spans):
        pass
    recorded(lambda: None)


def test_the_cost_of_a_second_shard_map_is_measured_too():
    def slow(x):
        time.sleep(0.05)
        return x

    def body(x):
        return pair(jax.pure_callback(slow, x, x), "x", ring(4))

    once = on_ranks(body, check_vma=False)
    both = jax.jit(lambda x: once(once(x)))
    both(jnp.arange(8.0)).block_until_ready()
    cost = peerax.Cost.measured(recorded(both, jnp.arange(8.0)))
    predicted = peerax.simulate(peerax.program(both, jnp.arange(8.0)), cost=cost)
    # The time before the first operation of all belongs to no operation of a trace, that before the second does.
    assert all(rank.busy_s > 0.04 for rank in predicted.ranks)
