"""Pairs over an axis of vmap equal the same program under shard_map; anything else there is PX107 with its line."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import site
from tests.transformations.programs import assert_same, on_ranks, pair

X = jnp.arange(12.0).reshape(4, 3)
PERMS = {
    "ring": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "chain": [(0, 1), (1, 2), (2, 3)],
    "odd": [(3, 1), (2, 2)],
    "swap": [(1, 0), (0, 1)],
    "empty": [],
}


def shift(perm):
    return lambda x: pair(x * x, "x", perm) * x


def under_shard_map(f):
    return on_ranks(lambda x: f(x[0])[None], 4, True, in_specs=P("x"), out_specs=P("x"))


@pytest.mark.parametrize("perm", PERMS.values(), ids=PERMS)
class TestPairs:
    def test_values(self, perm):
        f = shift(perm)
        assert_same(jax.vmap(f, axis_name="x")(X), jax.jit(under_shard_map(f))(X))
        assert_same(jax.jit(jax.vmap(f, axis_name="x"))(X), jax.jit(under_shard_map(f))(X))

    def test_along_the_last_axis(self, perm):
        f = shift(perm)
        y = jax.vmap(f, in_axes=1, out_axes=1, axis_name="x")(X.T)
        assert_same(y.T, jax.jit(under_shard_map(f))(X))

    def test_gradient_outside(self, perm):
        f = shift(perm)

        def total(g):
            return jax.grad(lambda x: (g(x) * X).sum())

        assert_same(total(jax.vmap(f, axis_name="x"))(X), jax.jit(total(under_shard_map(f)))(X))

    @pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.hessian])
    def test_gradient_inside(self, perm, transform):
        g = transform(lambda x: shift(perm)(x).sum())
        assert_same(jax.vmap(g, axis_name="x")(X), jax.jit(under_shard_map(g))(X))

    def test_nested_jit_and_scan(self, perm):
        def f(x):
            return lax.scan(lambda c, _: (jax.jit(shift(perm))(c) + x, None), x, None, length=2)[0]

        assert_same(jax.vmap(f, axis_name="x")(X % 3), jax.jit(under_shard_map(f))(X % 3))

    def test_with_another_batch(self, perm):
        f = shift(perm)
        batch = jnp.stack([X, X + 1])
        expected = jnp.stack([jax.jit(under_shard_map(f))(x) for x in batch])
        assert_same(jax.vmap(jax.vmap(f, axis_name="x"))(batch), expected)
        assert_same(jax.vmap(jax.vmap(f), in_axes=1, out_axes=1, axis_name="x")(batch), expected)

    def test_order(self, perm):
        def f(x):
            token, y = peerax.order(peerax.psend(x, "x", perm), x * 2)
            return peerax.precv(token, x, "x", perm) + y

        assert_same(jax.vmap(f, axis_name="x")(X), jax.jit(under_shard_map(f))(X))


class TestRefused:
    def assert_names(self, program, function, *args):
        for run in (program, jax.jit(program)):
            with pytest.raises(peerax.PeeraxError) as info:
                run(*args)
            assert info.value.code == "PX107"
            assert site(function, "HERE") in str(info.value)

    def test_separate_receive(self):
        def f(x):
            peerax.psend(x, "x", [(0, 1)])
            return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])  # HERE

        self.assert_names(jax.vmap(f, axis_name="x"), f, X)

    def test_receive_with_another_tag(self):
        def f(x):
            token = peerax.psend(x, "x", [(0, 1)], tag=1)
            return peerax.precv(token, x, "x", [(0, 1)], tag=2)  # HERE

        self.assert_names(jax.vmap(f, axis_name="x"), f, X)

    def test_axis_of_vmap_together_with_one_of_a_mesh(self):
        def f(x):
            return peerax.psend(x, ("v", "x"), [(0, 1)])  # HERE

        program = on_ranks(jax.vmap(f, axis_name="v"), 4, False, in_specs=P(None, "x"), out_specs=P(None, "x"))
        self.assert_names(program, f, jnp.ones((2, 4)))

    def test_nothing_is_batched(self):
        """The axis has a size, but x is the same along it."""

        def f(_):
            return pair(jnp.float32(2), "x", [(0, 1)])

        assert_same(jax.vmap(f, axis_name="x")(X), jnp.array([0.0, 2, 0, 0]))
