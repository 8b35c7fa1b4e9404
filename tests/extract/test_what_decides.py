"""What a branch or a loop depends on: found wherever it comes from, and computed where it can be."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import line

X = jax.ShapeDtypeStruct((32,), jnp.float32)


def on_ranks(body, size=4, **options):
    return jax.shard_map(body, mesh=line(size), in_specs=P("x"), out_specs=P("x"), **options)


def codes(body, check_vma=False):
    report = peerax.check(on_ranks(body, check_vma=check_vma), X)
    return [found.code for found in report.diagnostics]


def total(x):
    return x + lax.psum(x, "x")


def same(x):
    return x


def add_rank(_, n):
    return n + lax.axis_index("x")


def test_a_rank_that_is_asked_for_inside_a_loop():
    def body(x):
        return lax.cond(lax.fori_loop(0, 3, add_rank, jnp.int32(0)) > 4, total, same, x)

    # Ranks 2 and 3 take the branch: known, though the loop is no operation on an index that it is given.
    assert codes(body) == ["PX209"]


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_rank_that_is_asked_for_inside_a_branch(check_vma):
    def body(x):
        n = lax.cond(lax.psum(x.sum(), "x") > 0, lambda: lax.axis_index("x"), lambda: 2 * lax.axis_index("x"))
        return lax.cond(n > 1, total, same, x)

    assert codes(body, check_vma) == ["PX210"]


def test_a_rank_that_is_asked_for_inside_a_loop_of_unknown_length():
    def body(x):
        times = jnp.abs(lax.psum(x.sum(), "x")).astype(jnp.int32)
        return lax.cond(lax.fori_loop(0, times, add_rank, jnp.int32(0)) > 4, total, same, x)

    assert codes(body) == ["PX210"]


def square(body, shape=(2, 2)):
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    split = P(("a", "b"))
    return jax.shard_map(body, mesh=Mesh(devices, ("a", "b")), in_specs=split, out_specs=split, check_vma=False)


@pytest.mark.parametrize("axis, expected", [("a", []), ("b", ["PX209"])])
def test_the_rank_in_a_second_mesh(axis, expected):
    def body(x):
        return lax.cond(lax.axis_index("b") == 1, lambda x: x + lax.psum(x, axis), same, x)

    report = peerax.check(lambda x: square(body)(on_ranks(total)(x)), X)
    assert [found.code for found in report.diagnostics] == expected


def test_a_value_that_differs_along_an_axis_of_a_second_mesh():
    def body(x):
        return lax.cond(x.sum() > 0, lambda x: x + lax.psum(x, "b"), same, x)

    report = peerax.check(lambda x: square(body)(on_ranks(total)(x)), X)
    assert [found.code for found in report.diagnostics] == ["PX210"]


def test_two_meshes_whose_axes_have_equal_names():
    def at_the_end(x):
        return lax.cond(lax.axis_index("a") == 3, lambda x: x + lax.psum(x, "a"), same, x)

    def program(x):
        return square(at_the_end, (4, 2))(square(at_the_end, (2, 4))(x))

    report = peerax.check(program, X)
    assert [found.code for found in report.diagnostics] == ["PX209"]


def test_a_value_that_was_received():
    def body(x):
        token = peerax.psend(x, "x", [(0, 1), (1, 0)])
        y = peerax.precv(token, x, "x", [(0, 1), (1, 0)])
        return lax.cond(y.sum() > 0, total, same, lax.psum(x, "x"))

    assert codes(body) == ["PX210"]
    assert codes(lambda x: body(lax.psum(x, "x"))) == ["PX210"]  # what was sent is the same on all ranks


def test_a_value_that_differs_from_the_second_iteration_on():
    def body(x):
        def step(carry, _):
            x, there = carry
            return (lax.cond(there, total, same, x), x.sum() > 0), None

        return lax.scan(step, (x, lax.psum(x.sum(), "x") > 0), length=3)[0][0]

    assert codes(body) == ["PX210"]


def test_a_condition_that_communicates():
    def program(test):
        return str(peerax.program(on_ranks(lambda x: lax.while_loop(test, lambda x: x + 1, x), check_vma=False), X))

    text = program(lambda x: lax.psum(x.sum(), "x") < 9)
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["collective", "loop", "collective"]


def test_a_condition_that_communicates_and_is_known():
    def body(x):
        def test(carry):
            peerax.psend(carry[1], "x", [(0, 1)])
            return carry[0] < 3

        def step(carry):
            return carry[0] + 1, carry[1] + peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

        x = lax.while_loop(test, step, (0, x))[1]
        return x + peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

    assert codes(body) == []


def test_a_value_from_a_reference():
    def body(x):
        cell = jax.new_ref(jnp.int32(0))
        before = cell[...]
        cell[...] = lax.axis_index("x")
        x = lax.cond(before == 1, total, same, x)
        return lax.cond(cell[...] == 1, total, same, x)

    assert codes(body) == ["PX211"] * 2


def test_a_number_that_each_device_draws():
    def body(x):
        return lax.cond(lax.rng_uniform(0.0, 1.0, ()) > 0.5, total, same, x)

    assert codes(body) == ["PX211"]


def test_a_number_of_less_precision_is_another_one():
    def body(x):
        there = lax.reduce_precision(1.001 + lax.axis_index("x").astype(jnp.float32), 8, 3) == 2.0
        return lax.cond(there, total, same, x)

    assert codes(body) == ["PX209"]


def test_a_sum_that_nobody_uses():
    def body(x):
        lax.cond(lax.axis_index("x") == 0, total, same, x)
        return x

    # jit removes it, unless it is told to keep what is not used.
    assert peerax.check(on_ranks(body), X).ok
    assert peerax.check(jax.jit(on_ranks(body)), X).ok
    assert [found.code for found in peerax.check(jax.jit(on_ranks(body), keep_unused=True), X).diagnostics] == ["PX209"]


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("uniform", [True, False])
def test_the_gradient_of_a_scan_around_a_shard_map(uniform, check_vma):
    def body(x):
        number = x.sum()
        return lax.cond((lax.psum(number, "x") if uniform else number) > 0, lambda x: x * total(x), same, x)

    def loss(x):
        mapped = on_ranks(body, check_vma=check_vma)
        return lax.scan(lambda x, _: (mapped(x), None), x, length=3)[0].sum()

    found = [found.code for found in peerax.check(jax.grad(loss), X).diagnostics]
    assert found == ([] if uniform else ["PX210"] * len(found)) and bool(found) != uniform


def test_the_gradient_of_a_table_in_a_checkpoint():
    """The loop that computes again what was not kept has a table and data, and does not communicate."""
    table = [[0, 1], [0, 1], [1, 1], [1, 0]]

    def body(x):
        @jax.checkpoint
        def region(x):
            def tick(x, chosen):
                return lax.switch(chosen, [same, along], x), None

            return lax.scan(tick, x, jnp.asarray(table)[lax.axis_index("x")])[0]

        return region(x)

    def along(x):
        peerax.psend(x, "x", [(0, 1), (2, 3)])
        return x * peerax.precv(peerax.create_token(), x, "x", [(0, 1), (2, 3)])

    def loss(x):
        return on_ranks(body, check_vma=False)(x).sum()

    assert [found.code for found in peerax.check(loss, X).diagnostics] == ["PX201"]
    table[3] = [1, 1]
    assert peerax.check(jax.grad(loss), X).ok


def test_what_one_shard_map_gives_to_another():
    def index(x):
        return jnp.full((4, 4), lax.axis_index("x"))

    def program(split, change, x):
        first = jax.shard_map(index, mesh=line(4), in_specs=P("x"), out_specs=P("x"))
        second = jax.shard_map(
            lambda k, x: lax.cond(k[0, 0] == 0, total, same, x),
            mesh=line(4),
            in_specs=(split, P("x")),
            out_specs=P("x"),
        )
        return second(change(first(x)), x)

    def codes(split, change=same):
        report = peerax.check(functools.partial(program, split, change), X)
        return [found.code for found in report.diagnostics]

    assert codes(P("x")) == ["PX209"]  # each rank has what it gave: rank 0 alone takes the branch
    assert codes(P(None, "x")) == ["PX210"]
    assert codes(P("x"), lambda k: jnp.roll(k, 4, 0)) == ["PX210"]


def receive(x):
    return peerax.precv(peerax.create_token(), x, "x", [(0, 1), (2, 3)])


def send_and_receive(x):
    peerax.psend(x, "x", [(0, 1), (2, 3)])
    return receive(x)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize(
    ("reduce", "result"),
    [(lax.psum, 6), (lax.pmax, 3), (lax.pmin, 0), (lambda rank, axis: lax.psum(rank * rank, axis) - 8, 6)],
)
def test_a_reduction_of_what_is_known_is_known(reduce, result, check_vma):
    """The send is in a branch that all ranks take, or none: neither is undecided."""

    def body(wanted, x):
        x = lax.cond(reduce(lax.axis_index("x"), "x") == wanted, lambda x: send_and_receive(x), same, x)
        return lax.cond(reduce(lax.axis_index("x"), "x") == result, same, receive, x)

    assert codes(functools.partial(body, result), check_vma) == []
    assert codes(functools.partial(body, result + 1), check_vma) == []


def test_a_reduction_that_leaves_a_receive_alone():
    body = lambda x: lax.cond(lax.psum(lax.axis_index("x"), "x") == 6, receive, same, x)  # noqa: E731
    assert codes(body) == ["PX202"]


@pytest.mark.parametrize("apart", [True, False])
def test_reductions_in_branches(apart):
    """That of one branch meets that of the other: all ranks get 2 + 4 + 6, and not each what its own branch says."""

    def body(x):
        rank = lax.axis_index("x")
        chosen = rank == 0 if apart else lax.psum(rank, "x") == 0
        reduced = lax.cond(chosen, lambda n: lax.psum(n, "x"), lambda n: lax.psum(2 * n, "x"), rank)
        each = jnp.where(rank == 0, 6, 12) if apart else 12
        return lax.cond(reduced == each, total, same, x)

    assert codes(body) == (["PX210"] if apart else [])


def test_a_reduction_along_one_of_two_axes():
    """Both ranks of a row take the branch or neither does, and row 1 does."""
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))

    def body(x):
        row = lax.pmax(lax.axis_index("a") * 2 + lax.axis_index("b"), "b")
        return lax.cond(row == 3, lambda x: x + lax.psum(x, "b"), same, x)

    on_square = jax.shard_map(body, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(("a", "b")), check_vma=False)
    assert peerax.check(on_square, X).verdict == "safe"
