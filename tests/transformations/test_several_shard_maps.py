"""Several shard_maps in one program, which the transformations make of one: each has its place among the others."""

import functools
import re

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


class TestWhatIsPassedOn:
    """How many values go through the end of each shard_map, in order; the handle is one of them."""

    @staticmethod
    def passed_on(f, *args):
        calls = re.findall(r"@peerax_end\((.*?)\)", jax.jit(f).lower(*args).as_text())
        return [call.count("%") for call in calls]

    def test_what_a_backward_pass_needs_only_if_it_depends_on_the_last_operation(self):
        def forward(w, x):
            y = pair(jnp.tanh(x @ w), "x", chain())
            return (pair(y * y, "x", chain()) ** 2).sum()

        def summed(w, x):
            return lax.psum(forward(w, x), "x")

        one, none = on_ranks(lambda w, x: forward(w, x)[None], 3, True, out_specs=P("x")), on_ranks(summed, 3, True)
        # The handle and the value; and what came last. If a sum is behind it, that is there in any case.
        value_and_grads = [jax.value_and_grad(f) for f in (lambda w, x: one(w, x).sum(), none)]
        assert [self.passed_on(f, weights(), rows(3))[0] for f in value_and_grads] == [3, 2]

    def test_what_depends_on_the_last_operation_and_what_others_use(self):
        step = on_ranks(lambda x: (pair(x, "x", chain()), x * 2), 3, True, in_specs=P("x"), out_specs=P("x"))

        def program(x):
            came, doubled = step(x)
            again, fourfold = step(came + doubled)
            return step(fourfold)[0] + again

        # The sum and the result are used outside of them; fourfold is there before its shard_map's exchange.
        assert self.passed_on(program, rows(3)) == [3, 2, 2]


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
