"""Gradients, batches and checkpoints of programs whose branches depend on the rank, on tables and on data."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.extract.expectations import FWD, SPLIT, Programs, X, along, number, on_line, rank, same, total
from tests.ranks import pair

programs = Programs()
expect = programs.expect
BWD = [(b, a) for a, b in FWD]


def loss(function):
    return jax.grad(lambda x: (function(x) ** 2).sum())


def by_rank(x):
    return lax.cond(
        rank() < 2,
        lambda x: jnp.sin(x) * along(jnp.sin(x), [(0, 1)]),
        lambda x: x * along(jnp.cos(x), [(2, 3)]),
        x,
    )


@expect()
def a_branch_on_the_rank():
    return loss(on_line(by_rank))


@expect()
def a_branch_in_a_checkpoint():
    return loss(on_line(jax.checkpoint(by_rank)))


@expect()
def a_branch_in_a_checkpoint_in_a_scan():
    return loss(on_line(lambda x: lax.scan(lambda x, _: (jax.checkpoint(by_rank)(x), None), x, length=3)[0]))


@expect()
def weights_that_all_share_in_a_branch_on_the_rank():
    """JAX sums their cotangents in the branch of some ranks; peerax, where all come by."""

    def body(w, x):
        x = lax.cond(rank() == 0, lambda x: jnp.sin(x * w), lambda x: x, x)
        return lax.psum((along(x) ** 2).sum(), "x")

    f = on_line(body, (P(), SPLIT), P(), check_vma=True)
    return lambda x: jax.grad(f, (0, 1))(x[0], x)


@expect()
def training_in_a_loop():
    """What a step sends depends on the sum of the step before, which only some ranks take a part in."""

    def body(x):
        def loss(w):
            came = pair(x * w, "x", FWD)
            return (lax.cond(rank() == 0, lambda c: jnp.sin(c * w), lambda c: c, came) ** 2).sum()

        return lax.scan(lambda w, _: (w - jax.grad(loss)(w), None), 1.0, length=3)[0]

    return on_line(body, out_specs=P(), check_vma=True)


@expect()
def a_policy():
    policy = jax.checkpoint_policies.dots_saveable
    return loss(on_line(jax.checkpoint(lambda x: jnp.sin(along(jnp.sin(x))), policy=policy)))


@expect()
def the_gradient_of_a_gradient():
    return loss(loss(on_line(by_rank)))


@expect()
def the_tangent_of_a_gradient():
    return lambda x: jax.jvp(loss(on_line(by_rank)), (x,), (x,))


@expect()
def the_batch_of_a_gradient():
    return lambda x: jax.vmap(loss(on_line(by_rank)))(jnp.stack([x, x]))


@expect()
def a_scan_around_it():
    return loss(lambda x: lax.scan(lambda x, _: (on_line(by_rank)(x), None), x, length=3)[0])


@expect()
def training():
    gradient = loss(on_line(by_rank))
    return lambda x: lax.fori_loop(0, 5, lambda _, x: x - gradient(x), x)


def table_of(branches, outer_times, times, wrap=same):
    """Two scans, of which the counters together and the rank choose a branch."""

    def body(x):
        def outer(x, i):
            def inner(x, j):
                return lax.switch((i + j + rank()) % 2, branches, x), None

            return lax.scan(wrap(inner), x, jnp.arange(times))[0], None

        return lax.scan(outer, x, jnp.arange(outer_times))[0]

    return loss(on_line(body))


@expect()
def a_table_of_two_loops():
    # The ranks of an edge have the same parity.
    return table_of([lambda x: along(jnp.sin(x), [(0, 2)]), lambda x: along(jnp.cos(x), [(1, 3)])], 4, 2)


@expect()
def a_table_of_two_loops_in_a_checkpoint():
    branches = [lambda x: x * along(jnp.sin(x), [(0, 2)]), lambda x: x * along(jnp.cos(x), [(1, 3)])]
    return table_of(branches, 4, 2, jax.checkpoint)


def table_in_a_branch(wrap=same):
    """The branch that an outer table chooses has a loop with a table of its own."""

    def body(x):
        def inner(x, chosen):
            return lax.cond(chosen == 1, lambda x: x * along(jnp.sin(x), [(0, 1), (1, 0)]), same, x), None

        def outer(x, chosen):
            return lax.cond(chosen == 1, lambda x: lax.scan(inner, x, jnp.array([0, 0]))[0], same, x), None

        return lax.scan(wrap(outer), x, jnp.array([0, 1]))[0]

    return loss(on_line(body))


@expect()
def a_table_in_a_branch():
    return table_in_a_branch()


@expect()
def a_table_in_a_branch_in_a_checkpoint():
    return table_in_a_branch(jax.checkpoint)


@expect("PX201", "PX202")
def a_table_of_two_loops_that_is_wrong_forward_and_backward():
    # Rank 0 comes to the first branch five times, and rank 1 four times.
    return table_of([lambda x: x * along(x, [(0, 1)]), same], 3, 3)


@expect()
def data_of_all_ranks():
    return loss(on_line(lambda x: lax.cond(number(x) > 0, lambda x: x * along(jnp.sin(x)), same, x)))


@expect("PX210")
def data_of_the_rank():
    return on_line(lambda x: lax.cond(x.sum() > 0, lambda x: x * along(jnp.sin(x)), same, x))


@expect()
def a_rule_of_its_own():
    @jax.custom_vjp
    def shifted(x):
        return along(x)

    shifted.defvjp(lambda x: (shifted(x), None), lambda _, bar: (along(bar, BWD),))
    return loss(on_line(shifted))


@expect()
def a_batch_around_and_inside():
    return lambda x: jax.vmap(on_line(jax.vmap(along)))(x.reshape(2, 4, 4))


@expect("PX209")
def an_axis_of_a_batch_is_no_axis_of_ranks():
    def body(x):
        return lax.cond(rank() == 0, lambda x: lax.psum(x, "x"), same, lax.psum(x, "rows"))

    return on_line(lambda x: jax.vmap(body, axis_name="rows")(x.reshape(2, 4)).reshape(8))


@expect()
def a_branch_that_a_batch_turns_into_a_choice():
    def body(x):
        return lax.cond(x > 0, lambda x: lax.psum(x, "x"), lambda x: lax.psum(2 * x, "x"), x)

    return on_line(jax.vmap(body))


@expect("PX209")
def a_linear_solve():
    def body(x):
        return lax.custom_linear_solve(lambda v: 2 * v, x, lambda _, b: lax.cond(rank() == 0, total, same, b) / 2)

    return on_line(body)


@pytest.mark.parametrize("name", programs.names)
def test_program(name):
    programs.check(name)


@pytest.mark.parametrize("reverse", [True, False])
def test_the_gradient_runs_backwards(reverse):
    """What each iteration chose is kept for the gradient, and taken there in the other order."""

    def body(x):
        def step(x, i):
            return lax.cond(jnp.array([1, 0, 0, 0])[i] == 1, lambda x: jnp.sin(along(x)), jnp.cos, x), None

        return lax.scan(step, x, jnp.arange(4), reverse=reverse)[0]

    loops = peerax.program(loss(on_line(body)), X).bodies()[0]
    chosen = [loop.body[0].selector.values for loop in loops]
    assert chosen == ([(0, 0, 0, 1), (1, 0, 0, 0)] if reverse else [(1, 0, 0, 0), (0, 0, 0, 1)])
