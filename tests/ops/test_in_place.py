"""Large arrays that nobody needs any more are exchanged in place, where all ranks come by the same operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.ops.ranks import assert_same_bits, chain, on_ranks, pair, ring

LARGE = 2**18  # float32: 1 MiB
PERMS = {
    "ring": ring(4),
    "back": ring(4, -1),
    "swaps": ring(4, 2),
    "chain": chain(4),
    "itself": [(0, 0), (1, 2), (2, 1)],
    "two chains": [(3, 2), (0, 1)],
    "nobody": [],
}


def numbers(*shape):
    return np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)


def scanned(step, x):
    return lax.scan(step, x, jnp.arange(3.0))[0]


# Each program takes the exchange (a pair, or ppermute of each leaf), the perm, and this rank's part of the input.


def carried(exchange, perm, x):
    return scanned(lambda c, _: (exchange(c, "x", perm), None), x)


def computed(exchange, perm, x):
    return scanned(lambda c, i: (exchange(c * 2 + i, "x", perm) + 1, None), x)


def computed_on(exchange, perm, x):
    return scanned(lambda c, i: (exchange(c, "x", perm) / 2 + i, None), x)


def used_afterwards(exchange, perm, x):
    def step(c, _):
        old, total = c
        new = exchange(old, "x", perm)
        return (new, total + old * new), None

    return scanned(step, (x, x))


def used_meanwhile(exchange, perm, x):
    return scanned(lambda c, _: ((exchange(c[0], "x", perm), c[1] + c[0][:, :7].sum()), None), (x, x[0, 0]))[0]


def kept(exchange, perm, x):
    return scanned(lambda c, _: ((exchange(c[0], "x", perm), c[0]), None), (x, x + 1))


def stacked(exchange, perm, x):
    return lax.scan(lambda c, _: (exchange(c, "x", perm), c), x, None, length=3)


def both_ways(exchange, perm, x):
    back = [(destination, source) for source, destination in perm]
    return scanned(lambda c, _: (exchange(c, "x", perm) + exchange(c, "x", back), None), x)


def twice_in_one(exchange, perm, x):
    def step(c, _):
        a, b, small = exchange((c, c, c[..., :5]), "x", perm)
        return (a + b).at[..., :5].add(small), None

    return scanned(step, x)


def changes_places(exchange, perm, x):
    return scanned(lambda c, i: ((c[1] + i, *exchange((c[2], c[0]), "x", perm)), None), (x, x + 1, x + 2))


def argument(exchange, perm, x):
    return exchange(x, "x", perm), exchange(x, "x", perm) + x


def constant(exchange, perm, x):
    return exchange(jnp.ones_like(x), "x", perm) + x


def in_a_call(exchange, perm, x):
    y = jax.jit(lambda y: exchange(y, "x", perm))(x + 1)
    return jax.checkpoint(lambda y: exchange(jnp.sin(y), "x", perm))(y), y


def reshaped(exchange, perm, x):
    y = x + 1
    return exchange(y.reshape(-1, 2), "x", perm), y


PROGRAMS = [
    *(
        carried,
        computed,
        computed_on,
        used_afterwards,
        used_meanwhile,
        kept,
        stacked,
        both_ways,
        twice_in_one,
        changes_places,
    ),
    *(argument, constant, in_a_call, reshaped),
]


def by_ppermute(x, axis_name, perm):
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, axis_name, perm), x)


def assert_equals_ppermute(program, perm, x):
    """Compare the program of either exchange on as many ranks as x has rows."""

    def run(exchange):
        return on_ranks(lambda x: program(exchange, perm, x), len(x), check_vma=False)(x)

    assert_same_bits(run(pair), run(by_ppermute))


@pytest.mark.parametrize("perm", PERMS.values(), ids=PERMS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_equals_ppermute(program, perm):
    assert_equals_ppermute(program, perm, numbers(LARGE + 8))


@pytest.mark.parametrize("dtype", ["bool_", "int4", "bfloat16", "complex64"])
def test_dtypes(dtype):
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (4, 2**21)), getattr(jnp, dtype))
    assert_equals_ppermute(carried, ring(4), x)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_sizes_of_rings(size):
    assert_equals_ppermute(carried, ring(size), np.arange(size * (LARGE + 1), dtype=np.float32).reshape(size, -1))


@pytest.mark.parametrize("program", [computed, used_afterwards, both_ways])
def test_gradient_and_batches(program):
    def loss(exchange, x):
        results = program(exchange, ring(4), x)
        return sum(jnp.sin(leaf).sum() for leaf in jax.tree.leaves(results))[None]

    def gradients(exchange):
        return on_ranks(lambda x: jax.vmap(jax.grad(lambda x: loss(exchange, x)[0]))(x))

    x = numbers(2, LARGE).reshape(8, LARGE)
    actual, expected = gradients(pair)(x), gradients(by_ppermute)(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def in_the_loop(program, size):
    """Return how many copies of a whole array there are in the loop of a program, and how many exchanges in place."""
    text = on_ranks(lambda x: program(pair, ring(4), x)).lower(numbers(size)).compile().as_text()
    lines = text[: text.index("\nENTRY")].splitlines()
    copies = sum(f"= f32[1,{size}]" in line and " copy(" in line for line in lines)
    return copies, sum("peerax_exchange" in line and "{}: (1, {})" in line for line in lines)


@pytest.mark.parametrize("program", [carried, computed_on, used_meanwhile])
def test_a_loop_copies_no_array(program):
    assert in_the_loop(program, LARGE) == (0, 1)


@pytest.mark.parametrize("program", [used_afterwards, kept, stacked])
def test_what_is_needed_is_not_copied_before(program):
    assert in_the_loop(program, LARGE)[1] == 0


def test_small_arrays_are_not_exchanged_in_place():
    assert in_the_loop(carried, LARGE - 1) == (1, 0)


def test_ranks_that_differ_in_their_order_do_not_wait_for_all():
    """Rank 0 sends to 1 in a chain on to 2, and then to 2; rank 2 receives in the other order."""

    def body(x):
        rank = lax.axis_index("x")

        def step(total, i):
            chain_first = jnp.where(rank == 2, i == 1, i == 0)
            came = lax.cond(
                chain_first,
                lambda: pair(x + i, "x", [(0, 1), (1, 2)]),
                lambda: 10 * pair(x - i, "x", [(0, 2)]),
            )
            return total + came, None

        return lax.scan(step, jnp.zeros_like(x), jnp.arange(2.0))[0]

    x = numbers(LARGE)[:3]
    expected = [0 * x[0], x[0], 10 * (x[0] - 1) + x[1]]
    np.testing.assert_allclose(on_ranks(body, 3, check_vma=False)(x), expected, rtol=1e-5, atol=1e-5)
