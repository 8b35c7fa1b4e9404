"""Several shard_maps in one program, which the transformations make of one: each has its place among the others."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.scipy.sparse.linalg import cg
from jax.sharding import PartitionSpec as P

from tests.transformations.programs import (
    STEPS,
    assert_same,
    chain,
    loss,
    on_ranks,
    pair,
    rows,
    separate,
    weights,
)

CHECK_VMA = pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no-vma"])
COLUMNS = pytest.mark.parametrize("column", ["separate", "pipeline"])


def check(build, column, check_vma, size=4):
    """Compare what build makes of the loss; on all ranks, at the same time, many would wait for the wrong ones."""
    fs = [on_ranks(loss(step), size, check_vma) for step in STEPS[column]]
    assert_same(*(jax.jit(functools.partial(build, f))(weights(), rows(size)) for f in fs))


@COLUMNS
@CHECK_VMA
class TestIndependent:
    """Nothing that one computes is used by another."""

    def test_values(self, column, check_vma):
        check(lambda f, w, x: [f(w * k, x) for k in range(3)], column, check_vma)

    def test_gradients(self, column, check_vma):
        check(lambda f, w, x: [jax.grad(f)(w * k, x) for k in range(1, 3)], column, check_vma)

    def test_two_cotangents(self, column, check_vma):
        def both(f, w, x):
            y, back = jax.vjp(f, w, x)
            return back(y), back(y * 2)

        check(both, column, check_vma)

    def test_in_functions_of_their_own(self, column, check_vma):
        check(lambda f, w, x: [jax.jit(jax.grad(f))(w * k, x) for k in range(1, 3)], column, check_vma)


@COLUMNS
class TestInLoopsAndBranches:
    def test_scan(self, column):
        def build(f, w, x):
            def step(w, k):
                return (w - jnp.clip(jax.grad(f)(w, x), -1, 1), f(w * k, x))

            return lax.scan(step, w, jnp.arange(2.0))

        check(build, column, True)

    def test_cond(self, column):
        def build(f, w, x):
            return lax.cond(w.sum() > 100, lambda: jax.grad(f)(w, x), lambda: jax.grad(f)(w * 2, x) + f(w, x))

        check(build, column, True)

    def test_map(self, column):
        check(lambda f, w, x: lax.map(lambda k: jax.grad(f)(w * k, x), jnp.arange(1.0, 3.0)), column, True)


class TestConjugateGradients:
    """The product exchanges halos with both neighbours; the solver is JAX's, on the whole arrays."""

    @staticmethod
    def solve(exchange, check_vma, w, b):
        def product(w, v):
            back = [(d, s) for s, d in chain()]
            halo = exchange(v[-1:], "x", chain()) + exchange(v[:1], "x", back)
            edge = jnp.concatenate([v[1:2], v[:-1]]) * 0 + halo
            return v * 4 + edge * (w * w)

        matvec = on_ranks(product, 4, check_vma, out_specs=P("x"))
        x, _ = cg(lambda v: matvec(w, v), b, maxiter=6)
        return (x * x).sum()

    @CHECK_VMA
    @pytest.mark.parametrize("exchange", [pair, separate])
    @pytest.mark.parametrize("transform", [jax.grad, jax.hessian])
    def test_gradient_in_the_matrix(self, transform, exchange, check_vma):
        b = rows(4)[:, 0]
        results = [
            jax.jit(transform(lambda w, e=e: self.solve(e, check_vma, w, b)))(jnp.float32(0.5))
            for e in (exchange, lax.ppermute)
        ]
        # Rounded numbers: XLA fuses the two programs differently.
        assert jnp.allclose(*results, rtol=1e-5), results
