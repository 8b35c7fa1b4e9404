"""Several shard_maps, nested ones, meshes of several axes, and what is around a shard_map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from tests.extract.expectations import (
    FWD,
    Programs,
    X,
    along,
    number,
    on_line,
    on_square,
    rank,
    receive,
    same,
    send,
    square,
    total,
)

programs = Programs()
expect = programs.expect
UP = [(0, 1)]


@expect("PX201", "PX202")
def messages_do_not_cross_from_one_to_another():
    return lambda x: on_line(receive)(on_line(send)(x))


@expect()
def inside_a_scan():
    return lambda x: lax.scan(lambda x, _: (on_line(along)(x), None), x, length=3)[0]


@expect()
def inside_a_scan_with_its_counter():
    mapped = on_line(lambda x, i: lax.cond(i == 1, along, same, x), (P("x"), P()))
    return lambda x: lax.scan(lambda x, i: (mapped(x, i), None), x, jnp.arange(4))[0]


def in_two_iterations(first, second):
    mapped = on_line(lambda x, i: lax.cond(i == 0, first, second, x), (P("x"), P()))
    return lambda x: lax.scan(lambda x, i: (mapped(x, i), None), x, jnp.arange(2))[0]


@expect("PX208")
def messages_do_not_cross_from_one_iteration_to_the_next():
    return in_two_iterations(send, receive)


@expect("PX207")
def receives_do_not_cross_from_one_iteration_to_the_next():
    return in_two_iterations(receive, send)


@expect()
def inside_a_branch():
    return lambda x: lax.cond(x.sum() > 0, on_line(along), same, x)


@expect()
def inside_a_while_loop():
    return lambda x: lax.while_loop(lambda x: x.sum() > 0, on_line(along), x)


@expect("PX201")
def a_send_inside_a_while_loop():
    return lambda x: lax.while_loop(lambda x: x.sum() > 0, on_line(send), x)


def nested(outer, inner):
    """Run outer on the ranks of one axis, and inside of it inner on those of the other one as well."""

    def body(x):
        inside = jax.shard_map(inner, in_specs=P("b"), out_specs=P("b"), axis_names={"b"}, check_vma=False)
        return inside(outer(x))

    return jax.shard_map(body, mesh=square(), in_specs=P("a"), out_specs=P("a"), axis_names={"a"}, check_vma=False)


@expect()
def a_nested_one():
    return nested(lambda x: along(x, UP, "a"), lambda x: along(x, UP, "b"))


@expect("PX209")
def a_branch_on_both_axes_in_a_nested_one():
    def inner(x):
        return lax.cond(lax.axis_index("a") == lax.axis_index("b"), lambda x: total(x, "b"), same, x)

    return nested(same, inner)


@expect()
def an_axis_left_automatic():
    return jax.shard_map(
        lambda x: along(x, UP, "a"),
        mesh=square(),
        in_specs=P("a"),
        out_specs=P("a"),
        axis_names={"a"},
        check_vma=False,
    )


@expect()
def several_axes_in_another_order():
    def body(x):
        axes = ("a", "b")
        there = lax.axis_index(("b", "a")) == 2  # the rank of a=0, b=1, which is 1
        came = lax.cond(there, same, lambda x: peerax.precv(peerax.create_token(), x, axes, [(1, 0)]), x)
        lax.cond(there, lambda: peerax.psend(x, axes, [(1, 0)]), peerax.create_token)
        return came

    return on_square(body)


def differs_along_a(axis):
    return on_square(lambda x: lax.cond(lax.psum(x.sum(), "b") > 0, lambda x: total(x, axis), same, x))


@expect()
def a_value_that_differs_along_the_other_axis():
    return differs_along_a("b")


@expect("PX210")
def a_value_that_differs_along_the_same_axis():
    return differs_along_a("a")


@expect("PX210")
def a_value_that_differs_along_one_of_the_axes():
    return differs_along_a(("a", "b"))


@expect("PX210")
def how_often_a_loop_ran_that_differs_along_the_other_axis():
    """The loop communicates along b only, but ranks with another index along a have counted further."""

    def body(x):
        def step(carry):
            return carry[0] + 1, total(carry[1], "b") + 1

        times, x = lax.while_loop(lambda carry: lax.psum(carry[1].sum(), "b") < 9, step, (0, x))
        return lax.cond(times > 3, lambda x: total(x, "a"), same, x)

    return on_square(body)


@expect("PX210")
def which_branch_was_taken_that_differs_along_the_other_axis():
    def body(x):
        there = lax.psum(x.sum(), "b") > 0
        which, x = lax.cond(there, lambda x: (1, total(x, "b")), lambda x: (0, x), x)
        return lax.cond(which == 1, lambda x: total(x, "a"), same, x)

    return on_square(body)


@expect()
def an_operand_that_is_split_along_the_other_axis():
    return on_square(lambda x: lax.cond(x.sum() > 0, lambda x: total(x, "b"), same, x), P("a"))


@expect("PX210")
def an_operand_that_is_split_along_the_same_axis():
    return on_square(lambda x: lax.cond(x.sum() > 0, lambda x: total(x, "a"), same, x), P("a"))


@expect()
def a_sum_from_another_shard_map():
    mapped = on_line(lambda x, n: lax.cond(n > 0, total, same, x), (P("x"), P()))
    return lambda x: mapped(x, on_line(number, out_specs=P())(x))


@expect("PX211")
def a_result_that_is_said_to_be_the_same_on_all_ranks():
    mapped = on_line(lambda x, n: lax.cond(n.sum() > 0, total, same, x), (P("x"), P()))
    return lambda x: mapped(x, on_line(same, out_specs=P())(x))


@expect("PX210")
def a_value_that_differs_between_groups():
    def body(x):
        some = lax.psum(x.sum(), "x", axis_index_groups=[[0, 1], [2, 3]])
        return lax.cond(some > 0, total, same, x)

    return on_line(body)


@expect("PX209")
def a_collective_of_groups():
    def some(x):
        return lax.psum(x, "x", axis_index_groups=[[0, 1], [2, 3]])

    return on_line(lambda x: lax.cond(rank() == 0, some, same, x))


@expect("PX209")
def collectives_of_other_kinds():
    def exchange(x):
        return lax.all_to_all(x.reshape(4, 2), "x", 0, 0, tiled=True).reshape(8)

    return on_line(lambda x: lax.cond(rank() == 0, exchange, lambda x: lax.psum(x, "x"), x))


@expect("PX209")
def permutations_along_other_perms():
    return on_line(
        lambda x: lax.cond(
            rank() == 0, lambda x: lax.ppermute(x, "x", [(0, 1)]), lambda x: lax.ppermute(x, "x", [(1, 0)]), x
        )
    )


@expect()
def nothing_is_returned():
    def body(x):
        along(x)
        return ()

    return on_line(body, out_specs=())


@expect("PX201")
def a_branch_by_platform():
    return on_line(lambda x: lax.platform_dependent(x, default=same, cpu=send))


@expect()
def no_shard_map():
    return lambda x: x + 1


@expect()
def jitted_and_donated():
    return jax.jit(on_line(jax.jit(jax.jit(along))), donate_argnums=0)


@expect()
def a_mesh_without_devices():
    perm = [(i, i + 2) for i in range(0, 1022, 2)]
    return jax.shard_map(
        lambda x: lax.cond(rank() % 2 == 0, lambda x: along(x, perm), same, x),
        mesh=AbstractMesh((1024,), ("x",)),
        in_specs=P(),
        out_specs=P(),
        check_vma=False,
    )


@pytest.mark.parametrize("name", programs.names)
def test_program(name):
    programs.check(name)


def test_the_end_of_a_shard_map_is_no_operation_of_jax_lax():
    make, _ = programs.names["inside_a_scan"]
    assert peerax.check(make(), X, as_written_for="jax.lax").ok


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_that_is_set(kind):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(kind,))
    x = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("x")))

    def program(limit):
        return jax.shard_map(
            lambda x: lax.cond(rank() < limit, total, same, x), in_specs=P("x"), out_specs=P("x"), check_vma=False
        )

    with jax.set_mesh(mesh):
        assert peerax.check(program(4), x).ok
        assert [found.code for found in peerax.check(program(2), x).diagnostics] == ["PX209"]


def test_inside_of_what_is_traced():
    reports = []

    def outer(y):
        reports.append(peerax.check(on_line(lambda x: lax.fori_loop(0, rank(), lambda _, x: total(x), x)), X))
        return y

    jax.jit(outer)(1.0)
    assert [found.code for found in reports[0].diagnostics] == ["PX209"]


def test_arguments():
    mapped = on_line(along)
    assert peerax.check(lambda w, *, x, flag: mapped(w["a"] * x), {"a": 1.0}, x=np.zeros(32, np.float32), flag=None).ok
    times = jax.jit(
        lambda n, x: on_line(lambda x: lax.fori_loop(0, n, lambda _, x: along(x, FWD), x))(x), static_argnums=0
    )
    assert peerax.check(times, 3, X).ok
    assert not peerax.check(jax.jit(lambda x, mode: on_line(send)(x), static_argnames="mode"), X, mode="fast").ok
