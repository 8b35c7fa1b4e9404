"""Loops whose length is known, tables, nested loops: what each rank does in which iteration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.extract.expectations import Programs, along, number, on_line, rank, receive, same, send, total

programs = Programs()
expect = programs.expect


@expect()
def a_bound_that_all_ranks_have():
    return on_line(lambda x: lax.fori_loop(0, number(x).astype(jnp.int32), lambda _, x: along(x), x))


@expect("PX209")
def a_bound_that_the_rank_has():
    return on_line(lambda x: lax.fori_loop(0, rank() + 1, lambda _, x: total(x), x))


@expect()
def another_start_but_as_many_times():
    return on_line(lambda x: lax.fori_loop(rank(), rank() + 3, lambda _, x: total(x), x))


@expect()
def as_many_sends_in_one_loop_as_receives_in_another():
    def body(x):
        x = lax.fori_loop(0, jnp.where(rank() == 0, 5, 0), lambda _, x: send(x), x)
        return lax.fori_loop(0, jnp.where(rank() == 1, 5, 0), lambda _, x: x + receive(x), x)

    return on_line(body)


@expect()
def a_branch_on_the_counter_of_a_loop_whose_bound_the_rank_has():
    return on_line(lambda x: lax.fori_loop(0, rank() + 1, lambda i, x: lax.cond(i == 0, total, same, x), x))


def counting(test):
    def body(x):
        return lax.while_loop(test, lambda carry: (carry[0] + 2, along(carry[1])), (0, x))[1]

    return on_line(body)


@expect()
def a_while_loop_that_counts():
    return counting(lambda carry: carry[0] < 7)


@expect("PX210")
def a_while_loop_that_counts_and_looks_at_its_data():
    return counting(lambda carry: (carry[0] < 7) & (carry[1].sum() > 0))


@expect()
def a_while_loop_that_counts_and_looks_at_all_data():
    return counting(lambda carry: (carry[0] < 7) & (number(carry[1]) > 0))


@expect()
def a_while_loop_without_an_end():
    def body(x):
        return lax.while_loop(lambda carry: carry[0] >= 0, lambda carry: (carry[0] * 0, along(carry[1])), (0, x))[1]

    return on_line(body)


@expect()
def a_branch_in_a_while_loop_that_counts():
    def step(carry):
        i, x = carry
        return i + 1, lax.cond(i % 2 == 0, lambda x: along(x, [(0, 1)]), lambda x: along(x, [(2, 3)]), x)

    return on_line(lambda x: lax.while_loop(lambda carry: carry[0] < 5, step, (0, x))[1])


def carried(ticks):
    """Each rank adds up when the mark that all carry along comes to it."""

    def body(x):
        def step(carry, _):
            marks, x = carry
            return (jnp.roll(marks, 1), lax.cond(marks[rank()] == 1, total, same, x)), None

        marks = jnp.zeros(4, jnp.int32).at[0].set(1)
        return lax.scan(step, (marks, x), length=ticks)[0][1]

    return on_line(body)


@expect()
def a_table_that_is_carried():
    return carried(4)


@expect("PX209")
def a_table_that_is_carried_not_far_enough():
    return carried(3)


STEPS = [send, lambda x: x + receive(x), total]


def in_steps(order, **options):
    def body(x):
        return lax.scan(lambda x, which: (lax.switch(which, STEPS, x), None), x, jnp.array(order), **options)[0]

    return on_line(body)


@expect()
def a_scan():
    return in_steps([0, 1, 2])


@expect("PX208")
def a_scan_in_another_order():
    return in_steps([0, 2, 1])


@expect()
def a_reversed_scan():
    return in_steps([2, 1, 0], reverse=True)


@expect("PX208")
def a_reversed_scan_in_another_order():
    return in_steps([1, 2, 0], reverse=True)


@expect("PX209")
def a_float_of_the_rank():
    return on_line(lambda x: lax.cond(jnp.sin(rank().astype(jnp.float32)) > 0.5, total, same, x))


@expect()
def the_position_of_the_maximum():
    table = np.array([[1, 5, 2], [7, 0, 1], [0, 0, 9], [3, 2, 1]])  # 1, 0, 2, 0
    steps = [same, lambda x: send(x, [(0, 2)]), lambda x: receive(x, [(0, 2)])]
    return on_line(lambda x: lax.switch(jnp.argmax(jnp.asarray(table)[rank()]), steps, x))


@expect()
def a_table_that_is_split_among_the_ranks():
    table = np.array([[1, 0, 1], [0, 2, 2], [0, 0, 0], [0, 0, 0]])

    def body(x, mine):
        def step(x, which):
            return lax.switch(which, [same, send, receive], x), None

        return lax.scan(step, x, mine[0])[0]

    mapped = on_line(body, (P("x"), P("x")))
    return lambda x: mapped(x, jnp.asarray(table))


def two_counters(times):
    """Each rank adds up where both counters together have its number."""

    def body(x):
        def outer(x, i):
            def inner(x, j):
                return lax.cond((i * 3 + j) % 5 == rank(), total, same, x), None

            return lax.scan(inner, x, jnp.arange(3))[0], None

        return lax.scan(outer, x, jnp.arange(times))[0]

    return on_line(body)


def in_two_loops(inner_length, *, carried):
    """A loop in a loop; its length depends on what the outer one carries, a counter that starts at a rank's value."""

    def body(x):
        def inner(carry):
            return carry[0] + 1, carry[1], along(carry[2])

        def outer(carry):
            i, x = carry
            return i + 1, lax.while_loop(lambda carry: carry[0] < inner_length(carry[1]), inner, (0, i, x))[2]

        if carried == "while":
            return lax.while_loop(lambda carry: carry[0] < 3, outer, (rank() * 0, x))[1]
        return lax.scan(lambda carry, _: (outer(carry), None), (rank() * 0, x), length=3)[0][1]

    return on_line(body)


@expect()
def a_loop_in_a_while_loop_that_it_counts_with():
    return in_two_loops(lambda i: i + 1, carried="while")


@expect("PX209")
def a_loop_in_a_while_loop_that_it_counts_with_and_the_rank():
    def body(x):
        def outer(carry):
            return carry[0] + 1, lax.fori_loop(0, carry[0] + rank(), lambda _, x: total(x), carry[1])

        return lax.while_loop(lambda carry: carry[0] < 3, outer, (rank() * 0, x))[1]

    return on_line(body)


@expect()
def a_loop_in_a_scan_that_it_counts_with():
    return in_two_loops(lambda i: i + 1, carried="scan")


@expect()
def loops_in_three_levels_that_count_with_each_other():
    def level(depth, n, x):
        if depth == 0:
            return along(x)
        return lax.fori_loop(rank() * 0, n + 1, lambda i, x: level(depth - 1, i, x), x)

    return on_line(lambda x: level(3, 2, x))


@expect()
def a_branch_on_two_counters():
    return two_counters(5)


@expect("PX209")
def a_branch_on_two_counters_that_end_early():
    return two_counters(4)


@expect()
def many_loops_in_each_other():
    def level(depth, x, n):
        if depth == 0:
            return lax.cond(n % 2 == 0, lambda x: along(x, [(0, 1)]), lambda x: along(x, [(1, 2)]), x)

        def step(carry, i):
            x, n = carry
            return (level(depth - 1, x, n + i), n + 1), None

        return lax.scan(step, (x, n), jnp.arange(2))[0][0]

    return on_line(lambda x: level(6, x, jnp.int32(0)))


@expect()
def no_iteration():
    def body(x):
        step = lambda x, i: (lax.cond(i == rank(), total, same, x), None)  # noqa: E731
        return lax.scan(step, x, jnp.zeros((0,), jnp.int32))[0]

    return on_line(body)


@expect()
def many_iterations_by_a_table():
    def step(i, x):
        return lax.cond(i % 3 == 0, lambda x: along(x, [(0, 1)]), lambda x: along(x, [(1, 2)]), x)

    return on_line(lambda x: lax.fori_loop(0, 50_000, step, x))


@expect()
def a_million_iterations():
    return on_line(lambda x: lax.fori_loop(0, 1_000_000, lambda _, x: along(x), x))


@expect("PX209")
def a_loop_without_messages_that_counts_to_the_rank():
    def body(x):
        n = lax.while_loop(lambda n: n < rank() * 3, lambda n: n + 2, jnp.int32(0))
        return lax.cond(n > 4, total, same, x)

    return on_line(body)


@expect("PX209")
def a_random_number_of_the_rank():
    def body(x):
        key = jax.random.fold_in(jax.random.key(0), rank())
        return lax.cond(jax.random.randint(key, (), 0, 2) == 0, total, same, x)

    return on_line(body)


@expect()
def random_numbers_from_a_key_that_is_carried():
    def step(carry, _):
        key, x = carry
        key, sub = jax.random.split(key)
        return (key, lax.cond(jax.random.bernoulli(sub), along, same, x)), None

    return on_line(lambda x: lax.scan(step, (jax.random.key(0), x), length=5)[0][1])


@expect("PX209")
def an_index_that_is_clamped():
    return on_line(lambda x: lax.switch(rank() * 5 - 5, [same, total], x))


@expect()
def an_index_beyond_the_last_branch():
    return on_line(lambda x: lax.switch(rank() + 5, [same, total], x))


@expect("PX211")
def two_predicates_that_differ_in_a_number():
    def body(x):
        n = number(x)
        x = lax.cond(n > 1, lambda x: send(x) + 1, same, x)
        return lax.cond(n > 2, lambda x: x + receive(x), same, x)

    return on_line(body)


@expect("PX211")
def a_predicate_that_changes_from_iteration_to_iteration():
    def body(x):
        def step(carry, _):
            x, before = carry
            now = number(x) > 0
            x = lax.cond(now, lambda x: send(x) + 1, same, x)
            return (lax.cond(before, lambda x: x + receive(x), same, x), now), None

        return lax.scan(step, (x, False), length=3)[0][0]

    return on_line(body)


@pytest.mark.parametrize("name", programs.names)
def test_program(name):
    programs.check(name)
