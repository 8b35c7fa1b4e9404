"""Defects of other send and receive operations that were measured, as programs of psend and precv: here they are right.

The numbers are those of the list they come from.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import site
from tests.transformations.programs import WHOLE, assert_same, on_ranks, pair, separate

EXCHANGES = pytest.mark.parametrize("exchange", [pair, separate])
CHECK_VMA = pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no-vma"])
X = jnp.arange(1.0, 4.0)


def on_three(body, check_vma=True, out_specs=WHOLE):
    return on_ranks(body, 3, check_vma, in_specs=P("x"), out_specs=out_specs)


def split(x, axis_name, perm, **options):
    """All sends, then all receives, each pair of ranks on its own."""
    for edge in perm:
        peerax.psend(x, axis_name, [edge], **options)
    token = peerax.create_token()
    return sum(peerax.precv(token, x, axis_name, [edge], **options) for edge in perm)


class TestD1TagsAreSwappedWithPeers:
    @CHECK_VMA
    def test_ring_in_which_each_rank_sends_under_its_own_number(self, check_vma):
        def loss(x):
            edges = [(rank, (rank + 1) % 3) for rank in range(3)]
            for source, destination in edges:
                peerax.psend(x * x, "x", [(source, destination)], tag=source)
            came = sum(
                peerax.precv(peerax.create_token(), x, "x", [(source, destination)], tag=source)
                for source, destination in reversed(edges)
            )
            return lax.psum((came * came * (lax.axis_index("x") + 1).astype(x.dtype)).sum(), "x")

        def dense(x):
            return (jnp.roll(x * x, 1) ** 2 * X).sum()

        for transform in (jax.value_and_grad, jax.hessian, jax.jacfwd):
            assert_same(jax.jit(transform(on_three(loss, check_vma)))(X), transform(dense)(X))

    def test_two_tags_received_in_the_other_order(self):
        def loss(x):
            peerax.psend(x, "x", [(0, 1)], tag=5)
            peerax.psend(x * x, "x", [(0, 1)], tag=-7)
            square = peerax.precv(peerax.create_token(), x, "x", [(0, 1)], tag=-7)
            plain = peerax.precv(peerax.create_token(), x, "x", [(0, 1)], tag=5)
            return lax.psum((3 * plain + 100 * square).sum(), "x")

        assert_same(jax.jit(jax.grad(on_three(loss)))(2 * X), jnp.array([403.0, 0, 0]))


class TestD2ARankThatIgnoresWhatItReceived:
    PERM = ((0, 1), (1, 0))

    @CHECK_VMA
    @pytest.mark.parametrize("exchange", [pair, separate, split])
    @pytest.mark.parametrize("how", ["where", "cond"])
    def test_swap(self, exchange, how, check_vma):
        def loss(x):
            came = exchange(x * x, "x", self.PERM)
            if how == "where":
                came = jnp.where(lax.axis_index("x") == 1, jnp.zeros_like(came), came)
            else:
                came = lax.cond(lax.axis_index("x") == 1, jnp.zeros_like, lambda c: c, came)
            return lax.psum((came * x).sum(), "x")

        def dense(x):
            return x[1] ** 2 * x[0]

        for transform in (jax.value_and_grad, jax.hessian):
            assert_same(jax.jit(transform(on_three(loss, check_vma)))(X), transform(dense)(X))


class TestD3WhatTellsTheShapeIsNoInput:
    @EXCHANGES
    @pytest.mark.parametrize("template", ["constant", "struct", "input", "numpy"])
    def test_template(self, exchange, template):
        def loss(x):
            shape = {
                "constant": jnp.full((1,), 7.0),
                "struct": jax.ShapeDtypeStruct((1,), jnp.float32),
                "input": x,
                "numpy": np.ones((1,), np.float32),
            }[template]
            token = peerax.psend(x * x, "x", [(0, 1), (1, 2)])
            token = token if exchange is pair else peerax.create_token()
            came = peerax.precv(token, shape, "x", [(0, 1), (1, 2)])
            return lax.psum((came * 5).sum(), "x")

        assert_same(jax.jit(jax.grad(on_three(loss)))(X), jnp.array([10.0, 20, 0]))


class TestD4ShapesThatDifferByDirection:
    @CHECK_VMA
    @EXCHANGES
    def test_swap(self, exchange, check_vma):
        def loss(x):
            long, short = x * jnp.ones(3), x * x
            long_came = exchange(long, "x", [(0, 1)])
            short_came = exchange(short, "x", [(1, 0)])
            return lax.psum((long_came * jnp.arange(1.0, 4.0)).sum() * 2 + short_came.sum() * 3, "x")

        assert_same(jax.jit(jax.grad(on_three(loss, check_vma)))(X), jnp.array([12.0, 12, 0]))


class TestD5TheEndsOfAnOpenChain:
    @CHECK_VMA
    @EXCHANGES
    def test_nothing_received_is_zeros_forward_and_back(self, exchange, check_vma):
        def body(x):
            came, back = jax.vjp(lambda x: exchange(x * 10, "x", [(0, 1), (1, 2)]), x)
            return came, back(came + 1)[0]

        came, x_bar = jax.jit(on_three(body, check_vma, out_specs=P("x")))(X)
        assert_same(came, jnp.array([0.0, 10, 20]))
        assert_same(x_bar, jnp.array([110.0, 210, 0]))

    def test_large_arrays(self):
        """Large enough that memory would be reused."""
        program = jax.jit(on_three(lambda x: pair(x, "x", [(0, 1)]), out_specs=P("x")))
        for _ in range(3):
            y = program(jnp.full(3 * 10**5, 7.0))
            np.testing.assert_array_equal(y.reshape(3, -1), np.array([[0.0], [7], [0]]) * np.ones(10**5))


class TestD6ReceivesThatAreTooLarge:
    def test_pair(self):
        def loss(x):
            token = peerax.psend(x * jnp.ones(2), "x", [(0, 1)])  # SEND
            came = peerax.precv(token, jax.ShapeDtypeStruct((4,), x.dtype), "x", [(0, 1)])  # RECEIVE
            return lax.psum(came.sum(), "x")

        with pytest.raises(peerax.PeeraxError) as info:
            jax.jit(jax.grad(on_three(loss)))(X)
        self.assert_names(info.value, "PX203", loss)

    def test_separate(self):
        def loss(x):
            peerax.psend(x * jnp.ones(2), "x", [(0, 1)])  # SEND
            token = peerax.create_token()
            came = peerax.precv(token, jax.ShapeDtypeStruct((4,), x.dtype), "x", [(0, 1)])  # RECEIVE
            return lax.psum(came.sum(), "x")

        for transform in (lambda f: f, jax.grad):
            with pytest.raises(jax.errors.JaxRuntimeError) as info:
                jax.jit(transform(on_three(loss)))(X)
            self.assert_names(info.value, "PX304", loss)

    @staticmethod
    def assert_names(error, code, loss):
        for part in (code, "float32[2]", "float32[4]", site(loss, "SEND"), site(loss, "RECEIVE")):
            assert part in str(error)


class TestD11ForwardModeExchangesTheTangent:
    @CHECK_VMA
    @EXCHANGES
    def test_jvp_and_hessian(self, exchange, check_vma):
        def loss(x):
            came = exchange(x * x, "x", [(0, 1), (1, 2), (2, 0)])
            return lax.psum((came * x).sum(), "x")

        f, dense = on_three(loss, check_vma), lambda x: (jnp.roll(x * x, 1) * x).sum()
        tangent = jnp.array([1.0, -2, 5])
        assert_same(
            jax.jit(lambda x: jax.jvp(f, (x,), (tangent,)))(X),
            jax.jvp(dense, (X,), (tangent,)),
        )
        for hessian in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f)), lambda f: jax.jacrev(jax.jacfwd(f))):
            assert_same(jax.jit(hessian(f))(X), hessian(dense)(X))


class TestD12OnlyOneOfTheOperandsIsBatched:
    BATCH = jnp.arange(6.0).reshape(2, 3)

    @CHECK_VMA
    @EXCHANGES
    def test_what_is_sent(self, exchange, check_vma):
        """Batched or not, outside of the shard_map."""
        f = on_ranks(
            lambda a, b: exchange(a * 2, "x", [(0, 1), (2, 0)]) + b, 3, check_vma, in_specs=P("x"), out_specs=P("x")
        )

        def expected(a, b):
            return jnp.stack([a[2], a[0], jnp.zeros_like(a[0])]) * 2 + b

        for in_axes in ((0, None), (None, 0), (0, 0)):
            args = [X if axis is None else self.BATCH for axis in in_axes]
            assert_same(jax.jit(jax.vmap(f, in_axes))(*args), jax.vmap(expected, in_axes)(*args))

    @pytest.mark.parametrize("exchange", [pair, separate])
    @pytest.mark.parametrize("sent", ["batched", "not-batched"])
    def test_inside(self, sent, exchange):
        """A vmap inside the shard_map: its batch is one message, or one message serves the whole batch."""

        def body(x):
            def f(b):
                return exchange(x * b if sent == "batched" else x, "x", [(0, 1), (2, 0)]) + b

            return jax.vmap(f)(jnp.arange(2.0))[None]

        moved = jnp.array([3.0, 1, 0])[:, None]
        b = jnp.arange(2.0)
        expected = (moved * b if sent == "batched" else moved) + b
        assert_same(jax.jit(on_three(body, out_specs=P("x")))(X)[..., 0], expected)

    @CHECK_VMA
    def test_token(self, check_vma):
        """Sent before the batch is there: the token is batched by order, after the message was sent."""

        def body(x):
            def f(b):
                token = peerax.psend(x, "x", [(0, 1), (2, 0)])
                token, b = peerax.order(token, b)
                return peerax.precv(token, x, "x", [(0, 1), (2, 0)]) + b

            return jax.vmap(f)(jnp.arange(2.0))[None]

        expected = jnp.array([3.0, 1, 0])[:, None] + jnp.arange(2.0)
        assert_same(jax.jit(on_three(body, check_vma, out_specs=P("x")))(X)[..., 0], expected)


def test_the_linear_functions_are_transposes_of_each_other():
    """<y, A x> = <A^T y, x> for the exchange along every perm of three ranks."""
    for perm in ([], [(0, 2), (2, 1)], [(2, 2), (0, 1), (1, 0)]):
        f = on_three(functools.partial(pair, axis_name="x", perm=perm), out_specs=P("x"))
        matrix = np.asarray(jax.jacfwd(f)(X))
        expected = np.zeros((3, 3))
        for source, destination in perm:
            expected[destination, source] = 1
        np.testing.assert_array_equal(matrix, expected)
        np.testing.assert_array_equal(jax.jacrev(f)(X), expected)
