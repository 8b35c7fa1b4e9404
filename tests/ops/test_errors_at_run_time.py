"""Programs that cannot go on: which error, whose lines, how soon, and that the process goes on after it."""

import concurrent.futures

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import chain, grid, on_ranks, pair, ring, run_time_error, site

X = jnp.arange(8.0)


def receive(x, perm, tag=0):
    return peerax.precv(peerax.create_token(), x, "x", perm, tag=tag)


def lone_receive(x):
    return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])  # RECEIVE


def lone_send(x):
    peerax.psend(x, "x", [(2, 3)])  # SEND
    return x


def swapped_perm(x):
    token = peerax.psend(x, "x", [(0, 1)])  # SEND
    return peerax.precv(token, x, "x", [(1, 0)])  # RECEIVE


def crossed_tags(x):
    peerax.psend(x, "x", [(0, 1)], tag=1)  # SEND
    return peerax.precv(peerax.create_token(), x, "x", [(0, 1)], tag=2)  # RECEIVE


def other_shape(x):
    peerax.psend(x, "x", [(0, 1)])  # SEND
    return peerax.precv(peerax.create_token(), jax.ShapeDtypeStruct((3,), x.dtype), "x", [(0, 1)])[:2]  # RECEIVE


def other_shape_of_the_same_bytes(x):
    peerax.psend(x, "x", [(0, 1)])  # SEND
    return peerax.precv(peerax.create_token(), jax.ShapeDtypeStruct((2, 1), x.dtype), "x", [(0, 1)])[:, 0]  # RECEIVE


def other_dtype(x):
    peerax.psend(x, "x", [(0, 1)])  # SEND
    return peerax.precv(peerax.create_token(), x.astype(int), "x", [(0, 1)]).astype(x.dtype)  # RECEIVE


def other_zero_size(x):
    peerax.psend(x[:0], "x", [(0, 1)])  # SEND
    y = peerax.precv(peerax.create_token(), jax.ShapeDtypeStruct((0, 7), x.dtype), "x", [(0, 1)])  # RECEIVE
    return x + y.sum()


def key_data_into_a_key(x):
    key = jax.random.key(0)
    peerax.psend(jax.random.key_data(key), "x", [(0, 1)])  # SEND
    y = peerax.precv(peerax.create_token(), key, "x", [(0, 1)])  # RECEIVE
    return x + jax.random.uniform(y)


def narrow_integer_into_a_byte(x):
    peerax.psend(x.astype(jnp.int4), "x", [(0, 1)])  # SEND
    return peerax.precv(peerax.create_token(), x.astype(jnp.int8), "x", [(0, 1)]).astype(x.dtype)  # RECEIVE


def mismatch_late_receiver(x):
    """The message lies in its buffer when the receive comes."""
    peerax.psend(x, "x", [(0, 1)])  # SEND
    x = pair(x, "x", ring(4)) + lax.psum(x, "x")
    return x + peerax.precv(peerax.create_token(), x[:1], "x", [(0, 1)])  # RECEIVE


def psum_in_some_ranks(x):
    return lax.cond(lax.axis_index("x") < 2, lambda: x + lax.psum(x, "x") + 0 * receive(x, []), lambda: x)  # PSUM


def two_collectives(x):
    """Half of the ranks wait in one, half in the other."""
    receive(x, [])

    def even():
        return x + lax.psum(x, "x")  # SUM

    def odd():
        return x + lax.pmax(x, "x")  # MAX

    return lax.cond(lax.axis_index("x") % 2 == 0, even, odd)


def two_shapes_of_a_collective(x):
    y = pair(x, "x", ring(4))
    return lax.cond(
        lax.axis_index("x") < 2,
        lambda x: x + lax.psum(x, "x"),  # ALL
        lambda x: x + lax.psum(x[:1], "x"),  # HALF
        y,
    )


def receives_first(x):
    y = peerax.precv(peerax.create_token(), x, "x", ring(4))  # RECEIVE
    peerax.psend(x, "x", ring(4))  # SEND
    return y


def two_cross(x):
    """Rank 0 receives before it sends, and so does rank 2; the others take no part."""
    y = peerax.precv(peerax.create_token(), x, "x", [(0, 2), (2, 0)])  # RECEIVE
    peerax.psend(y, "x", [(2, 0), (0, 2)])  # SEND
    return y


def collective_in_the_knot(x):
    """Rank 1 waits for rank 0, which waits for rank 1 in the sum."""
    y = peerax.precv(peerax.create_token(), x, "x", [(0, 1)])  # RECEIVE
    y = y + lax.psum(x, "x")  # SUM
    peerax.psend(y, "x", [(0, 1)])
    return y


def one_send_too_many(x):
    def step(carry, _):
        peerax.psend(carry, "x", [(0, 1)])  # SEND
        return carry, None

    lax.scan(step, x, None, length=3)
    first = receive(x, [(0, 1)])
    return peerax.precv(peerax.create_token(), first, "x", [(0, 1)])  # LAST


def one_receive_too_many(x):
    peerax.psend(x, "x", [(0, 1)])

    def step(carry, _):
        return (peerax.precv(peerax.create_token(), carry, "x", [(0, 1)]), None)  # RECEIVE

    return lax.scan(step, x, None, length=2)[0]


CASES = [
    (lone_receive, "PX202: receive without send", ["RECEIVE"], ["rank 1 waits in precv", "rank 0"]),
    (lone_send, "PX201: send without receive", ["SEND"], ["rank 2 sent float32[2] to rank 3"]),
    (swapped_perm, ("PX202", "PX201"), ["SEND", "RECEIVE"], ["rank 0", "rank 1"]),
    (crossed_tags, "PX205: tags crossed", ["SEND", "RECEIVE"], ["tag 1", "tag 2"]),
    (other_shape, "PX304: shape or dtype differ", ["SEND", "RECEIVE"], ["float32[2]", "float32[3]"]),
    (other_shape_of_the_same_bytes, "PX304", ["SEND", "RECEIVE"], ["float32[2]", "float32[2,1]"]),
    (other_dtype, "PX304", ["SEND", "RECEIVE"], ["float32[2]", "int32[2]"]),
    (other_zero_size, "PX304", ["SEND", "RECEIVE"], ["float32[0]", "float32[0,7]"]),
    (key_data_into_a_key, "PX304", ["SEND", "RECEIVE"], ["uint32[2]", "key<fry>[]"]),
    (narrow_integer_into_a_byte, "PX304", ["SEND", "RECEIVE"], ["int4[2]", "int8[2]"]),
    (mismatch_late_receiver, "PX304", ["SEND", "RECEIVE"], ["float32[2]", "float32[1]"]),
    (psum_in_some_ranks, "PX209: collective not joined by all", ["PSUM"], ["at psum", "ranks 2-3, which finished"]),
    (two_collectives, "PX209", ["SUM", "MAX"], ["calls psum(float32[2]) at", "calls pmax(float32[2]) at"]),
    (two_shapes_of_a_collective, "PX209", ["ALL", "HALF"], ["psum(float32[2])", "psum(float32[1])"]),
    (receives_first, "PX302: deadlock", ["RECEIVE"], [f"rank {rank} waits in precv" for rank in range(4)]),
    (two_cross, "PX302", ["RECEIVE"], ["rank 0 waits in precv", "rank 2 waits in precv"]),
    (collective_in_the_knot, "PX302", ["RECEIVE", "SUM"], ["rank 0 waits at psum", "rank 1 waits in precv"]),
    (
        one_send_too_many,
        "PX303: message left over",
        ["SEND", "LAST"],
        [
            "rank 0 sent float32[2] to rank 1",
            "nobody received it; it had received 2 messages before, the last in precv (",
        ],
    ),
    (one_receive_too_many, "PX202", ["RECEIVE"], ["rank 1 waits in precv", "rank 0"]),
]


@pytest.mark.parametrize("body, code, marks, evidence", CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_error_then_the_next_program(body, code, marks, evidence):
    text = run_time_error(on_ranks(body), X, times=4)
    assert text.count("more: peerax explain PX") == 1, text  # one report, not one per rank
    assert any(c in text for c in ([code] if isinstance(code, str) else code)), text
    for mark in marks:
        assert site(body, mark) in text, text
    for words in evidence:
        assert words in text, text


@pytest.mark.parametrize("body", [lone_receive, other_shape, psum_in_some_ranks, receives_first, lone_send])
def test_twenty_times_in_a_row(body):
    run_time_error(on_ranks(body), X, times=20)
    assert peerax.runtime.extension().buffered_bytes() == 0


@pytest.mark.parametrize("check_vma", [False, True])
def test_the_report_is_the_same_without_check_vma(check_vma):
    text = run_time_error(on_ranks(collective_in_the_knot, check_vma=check_vma), X)
    assert "rank 0 waits at psum (" in text


def test_a_pair_that_some_ranks_never_reach():
    def body(x):
        return lax.cond(lax.axis_index("x") != 2, lambda: pair(x, "x", ring(4)), lambda: x)

    text = run_time_error(on_ranks(body), X)
    assert "PX202" in text and "rank 3 waits in precv" in text and "rank 2, which finished" in text


def test_a_large_pair_that_some_ranks_never_reach():
    """The senders lend their arrays, and wait for somebody who never comes."""

    def body(x):
        large = jnp.tile(x, 100_000)
        return lax.cond(lax.axis_index("x") != 2, lambda: pair(large, "x", chain(4)), lambda: large)[:2]

    text = run_time_error(on_ranks(body), X)
    assert ("PX201" in text or "PX202" in text) and "rank 2, which finished" in text


def test_the_call_raises_whatever_its_result_is():
    """Nothing needs to be read for it, and nothing is left over for who waits later."""

    def sum_of_all(x):
        peerax.psend(x, "x", [(0, 1)])
        return lax.psum(x, "x")

    def constant(x):
        peerax.psend(x, "x", [(0, 1)])
        return jnp.zeros(3)

    for program in (on_ranks(lone_send), on_ranks(sum_of_all, out_specs=P()), on_ranks(constant, out_specs=P())):
        with pytest.raises(jax.errors.JaxRuntimeError, match="PX201"):
            program(X)
        jax.effects_barrier()


@pytest.mark.parametrize(
    ("inside", "code"), [("pair over b", "PX202"), ("psum over b", "PX202"), ("psum over a", "PX302")]
)
def test_a_lone_receive_before_a_nested_shard_map(inside, code):
    """The ranks that go on finish, or wait in the shard_map inside for ranks that never come there."""

    def inner(x):
        if inside == "pair over b":
            return pair(x, "b", ring(4))
        return x + lax.psum(x, inside[-1])

    def outer(x):
        y = peerax.precv(peerax.create_token(), x, "a", [(0, 1)])  # RECEIVE
        options = {"in_specs": P(None, "b"), "out_specs": P(None, "b"), "axis_names": {"b"}, "check_vma": False}
        return y + jax.shard_map(inner, **options)(x)

    options = {"in_specs": P("a"), "out_specs": P("a"), "axis_names": {"a"}, "check_vma": False}
    program = jax.jit(jax.shard_map(outer, mesh=grid(2, 4), **options))
    text = run_time_error(program, jnp.ones((8, 8)))
    assert code in text and site(test_a_lone_receive_before_a_nested_shard_map, "RECEIVE") in text


def test_errors_belong_to_their_callers():
    """Programs that end well and programs that do not, from several threads at once."""
    good = on_ranks(lambda x: lax.scan(lambda c, _: (pair(c, "x", ring(4)), None), x, None, length=4)[0])
    wrong = []

    def succeed():
        for _ in range(50):
            wrong.extend([] if np.array_equal(good(X), X) else ["other values"])

    def fail(body, code):
        program = on_ranks(body)
        for _ in range(50):
            try:
                np.asarray(program(X))
                wrong.append(f"{code} is missing")
            except jax.errors.JaxRuntimeError as error:
                wrong.extend([] if code in str(error) else [str(error)])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(succeed), pool.submit(succeed)]
        tasks += [pool.submit(fail, lone_receive, "PX202"), pool.submit(fail, lone_send, "PX201")]
        for task in tasks:
            task.result(timeout=60)
    assert wrong == []
