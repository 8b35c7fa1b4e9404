"""What check does with arguments: types first, and the values of integers where these decide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import chain, line

SIZE = 4
TICKS = 6


def by_table(table, x):
    """Send and receive in the ticks that the table says."""
    perm = chain(SIZE)

    def tick(x, t):
        actions = [
            lambda x: x,
            lambda x: peerax.order(x, peerax.psend(x, "x", perm))[0],
            lambda x: x + peerax.precv(peerax.create_token(), x, "x", perm),
        ]
        return lax.switch(table[0, t], actions, x), None

    return lax.scan(tick, x, jnp.arange(TICKS))[0]


def function():
    return jax.shard_map(by_table, mesh=line(SIZE), in_specs=(P("x"), P("x")), out_specs=P("x"), check_vma=False)


# Rank 0 sends in tick 0, rank 1 receives in tick 1 and sends in tick 2, and so on.
GOOD = np.zeros((SIZE, TICKS), np.int32)
for _rank in range(SIZE):
    if _rank > 0:
        GOOD[_rank, 2 * _rank - 1] = 2
    if _rank < SIZE - 1:
        GOOD[_rank, min(2 * _rank, TICKS - 1)] = 1
BAD = np.where(GOOD == 2, 0, GOOD)
ROWS = jax.ShapeDtypeStruct((8,), jnp.float32)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_a_table_that_is_given(kind):
    report = peerax.check(function(), kind(GOOD), ROWS)
    assert report.verdict == "safe", report
    assert report.assumptions == ("integer and boolean arguments have the values that were given",)
    assert peerax.check(function(), kind(BAD), ROWS).codes == {"PX201"}


def test_a_table_of_which_the_type_is_given():
    report = peerax.check(function(), jax.ShapeDtypeStruct(GOOD.shape, GOOD.dtype), ROWS)
    assert (report.verdict, report.codes) == ("unsafe", {"PX210"})


def test_what_is_safe_for_all_values_assumes_none():
    def body(flag, x):
        return lax.cond(flag[0] > 0, lambda x: lax.psum(x, "x"), lambda x: x, x)

    f = jax.shard_map(body, mesh=line(SIZE), in_specs=(P(), P("x")), out_specs=P("x"), check_vma=False)
    report = peerax.check(f, np.zeros(1, np.int32), ROWS)
    assert (report.verdict, report.assumptions) == ("safe", ())


def test_a_mistake_that_one_value_makes_is_reported_for_another_value():
    def body(flag, x):
        perm = chain(SIZE)
        return lax.cond(flag[0] > 0, lambda x: peerax.order(x, peerax.psend(x, "x", perm))[0], lambda x: x, x)

    f = jax.shard_map(body, mesh=line(SIZE), in_specs=(P(), P("x")), out_specs=P("x"), check_vma=False)
    assert peerax.check(f, np.zeros(1, np.int32), ROWS).codes == {"PX201"}


def test_keyword_arguments_static_arguments_and_jit():
    def body(x, *, steps):
        return lax.fori_loop(0, steps, lambda _, x: lax.psum(x, "x"), x)

    def step(x, steps, scale=1.0):
        f = jax.shard_map(
            lambda x: body(x, steps=steps), mesh=line(SIZE), in_specs=P("x"), out_specs=P("x"), check_vma=False
        )
        return f(x) * scale

    assert peerax.check(jax.jit(step, static_argnames="steps"), ROWS, steps=3, scale=2.0).ok
    assert peerax.check(step, ROWS, 3).ok


def test_a_function_without_communication():
    report = peerax.check(lambda x: x + 1, ROWS)
    assert (report.verdict, report.size) == ("safe", 1)
    assert str(peerax.program(lambda x: x + 1, ROWS)) == "program of 1 ranks\nranks 0:\n"


def test_what_tracing_refuses_is_unsafe():
    f = jax.shard_map(
        lambda x: peerax.precv(peerax.psend(x, "y", [(0, 1)]), x, "y", [(0, 1)]),
        mesh=line(2),
        in_specs=P("x"),
        out_specs=P("x"),
    )
    report = peerax.check(f, ROWS)
    assert (report.verdict, report.codes) == ("unsafe", {"PX101"})
    with pytest.raises(peerax.PeeraxError, match="PX101"):
        report.raise_if_unsafe()


def test_other_words_are_refused():
    for options in ({"semantics": "eager"}, {"as_written_for": "mpi"}):
        with pytest.raises(ValueError, match="is '"):
            peerax.check(lambda x: x, ROWS, **options)
