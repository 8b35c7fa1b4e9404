"""With check_vma, a psum sums the cotangents of weights that all ranks share. It must not be between messages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from tests import ranks
from tests.ranks import pair
from tests.transformations import programs
from tests.transformations.programs import ROWS, assert_same, bounded, chain, on_ranks, rows, weights

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


class TestInBranches:
    """JAX sums what a branch adds to the cotangent of shared weights in that branch."""

    @staticmethod
    def came(x):
        return peerax.precv(peerax.create_token(), x, "x", chain())

    @staticmethod
    def rounds(stage, x):
        """What the stages of a chain make, all ranks at once: rank r is right from its own round on."""
        y = jnp.zeros_like(x)
        for _ in range(lax.axis_size("x")):
            y = stage(lax.ppermute(y, "x", chain()))
        return y

    def compare(self, body, permuted, size, argnums=(0, 1), check_vma=True):
        """body with sums in its branches against permuted without any."""
        fs = on_ranks(body, size, check_vma), on_ranks(permuted, size, False)
        assert_same(*(jax.jit(jax.value_and_grad(f, argnums))(weights(), rows(size)) for f in fs))

    # Branches of weights, of the rank's rows and of what came. Not all ranks take the same one.
    BRANCHES = {
        "first stage only": [lambda w, x, came: bounded(x @ w), lambda w, x, came: came + 1],
        "not the first": [lambda w, x, came: x, lambda w, x, came: bounded(came @ w) - x],
        "all, in ways of their own": [
            lambda w, x, came: bounded(x @ w),
            lambda w, x, came: bounded(bounded(came @ w) @ w),
            lambda w, x, came: bounded(came * w.sum() - x),
        ],
        "jitted": [
            jax.jit(lambda w, x, came: bounded(x @ w)),
            jax.checkpoint(lambda w, x, came: bounded(came * x @ w)),
        ],
        "layers": [
            lambda w, x, came: x - came,
            lambda w, x, came: lax.scan(lambda c, k: (bounded(c @ w) + k, c @ w[:, 0]), came, jnp.arange(3.0))[0],
            lambda w, x, came: lax.scan(lambda c, row: (bounded(c * row), None), x, w)[0],
        ],
        "not linear in them": [
            jax.checkpoint(lambda w, x, came: bounded(x @ (w * w) * w[0])),
            lambda w, x, came: bounded(came @ jnp.maximum(w, w.T @ w)),
        ],
        "parts": [
            lambda w, x, came: x * w[lax.axis_index("x") % 3] + jnp.concatenate([w[:1], w[1:2]])[:, ::-1],
            lambda w, x, came: came + jnp.pad(w[:2, :2], ((0, 0), (1, 0))) - w[:2].T.reshape(2, 3),
        ],
        "elements": [
            lambda w, x, came: x * w[np.array([0, 2])] + w[np.array([2, 0]), np.array([1, 1])][:, None],
            lambda w, x, came: came + lax.dynamic_slice(w, (lax.axis_index("x") % 2, 0), (2, 3)),
        ],
        "sums of their own": [
            lambda w, x, came: bounded(jnp.cumsum(w, axis=0)[1:] + x),
            lambda w, x, came: came * jnp.convolve(w[0], w[1])[:3] + jax.jit(lambda: 1.0)(),
        ],
        "branches of branches": [
            lambda w, x, came: lax.cond(lax.axis_index("x") < 2, lambda x: x * w[0], lambda x: x, x),
            lambda w, x, came: lax.switch(
                lax.axis_index("x") % 3, [lambda c: c @ w, lambda c: -w[:2] + c, jnp.abs], came
            ),
        ],
        "columns": [lambda w, x, came: x * w[0], lambda w, x, came: bounded(came * w[1] + w[:, 2])],
    }

    @pytest.mark.parametrize("branches", BRANCHES)
    @pytest.mark.parametrize(
        ("around", "size"),
        [(jax.jit, 3), (jax.checkpoint, 4), (lambda f: f, 8)],
        ids=["jit-3", "checkpoint-4", "plain-8"],
    )
    def test_each_rank_takes_its_own(self, branches, around, size):
        branches = self.BRANCHES[branches]

        def chosen(w, x, came):
            return lax.switch(lax.axis_index("x"), branches, w, x, came)

        def body(w, x):
            y = around(chosen)(w, x, self.came(x))
            peerax.psend(y, "x", chain())
            return lax.psum((y * y).sum(), "x")

        def permuted(w, x):
            y = self.rounds(functools.partial(chosen, w, x), x)
            return lax.psum((y * y).sum(), "x")

        self.compare(body, permuted, size)

    @pytest.mark.parametrize("branches", BRANCHES)
    def test_each_rank_takes_its_own_and_all_exchange(self, branches):
        def program(exchange, w, x):
            came = exchange(bounded(x), "x", chain())
            y = lax.switch(lax.axis_index("x"), self.BRANCHES[branches], w, x, came)
            return lax.psum((y * exchange(y, "x", chain())).sum(), "x")

        self.compare(functools.partial(program, pair), functools.partial(program, lax.ppermute), 4)

    @pytest.mark.parametrize("taken", [0, 1, 2])
    @SIZES
    def test_all_take_the_same_and_communicate_in_it(self, taken, size):
        """What the sums need is kept from the branch that was taken."""

        def stages(exchange, w, x):
            def stage(x, came):
                return bounded(jnp.where(lax.axis_index("x") == 0, x, came) @ w)

            return [
                lambda x: bounded(exchange(functools.partial(stage, x), x) @ w),
                lambda x: bounded(bounded(x @ w) * w.sum()),
                lambda x: exchange(lambda came: bounded(came + x), x) + w[0],
            ]

        def program(exchange, w, x):
            index = lax.psum(x.sum() * 0, "x").astype(int) + taken
            return lax.psum((lax.switch(index, stages(exchange, w, x), x) ** 2).sum(), "x")

        def separate(stage, x):
            y = stage(self.came(x))
            peerax.psend(y, "x", chain())
            return y

        self.compare(functools.partial(program, separate), functools.partial(program, self.rounds), size)

    @pytest.mark.parametrize("loop", ["scan", "while", "jitted scan"])
    def test_training_in_a_loop(self, loop):
        """What a step sends depends on the sum of the step before."""

        def program(exchange, total, w, x):
            def loss(w):
                came = exchange(bounded(x @ w), "x", chain())
                first = lax.axis_index("x") == 0
                y = lax.cond(first, lambda came: bounded(x @ w), lambda came: bounded(came * w[0]) - x, came)
                return (y * y).sum()

            def step(w):
                return w - jnp.round(total(jax.grad(loss)(w)) / 8)

            if loop == "while":
                return lax.fori_loop(0, lax.psum(1, "x"), lambda _, w: step(w), w)
            steps = jax.jit(lambda w: lax.scan(lambda w, _: (step(w), None), w, None, length=3)[0])
            return (steps if loop == "jitted scan" else steps.__wrapped__)(w)

        f = on_ranks(functools.partial(program, pair, lambda slope: slope), 3, True)
        permuted = on_ranks(functools.partial(program, lax.ppermute, lambda slope: lax.psum(slope, "x")), 3, False)
        assert_same(*(jax.jit(g)(weights(), rows(3)) for g in (f, permuted)))

    def test_what_is_not_linear_stays(self):
        """Ten times what is out of range would be ten times as much, were it summed over ranks."""

        def program(exchange, w, x):
            def slope(x):
                total = jax.grad(lambda w: (bounded(x @ w) ** 2).sum())(w)
                return jnp.take(total[0], jnp.array([0, 9]), mode="fill", fill_value=10)

            taken = lax.psum(x.sum() * 0, "x") == 0
            return lax.cond(taken, slope, lambda x: jnp.zeros(2), exchange(x, "x", chain())).sum()

        def dense(w, x):
            came = jnp.concatenate([jnp.zeros_like(x[:ROWS]), x[:-ROWS]])
            return jax.grad(lambda w: (bounded(came @ w) ** 2).sum())(w)[0, 0] + 10

        f = on_ranks(functools.partial(program, programs.separate), 4, True)
        np.testing.assert_allclose(jax.jit(f)(weights(), rows(4)), dense(weights(), rows(4)))

    @pytest.mark.parametrize("along", ["x", "y", "both"])
    def test_weights_that_ranks_share_along_different_axes(self, along):
        """Stages along x and shards of the data along y: weights that all share, and weights of a stage or a shard."""
        mesh = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("x", "y"))

        def program(exchange, w, x):
            came = exchange(bounded(x), "x", ranks.chain(3))
            index = {"x": lax.axis_index("x"), "y": lax.axis_index("y")}
            chosen = index["x"] + index["y"] if along == "both" else index[along]
            branches = [
                lambda came: bounded(came @ w["all"]) * w["stage"],
                lambda came: came + w["shard"] * w["all"][0],
                lambda came: x * w["stage"] + w["all"].sum(),
            ]
            y = lax.switch(chosen, branches, came)
            return lax.psum((y * exchange(y, "x", ranks.chain(3))).sum(), ("x", "y"))

        w = {"all": weights(), "stage": jnp.array([[1.0], [2.0], [-1.0]]), "shard": jnp.array([[2.0], [1.0]])}
        specs = {"all": P(), "stage": P("x"), "shard": P("y")}, P(("x", "y"))
        fs = [
            jax.shard_map(functools.partial(program, exchange), mesh=mesh, in_specs=specs, out_specs=P(), check_vma=vma)
            for exchange, vma in ((programs.separate, True), (pair, True), (lax.ppermute, False))
        ]
        *actual, expected = (jax.jit(jax.value_and_grad(f, (0, 1)))(w, rows(6)) for f in fs)
        for each in actual:
            assert_same(each, expected)

    def test_all_take_the_same_and_need_the_sum_in_it(self):
        def program(exchange, w, x):
            def slope(x):
                return jax.grad(lambda w: (bounded(x @ w) ** 2).sum())(w)[0] * x

            index = lax.psum(x.sum() * 0, "x").astype(int)
            y = x + lax.switch(index, [slope, jnp.zeros_like], exchange(x, "x", chain()))
            return lax.psum((y * y).sum(), "x")

        def dense(w, x):
            came = jnp.concatenate([jnp.zeros_like(x[:ROWS]), x[:-ROWS]])
            y = x + jax.grad(lambda w: (bounded(came @ w) ** 2).sum())(w)[0] * came
            return (y * y).sum()

        f = on_ranks(functools.partial(program, pair), 4, True)
        assert_same(*(jax.jit(jax.value_and_grad(g, (0, 1)))(weights(), rows(4)) for g in (f, dense)))

    @SIZES
    def test_in_the_steps_of_a_loop(self, size):
        def program(exchange, w, x):
            def tick(total, k):
                def stage(came):
                    first = lax.axis_index("x") == 0
                    return lax.cond(first, lambda c: bounded(x * k @ w), lambda c: bounded(c @ w) + w[0], came)

                y = exchange(stage, x)
                return total + y, y[0, 0] * w.sum()

            total, ys = lax.scan(tick, x, jnp.arange(1.0, 4.0))
            return lax.psum((total * total).sum() + ys.sum(), "x")

        def separate(stage, x):
            y = stage(self.came(x))
            peerax.psend(y, "x", chain())
            return y

        self.compare(functools.partial(program, separate), functools.partial(program, self.rounds), size)

    @pytest.mark.parametrize("then", [lambda total: total, jnp.square], ids=["linear", "squared"])
    def test_what_each_rank_needs_of_its_own_sum_is_an_error(self, then):
        """JAX's sum is of the branch's own making; the branch needs it."""

        def body(w, x):
            def slope(came):
                return then(jax.grad(lambda w: (bounded(came @ w) ** 2).sum())(w)[0]) * x

            y = x + lax.cond(lax.axis_index("x") == 0, jnp.zeros_like, slope, self.came(x))
            peerax.psend(y, "x", chain())
            return lax.psum((y * y).sum(), "x")

        with pytest.raises(jax.errors.JaxRuntimeError, match="PX302|PX209"):
            jax.block_until_ready(jax.jit(on_ranks(body, 4, True))(weights(), rows(4)))


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
