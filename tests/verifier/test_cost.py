"""What a cost is made of, and what it is taken from."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peerax.verifier import Collective, Cost, Program, Recv, Send, simulate
from tests.verifier.programs import small_programs
from tests.verifier.test_simulate import BOTH, TYPES, UP, at, gpipe, ping_pong, some
from tests.verifier.times import BYTES_PER_S, LATENCY_S

NUMBER = "is a finite number of seconds, 0 or more, not"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"latency_s": -1.0}, f"latency_s {NUMBER} -1.0"),
        ({"latency_s": "fast"}, f"latency_s {NUMBER} 'fast'"),
        ({"latency_s": math.nan}, f"latency_s {NUMBER} nan"),
        ({"bandwidth_bytes_per_s": 0}, "bandwidth_bytes_per_s is a number above 0, not 0"),
        ({"bandwidth_bytes_per_s": math.nan}, "bandwidth_bytes_per_s is a number above 0, not nan"),
        ({"compute_s": math.inf}, f"compute_s {NUMBER} inf"),
        ({"compute_s": {("a.py", 1): -2}}, rf"compute_s\[\('a.py', 1\)\] {NUMBER} -2"),
        ({"compute_s": {"a.py:1": 2}}, r"lines such as \('train.py', 12\) as keys, not 'a.py:1'"),
        ({"final_s": (1.0, -1.0)}, f"final_s {NUMBER} -1.0"),
    ],
)
def test_what_is_no_cost(fields, message):
    with pytest.raises(ValueError, match=message):
        Cost(**fields)


def test_a_line_that_the_program_does_not_have():
    with pytest.raises(ValueError, match="has step.py:9, where no operation is; .* step.py:1, step.py:2, step.py:3"):
        simulate(ping_pong(1), Cost(compute_s={at(1): 1.0, at(9): 1.0}))


def test_the_end_of_the_name_of_a_file_is_enough():
    def makespan_s(files, compute_s):
        sums = [Collective("psum", ((0, 1),), TYPES, (file, 3)) for file in files]
        return simulate(Program.spmd(2, sums), Cost(compute_s=compute_s)).makespan_s

    assert makespan_s(["/home/me/train.py"], {("train.py", 3): 2.0}) == 2.0
    assert makespan_s(["/home/me/train.py"], {("me/train.py", 3): 2.0}) == 2.0
    assert makespan_s(["/home/me/train.py"], {("/home/me/train.py", 3): 2.0, ("train.py", 3): 5.0}) == 2.0
    assert makespan_s(["/a/train.py", "/b/train.py"], {("b/train.py", 3): 2.0}) == 2.0
    with pytest.raises(ValueError, match="has rain.py:3, where no operation is"):
        makespan_s(["/home/me/train.py"], {("rain.py", 3): 2.0})
    with pytest.raises(ValueError, match="train.py:3, which may be /a/train.py or /b/train.py"):
        makespan_s(["/a/train.py", "/b/train.py"], {("train.py", 3): 2.0})


def test_another_number_of_ranks():
    with pytest.raises(ValueError, match="final_s has 3 values for 2 ranks"):
        simulate(ping_pong(1), Cost(final_s=(1, 2, 3)))


def test_what_the_function_returns_is_checked():
    with pytest.raises(ValueError, match=rf"returned for rank 0 at step.py:1 {NUMBER} None"):
        simulate(ping_pong(1), Cost(compute_s=lambda rank, operation: None))


def test_what_a_rank_computes_at_its_end():
    assert [rank.end_s for rank in simulate(ping_pong(1), Cost(1.0, final_s=(5, 1))).ranks] == [7.0, 3.0]
    assert simulate(ping_pong(1), Cost(1.0, final_s=5)).busy_s(1) == 5.0


def takes_part(rank, operation):
    if isinstance(operation, Collective):
        return any(rank in group for group in operation.groups)
    return any(rank in (s if not isinstance(operation, Recv) else d, d if not isinstance(operation, Send) else s)
               for s, d in operation.perm)  # fmt: skip


@some
@given(small_programs(), st.sampled_from(BOTH))
def test_measured_gives_the_same_times(program, semantics):
    def compute_s(rank, operation):
        return (
            float((5 * rank + 3 * operation.location[1]) % 7)
            if takes_part(rank, operation) and operation.types
            else 0.0
        )

    before = simulate(program, Cost(LATENCY_S, BYTES_PER_S, compute_s, 2.0), semantics=semantics)
    assume(before.stuck == ())
    after = simulate(program, Cost.measured(before, LATENCY_S, BYTES_PER_S), semantics=semantics)
    assert after == before


def test_one_slow_step_does_not_change_what_is_measured():
    sends = [Send(UP, TYPES, at(1)) for _ in range(9)]
    program = Program.of([sends, [Recv(UP, TYPES, at(2))] * 9])
    once = simulate(program, Cost(1.0, compute_s=lambda rank, operation: 100.0 if operation is sends[4] else 1.0))
    assert once.makespan_s == 9 * (1.0 + 1.0) + 99.0
    assert simulate(program, Cost.measured(once, latency_s=1.0)).makespan_s == 9 * (1.0 + 1.0)


@settings(max_examples=10)
@given(st.integers(2, 6), st.integers(1, 6))
def test_measured_with_other_messages(stages, microbatches):
    """What was measured with slow messages predicts the run with fast ones."""
    compute = {at(2): 1.0, at(4): 2.0}
    slow = simulate(gpipe(stages, microbatches), Cost(10.0, compute_s=lambda r, o: compute.get(o.location, 0.0)))
    fast = simulate(gpipe(stages, microbatches), Cost.measured(slow, latency_s=0.0))
    assert fast.makespan_s <= slow.makespan_s
