"""With check_vma, a psum sums the cotangents of weights that all ranks share. It must not be between messages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import peerax
from tests.transformations.programs import assert_same, bounded, chain, on_ranks, rows, weights

CHECK_VMA = pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no-vma"])
SIZES = pytest.mark.parametrize("size", [3, 4, 8])


class TestNotInTheWay:
    @CHECK_VMA
    @SIZES
    def test_receive_before_send(self, size, check_vma):
        def body(w, x):
            came = peerax.precv(peerax.create_token(), x, "x", chain())
            peerax.psend(bounded(x @ w), "x", chain())
            return lax.psum((came * came).sum(), "x")

        def permuted(w, x):
            return lax.psum((lax.ppermute(bounded(x @ w), "x", chain()) ** 2).sum(), "x")

        fs = [on_ranks(f, size, check_vma) for f in (body, permuted)]
        assert_same(*(jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(weights(), rows(size)) for f in fs))

    @CHECK_VMA
    def test_send_only_where_weights_are_used(self, check_vma):
        def body(w, x):
            came = peerax.precv(peerax.create_token(), x, "x", chain())
            peerax.psend(jnp.where(lax.axis_index("x") == 0, x, came) @ w, "x", chain())
            return lax.psum((came * came).sum(), "x")

        def permuted(w, x):
            came = jnp.zeros_like(x)
            for _ in range(3):
                came = lax.ppermute(jnp.where(lax.axis_index("x") == 0, x, came) @ w, "x", chain())
            return lax.psum((came * came).sum(), "x")

        fs = [on_ranks(f, 4, check_vma) for f in (body, permuted)]
        assert_same(*(jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(weights(), rows(4)) for f in fs))

    STAGES = {
        "plain": lambda w, x: bounded(x @ w),
        "jit": jax.jit(lambda w, x: bounded(x @ w)),
        "checkpoint": jax.checkpoint(lambda w, x: bounded(jnp.sin(x @ w))),
        "layers": lambda w, x: lax.scan(lambda x, k: (bounded(x @ w * k), None), x, jnp.arange(1.0, 3.0))[0],
        "layers-in-jit": jax.jit(lambda w, x: lax.scan(lambda x, _: (bounded(x @ w), None), x, None, length=2)[0]),
        "checkpoint-in-jit": jax.jit(jax.checkpoint(lambda w, x: bounded(jnp.cos(x @ w)))),
        "closure": lambda w, x: jax.jit(lambda x: bounded(x @ w))(x),
    }

    @CHECK_VMA
    @pytest.mark.parametrize("stage", STAGES)
    def test_stages_in_a_loop(self, stage, check_vma):
        """Each step receives, computes with weights that all ranks share, and sends."""
        stage = self.STAGES[stage]

        def body(exchange, w, x):
            def tick(total, k):
                came = exchange(None, x)
                y = stage(w, jnp.where(lax.axis_index("x") == 0, x * k, came))
                exchange(y, None)
                return total + y, y[0, 0] * w.sum()

            total, ys = lax.scan(tick, x, jnp.arange(1.0, 4.0))
            return lax.psum((total * total).sum() + ys.sum(), "x")

        def separate(y, x):
            if x is None:
                return peerax.psend(y, "x", chain())
            return peerax.precv(peerax.create_token(), x, "x", chain())

        def permuted(w, x):
            """All ranks at once, one after another: rank r is right from its own round on."""

            def tick(total, k):
                came = jnp.zeros_like(x)
                for _ in range(4):
                    y = stage(w, jnp.where(lax.axis_index("x") == 0, x * k, came))
                    came = lax.ppermute(y, "x", chain())
                return total + y, y[0, 0] * w.sum()

            total, ys = lax.scan(tick, x, jnp.arange(1.0, 4.0))
            return lax.psum((total * total).sum() + ys.sum(), "x")

        fs = [on_ranks(f, 4, check_vma) for f in (functools.partial(body, separate), permuted)]
        for argnums in (0, (0, 1)):
            actual, expected = (jax.jit(jax.value_and_grad(f, argnums))(weights() / 4, rows(4) / 2) for f in fs)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), actual, expected)

    @pytest.mark.xfail(strict=True, raises=jax.errors.JaxRuntimeError, reason="sums in a branch stay in it")
    def test_in_a_branch(self):
        def body(exchange, w, x):
            def stage(x):
                y = bounded(exchange(None, x) @ w)
                exchange(y, None)
                return y @ w

            return lax.psum(lax.cond(lax.psum(x.sum(), "x") > -100, stage, lambda x: x, x).sum(), "x")

        jax.block_until_ready(jax.grad(on_ranks(functools.partial(body, separate), 4, True))(weights(), rows(4)))


def separate(y, x):
    """Send y, or receive something like x."""
    if x is None:
        return peerax.psend(y, "x", chain())
    return peerax.precv(peerax.create_token(), x, "x", chain())


class TestWhereTheyAreNeeded:
    """Equal with and without check_vma: what is put off changes no value, and no pair."""

    def test_the_gradient_goes_into_a_message(self):
        """Two steps of an optimizer in one body: the sum of the first is needed by what the second sends."""

        def step(c, w, x):
            separate(c @ w, None)
            return bounded(separate(None, x) @ w + x)

        def loss(w, x):
            f = jax.jit(lambda c: lax.scan(lambda c, _: (step(c, w, x), None), c, None, length=2)[0])
            return (f(x) ** 2).sum()

        def body(w, x):
            w = w - 0.1 * jax.grad(loss)(w, x)
            return jax.grad(loss)(w, x)

        def summed(w, x):
            w = w - 0.1 * lax.psum(jax.grad(loss)(w, x), "x")
            return lax.psum(jax.grad(loss)(w, x), "x")

        w, x = weights() / 4, rows(4) / 2
        np.testing.assert_allclose(
            on_ranks(body, 4, True)(w, x), on_ranks(summed, 4, False)(w, x), rtol=1e-4, atol=1e-5
        )

    @CHECK_VMA
    def test_a_psum_of_the_user_in_a_jitted_scan_is_sent(self, check_vma):
        def body(w, x):
            sums = jax.jit(lambda x: lax.scan(lambda c, _: (c, lax.psum(x, "x")), x, None, length=3)[1])(x)
            separate(sums.sum(0) * x, None)
            return lax.psum(separate(None, x), "x")

        def permuted(w, x):
            return lax.psum(lax.ppermute(3 * lax.psum(x, "x") * x, "x", chain()), "x")

        assert_same(*(on_ranks(f, 4, check_vma)(weights(), rows(4)) for f in (body, permuted)))

    @CHECK_VMA
    def test_a_scan_that_sends_an_earlier_sum(self, check_vma):
        def body(w, x):
            shared = lax.psum(x, "x")

            def step(c, _):
                separate(x * shared, None)
                return c, lax.psum(x * 2, "x")

            sums = lax.scan(step, x, None, length=1)[1]
            return lax.psum(separate(None, x) + sums.sum(0), "x")

        def permuted(w, x):
            shared = lax.psum(x, "x")
            return lax.psum(lax.ppermute(x * shared, "x", chain()) + 2 * shared, "x")

        assert_same(*(on_ranks(f, 4, check_vma)(weights(), rows(4)) for f in (body, permuted)))

    @CHECK_VMA
    def test_a_token_of_another_scope_makes_no_pair(self, check_vma):
        """Also where a call is inlined since it has a sum inside."""

        def loss(w, x):
            separate(10 * x @ w, None)
            token = peerax.psend(x @ w, "x", chain())

            @jax.jit
            def inner(token, x):
                return peerax.precv(token, x, "x", chain()) @ w  # meets the first of the two

            first = inner(token, x)
            return ((first + 1000 * separate(None, x)) ** 2).sum()

        def permuted(w, x):
            first = lax.ppermute(10 * x @ w, "x", chain()) @ w
            return ((first + 1000 * lax.ppermute(x @ w, "x", chain())) ** 2).sum()

        def gradient(f):
            def body(w, x):
                slope = jax.grad(f)(w, x)
                return slope if check_vma else lax.psum(slope, "x")

            return on_ranks(body, 4, check_vma)

        np.testing.assert_allclose(*(gradient(f)(weights(), rows(4)) for f in (loss, permuted)), rtol=1e-5)
