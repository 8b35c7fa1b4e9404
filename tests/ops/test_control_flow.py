"""Pairs in loops, branches and calls give what the same program gives with ppermute."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, chain, grid, on_ranks, pair, ring


def size_of():
    return lax.axis_size("x")


def rank_of(x):
    return lax.axis_index("x").astype(x.dtype)


# Each program takes the exchange (a pair, or ppermute) and this rank's part of the input.


def scan(exchange, x):
    def step(carry, i):
        came = exchange(carry + i, "x", ring(size_of()))
        return came, (came.sum()[None], i)

    carry, (sums, _) = lax.scan(step, x, jnp.arange(5.0))
    return jnp.concatenate([carry, sums.ravel()])


def scan_reversed_and_unrolled(exchange, x):
    def step(carry, i):
        return exchange(carry, "x", chain(size_of())) * 2 + i + x, carry

    carry, ys = lax.scan(step, x, jnp.arange(7.0), reverse=True, unroll=3)
    return jnp.concatenate([carry, ys.ravel()])


def scan_over_nothing(exchange, x):
    return lax.scan(lambda c, i: (exchange(c, "x", ring(size_of())), None), x, jnp.arange(0))[0]


def scan_in_scan(exchange, x):
    def inner(c, i):
        return (exchange(c, "x", ring(size_of())) + i, None)

    def outer(c, i):
        return (exchange(lax.scan(inner, c, jnp.arange(3.0))[0], "x", chain(size_of())) + x, c)

    return lax.scan(outer, x, None, length=3)[1].ravel()


def map_of_exchanges(exchange, x):
    return lax.map(lambda i: exchange(i * x, "x", chain(size_of())), jnp.arange(4.0)).ravel()


def fori(exchange, x):
    return lax.fori_loop(0, 4, lambda i, c: exchange(c, "x", ring(size_of())) + i.astype(c.dtype), x)


def fori_with_a_computed_end(exchange, x):
    end = 2 + lax.pmax(lax.axis_index("x"), "x")
    return lax.fori_loop(0, end, lambda i, c: exchange(c, "x", ring(size_of())) + x, x)


def while_loop(exchange, x):
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, exchange(s[1], "x", ring(size_of())) + x), (0, x))[1]


def while_with_a_psum_in_its_condition(exchange, x):
    return lax.while_loop(lambda s: lax.psum(s.sum(), "x") < 500, lambda s: exchange(s, "x", ring(size_of())) + 1, x)


def while_with_an_exchange_in_its_condition(exchange, x):
    def goes_on(state):
        return lax.pmax(exchange(state, "x", ring(size_of())).max(), "x") < 50

    return lax.while_loop(goes_on, lambda s: exchange(s, "x", chain(size_of())) + s + 1, x)


def while_that_does_not_start(exchange, x):
    return lax.while_loop(
        lambda s: lax.psum(s.sum(), "x") < -1, lambda s: exchange(s, "x", ring(size_of())), x
    ) + exchange(x, "x", ring(size_of()))


def cond(exchange, x):
    branches = (lambda y: exchange(y, "x", chain(size_of())), lambda y: y * 3)
    first = lax.cond(lax.psum(x.sum(), "x") > 3, *branches, x)
    return first + lax.cond(lax.psum(x.sum(), "x") < 3, *branches, x)


def switch(exchange, x):
    branches = [
        lambda y: exchange(y, "x", chain(size_of())),
        lambda y: y,
        lambda y: exchange(exchange(y, "x", ring(size_of())), "x", ring(size_of())),
    ]
    last = lax.pmax(lax.axis_index("x"), "x")
    return lax.switch(last * 0 + 2, branches, x) + lax.switch(last * 0, branches, x) + lax.switch(last, branches, x)


def cond_in_scan(exchange, x):
    def step(c, i):
        return lax.cond(i % 2 == 0, lambda: exchange(c, "x", ring(size_of())) + x, lambda: c * 2), None

    return lax.scan(step, x, jnp.arange(6))[0]


def nested_jit(exchange, x):
    f = jax.jit(lambda y: exchange(y, "x", chain(size_of())) + 1)
    return f(f(x)) + jax.jit(lambda y: jax.jit(f)(y) * 2)(x)


def jit_in_scan(exchange, x):
    f = jax.jit(lambda y: exchange(y, "x", ring(size_of())) + x)
    return lax.scan(lambda c, _: (f(f(c)), None), x, None, length=3)[0]


def inlined_and_named(exchange, x):
    @functools.partial(jax.jit, inline=True)
    @jax.named_call
    def f(y):
        with jax.named_scope("scope"):
            return exchange(y, "x", ring(size_of()))

    return f(x)


def custom_vjp(exchange, x):
    @jax.custom_vjp
    def f(y):
        return exchange(jnp.sin(y), "x", ring(size_of())) * 2

    f.defvjp(lambda y: (f(y), None), lambda _, cotangent: (cotangent,))
    return f(x)


def custom_jvp(exchange, x):
    @jax.custom_jvp
    def f(y):
        return exchange(jnp.sin(y), "x", ring(size_of())) * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


def checkpoint(exchange, x):
    f = jax.checkpoint(lambda y: exchange(jnp.sin(y), "x", ring(size_of())))
    g = jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable, prevent_cse=False)
    return lax.scan(lambda c, _: (g(c) + x, None), f(x), None, length=3)[0]


def vmap_beside(exchange, x):
    """Batched values around an exchange that is not."""
    y = exchange(jax.vmap(jnp.sin)(x), "x", ring(size_of()))
    return y + jax.vmap(lambda i: i + exchange(x, "x", chain(size_of())))(jnp.arange(3.0)).sum(0)


def grad_beside(exchange, x):
    """What is differentiated is not sent."""
    slope = jax.grad(lambda w: (w * exchange(x, "x", ring(size_of()))).sum())(x)
    return slope + exchange(lax.stop_gradient(slope), "x", ring(size_of()))


def platform_dependent(exchange, x):
    def f(y):
        return exchange(y, "x", ring(size_of()))

    return lax.platform_dependent(x, cpu=f, default=lambda y: y) + lax.platform_dependent(x, tpu=lambda y: y, default=f)


def linear_solve(exchange, x):
    def solve(matvec, b):
        return lax.fori_loop(0, 5, lambda i, v: v + (b - matvec(v)) / 4, b)

    def matvec(v):
        return 3 * v + exchange(v, "x", ring(size_of()))

    return lax.custom_linear_solve(matvec, x, solve, symmetric=True)


def associative_scan(exchange, x):
    return lax.associative_scan(lambda a, b: exchange(a + b, "x", ring(size_of())), jnp.stack([x] * 5)).ravel()


def callbacks(exchange, x):
    y = exchange(x, "x", ring(size_of()))
    z = jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
    jax.debug.callback(lambda v: None, z)
    return exchange(z, "x", chain(size_of()))


def closed_over_arrays(exchange, x):
    large = np.arange(2.0, dtype=np.float32) + 7
    f = jax.jit(lambda y: exchange(y * large, "x", ring(size_of())) + large)
    return lax.scan(lambda c, a: (f(c) + a, None), x, np.ones((3, 2), np.float32))[0]


def rank_dependent_cond_before(exchange, x):
    """XLA moves a collective-permute of its own into such branches, and then aborts."""
    y = lax.cond(rank_of(x) % 2 == 0, lambda: jnp.sin(x) @ jnp.ones((2, 2)), lambda: x * 3)
    return exchange(y, "x", ring(size_of()))


ALL = [
    *(scan, scan_reversed_and_unrolled, scan_over_nothing, scan_in_scan, map_of_exchanges, fori),
    *(fori_with_a_computed_end, while_loop, while_with_a_psum_in_its_condition),
    *(while_with_an_exchange_in_its_condition, while_that_does_not_start, cond, switch, cond_in_scan, nested_jit),
    *(jit_in_scan, inlined_and_named, custom_vjp, custom_jvp, checkpoint, vmap_beside, grad_beside),
    *(platform_dependent, linear_solve, associative_scan, callbacks, closed_over_arrays),
]


@pytest.mark.parametrize("size, check_vma", [(3, True), (4, False), (8, True)])
@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
def test_equals_ppermute(program, size, check_vma):
    x = jnp.arange(2.0 * size) + 1
    actual, expected = (
        on_ranks(functools.partial(program, exchange), size, check_vma=check_vma)(x)
        for exchange in (pair, lax.ppermute)
    )
    assert_same_bits(actual, expected)


@pytest.mark.parametrize("size, check_vma", [(3, True), (8, False)])
def test_rank_dependent_cond_then_an_exchange(size, check_vma):
    """E9: with ppermute in the place of the pair, this aborts the process."""
    x = jnp.arange(2.0 * size) + 1
    options = {"check_vma": check_vma}
    actual = np.asarray(on_ranks(functools.partial(rank_dependent_cond_before, pair), size, **options)(x))
    local = [np.sin(x[:2]) @ np.ones((2, 2)) if r % 2 == 0 else x[:2] * 3 for r, x in enumerate(np.split(x, size))]
    np.testing.assert_allclose(actual, np.roll(np.concatenate(local), 2), rtol=1e-6)


class TestRankDependentBranches:
    @pytest.mark.parametrize("size, check_vma", [(3, False), (4, True), (8, True)])
    def test_cond_then_ppermute_psum_and_a_pair(self, size, check_vma):
        """JAX's own collectives after such a cond, in a body with a pair."""

        def body(x):
            y = lax.cond(lax.axis_index("x") % 2 == 0, lambda: x * 5, lambda: x * 3)
            y = lax.ppermute(y, "x", ring(size))
            y = pair(y, "x", chain(size))
            return y + lax.psum(y, "x")

        x = np.arange(2.0 * size, dtype=np.float32).reshape(size, 2)
        y = np.roll(np.where(np.arange(size)[:, None] % 2 == 0, x * 5, x * 3), 1, axis=0)
        y = np.concatenate([np.zeros_like(y[:1]), y[:-1]])
        actual = on_ranks(body, size, check_vma=check_vma)(x.ravel())
        np.testing.assert_array_equal(np.asarray(actual).reshape(size, 2), y + y.sum(0))

    @pytest.mark.parametrize("check_vma", [False, True])
    def test_sends_in_one_branch_and_receives_in_the_other(self, check_vma):
        def body(x):
            def send():
                return x + 0 * peerax.psend(x, "x", [(0, 1), (2, 3)])

            def receive():
                return peerax.precv(peerax.create_token(), x, "x", [(0, 1), (2, 3)])

            return lax.cond(lax.axis_index("x") % 2 == 0, send, receive)

        actual = on_ranks(body, check_vma=check_vma)(jnp.arange(8.0))
        np.testing.assert_array_equal(actual, [0, 1, 0, 1, 4, 5, 4, 5])

    def test_a_chain_in_which_every_rank_has_a_branch_of_its_own(self):
        def body(x):
            def first():
                return x + 0 * peerax.psend(x + 1, "x", [(0, 1)])

            def middle(rank):
                came = peerax.precv(peerax.create_token(), x, "x", [(rank - 1, rank)])
                return came + 0 * peerax.psend(came + 1, "x", [(rank, rank + 1)])

            def last():
                return peerax.precv(peerax.create_token(), x, "x", [(2, 3)])

            branches = [first, functools.partial(middle, 1), functools.partial(middle, 2), last]
            return lax.switch(lax.axis_index("x"), branches)

        np.testing.assert_array_equal(on_ranks(body)(jnp.arange(8.0)), [0, 1, 1, 2, 2, 3, 3, 4])

    def test_pairs_in_a_branch_that_both_ends_take(self):
        def body(x):
            def inside():
                return pair(x, "x", [(0, 1), (1, 0)])

            return lax.cond(lax.axis_index("x") < 2, inside, lambda: x)

        np.testing.assert_array_equal(on_ranks(body)(jnp.arange(8.0)), [2, 3, 0, 1, 4, 5, 6, 7])

    def test_a_collective_of_one_axis_in_a_branch_that_depends_on_the_other(self):
        def body(x):
            y = lax.cond(lax.axis_index("a") == 0, lambda: x + lax.psum(x, "b"), lambda: x * 2)
            return pair(y, "b", ring(4))

        program = jax.shard_map(body, mesh=grid(2, 4), in_specs=P("a", "b"), out_specs=P("a", "b"))
        x = np.arange(8.0, dtype=np.float32).reshape(2, 4)
        np.testing.assert_array_equal(jax.jit(program)(x), np.roll(np.stack([x[0] + x[0].sum(), x[1] * 2]), 1, axis=1))

    def test_loops_whose_length_depends_on_the_rank(self):
        """Rank 0 sends three times in its loop, rank 1 receives as often in its own."""

        def body(x):
            rank = lax.axis_index("x")

            def send(i, carry):
                peerax.psend(carry + i.astype(x.dtype), "x", [(0, 1)])
                return carry

            def receive(i, carry):
                return carry + peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

            y = lax.fori_loop(0, jnp.where(rank == 0, 3, 0), send, x)
            return lax.fori_loop(0, jnp.where(rank == 1, 3, 0), receive, y)

        np.testing.assert_array_equal(on_ranks(body)(jnp.arange(8.0)), [0, 1, 2 + 3, 3 + 6, 4, 5, 6, 7])


class TestCollectives:
    """JAX's own, of every kind, between pairs."""

    @pytest.mark.parametrize("check_vma", [False, True])
    def test_all_kinds(self, check_vma):
        def body(exchange, x):
            y = exchange(x, "x", ring(4))
            parts = [
                lax.psum(y, "x"),
                lax.pmax(y, "x"),
                lax.pmin(exchange(y, "x", chain(4)), "x"),
                lax.pmean(y, "x"),
                lax.all_gather(y, "x", tiled=True).sum()[None],
                lax.all_to_all(jnp.tile(y, 4).reshape(4, 2), "x", 0, 0).sum(0),
                lax.psum_scatter(jnp.tile(y, 4), "x", tiled=True),
                lax.ppermute(y, "x", ring(4)),
                lax.psum((y, y.astype(int)), "x")[1].astype(x.dtype),
                lax.psum(3, "x") * y,
            ]
            return exchange(sum(p + 0 * x for p in parts), "x", ring(4))

        actual, expected = (
            on_ranks(functools.partial(body, exchange), check_vma=check_vma)(jnp.arange(8.0))
            for exchange in (pair, lax.ppermute)
        )
        assert_same_bits(actual, expected)

    def test_groups(self):
        def body(x):
            y = pair(x, "x", ring(4))
            return y + lax.psum(y, "x", axis_index_groups=[[0, 3], [1, 2]])

        y = np.roll(np.arange(8.0), 2).reshape(4, 2)
        sums = np.stack([y[0] + y[3], y[1] + y[2], y[1] + y[2], y[0] + y[3]])
        actual = on_ranks(body, check_vma=False)(jnp.arange(8.0))
        np.testing.assert_array_equal(actual, (y + sums).ravel())

    def test_of_keys_and_narrow_integers(self):
        def body(exchange, x):
            key = jax.random.fold_in(jax.random.key(0), lax.axis_index("x"))
            key = exchange(lax.ppermute(key, "x", ring(4)), "x", ring(4))
            keys = jax.random.key_data(key).astype(x.dtype)
            narrow = lax.all_gather(lax.ppermute(x.astype(jnp.int4), "x", ring(4)), "x").astype(x.dtype).sum()
            return x + keys + narrow

        actual, expected = (
            on_ranks(functools.partial(body, exchange))(jnp.arange(8.0)) for exchange in (pair, lax.ppermute)
        )
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize("check_vma", [False, True])
class TestACollectiveAtSeveralLines:
    """Ranks may call the same collective in branches of their own, as they may without peerax."""

    def run(self, collective, size, check_vma):
        def body(x):
            y = pair(x, "x", ring(size))
            number = lax.axis_index("x") % 3
            branches = [lambda y: collective(y), lambda y: collective(y * 2) + 1, lambda y: collective(y + 3)]
            return lax.switch(number, branches, y)

        x = jnp.arange(2.0 * size)
        came = np.roll(np.asarray(x).reshape(size, 2), 1, axis=0)
        numbers = np.arange(size)[:, None] % 3
        given = np.select([numbers == 0, numbers == 1], [came, came * 2], came + 3)
        return np.asarray(on_ranks(body, size, check_vma=check_vma)(x)).reshape(size, 2), given, numbers == 1

    def test_psum(self, size, check_vma):
        def psum(y):
            total = lax.psum(y, "x")
            return lax.pcast(total, "x", to="varying") if check_vma else total

        y, given, plus_one = self.run(psum, size, check_vma)
        np.testing.assert_array_equal(y, given.sum(axis=0) + plus_one)

    def test_ppermute(self, size, check_vma):
        y, given, plus_one = self.run(lambda y: lax.ppermute(y, "x", chain(size)), size, check_vma)
        came = np.concatenate([np.zeros((1, 2), given.dtype), given[:-1]])
        np.testing.assert_array_equal(y, came + plus_one)

    def test_all_gather(self, size, check_vma):
        y, given, plus_one = self.run(lambda y: lax.all_gather(y, "x").max(axis=0), size, check_vma)
        np.testing.assert_array_equal(y, given.max(axis=0) + plus_one)
