"""What comes back: cotangents against a reference on one device, zeros that must travel, and how many messages do."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from peerax import runtime
from tests.transformations.programs import (
    assert_same,
    bounded,
    chain,
    on_ranks,
    pair,
    ring,
    rows,
    separate,
    varying,
    weights,
)

EXCHANGES = pytest.mark.parametrize("exchange", [pair, separate])
CHECK_VMA = pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no-vma"])
SIZES = pytest.mark.parametrize("size", [3, 4, 8])


def messages(f, *args):
    """Return how many messages a compiled program sends."""
    f = jax.jit(f).lower(*args).compile()
    before = runtime.statistics()["messages"]
    jax.block_until_ready(f(*args))
    return runtime.statistics()["messages"] - before


class TestConvention:
    """The gradient of the whole program is that of the whole arrays, whoever holds them."""

    @staticmethod
    def dense(size, perm, w, x):
        y = bounded(x @ w).reshape(size, -1)
        came = jnp.zeros_like(y)
        for source, destination in perm:
            came = came.at[destination].set(y[source])
        ranks = jnp.arange(1.0, size + 1)[:, None]
        return (came * came * ranks + came * x.reshape(size, -1)).sum() + (w * w).sum() * size

    @staticmethod
    def body(exchange, perm, w, x):
        came = exchange(bounded(x @ w), "x", perm)
        rank = (lax.axis_index("x") + 1).astype(x.dtype)
        return lax.psum((came * came * rank + came * x).sum() + (w * w).sum(), "x")

    @CHECK_VMA
    @EXCHANGES
    @SIZES
    def test_outside(self, size, exchange, check_vma):
        perm = [(0, 1), (1, 2)] if size % 2 else [(2, 0), (1, 1)]
        f = on_ranks(functools.partial(self.body, exchange, perm), size, check_vma)
        actual = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(weights(), rows(size))
        dense = jax.value_and_grad(functools.partial(self.dense, size, perm), argnums=(0, 1))
        assert_same(actual, dense(weights(), rows(size)))

    @EXCHANGES
    @SIZES
    def test_inside_for_what_varies(self, size, exchange):
        """The gradient of the rank's own loss gets what other ranks' losses depend on: it is that of their sum."""

        def loss(w, x):
            came = exchange(bounded(x @ w), "x", chain())
            return (came * came * (lax.axis_index("x") + 1).astype(x.dtype) + came * x).sum()

        def body(w, x):
            w_bar, x_bar = jax.grad(loss, argnums=(0, 1))(w, x)
            return w_bar[None], x_bar

        perm = [(i, i + 1) for i in range(size - 1)]
        dense = jax.grad(lambda w, x: self.dense(size, perm, w, x) - (w * w).sum() * size, argnums=(0, 1))
        expected = dense(weights(), rows(size))
        run = on_ranks(lambda w, x: body(varying(w), x), size, True, out_specs=P("x"))
        w_bars, x_bar = jax.jit(run)(weights(), rows(size))
        assert_same((w_bars.sum(0), x_bar), expected)

    @EXCHANGES
    def test_inside_for_what_is_replicated(self, exchange):
        """With check_vma the gradient in a replicated value is the sum over ranks; without, each rank has its part."""

        def loss(w, x):
            came = exchange(bounded(x @ w), "x", chain())
            return (came * came * (lax.axis_index("x") + 1).astype(x.dtype) + came * x).sum()

        perm = [(0, 1), (1, 2), (2, 3)]
        expected = jax.grad(lambda w, x: self.dense(4, perm, w, x) - (w * w).sum() * 4)(weights(), rows(4))
        same = on_ranks(jax.grad(loss), 4, True)
        assert_same(jax.jit(same)(weights(), rows(4)), expected)
        parts = on_ranks(lambda w, x: jax.grad(loss)(w, x)[None], 4, False, out_specs=P("x"))
        assert_same(jax.jit(parts)(weights(), rows(4)).sum(0), expected)


class TestZeroCotangents:
    """What a rank does not use still comes back, as zeros, or nobody waits for it."""

    def check(self, ours, permuted, size=4):
        for check_vma in (True, False):
            fs = [on_ranks(body, size, check_vma) for body in (ours, permuted)]
            transform = jax.hessian if check_vma else jax.value_and_grad
            assert_same(*(jax.jit(transform(f))(weights(), rows(size)) for f in fs))

    @EXCHANGES
    def test_receive_whose_result_is_not_used(self, exchange):
        def body(exchange, w, x):
            exchange(bounded(x @ w), "x", chain())
            return lax.psum((x @ w).sum() ** 2, "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    @EXCHANGES
    def test_result_that_one_rank_selects_away(self, exchange):
        def body(exchange, w, x):
            came = exchange(x @ w, "x", chain())
            return lax.psum((jnp.where(lax.axis_index("x") == 1, 0, came) ** 2).sum(), "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    @EXCHANGES
    def test_result_that_is_used_in_one_branch(self, exchange):
        def body(exchange, w, x):
            came = exchange(x @ w, "x", chain())
            y = lax.cond(lax.axis_index("x") == 1, lambda c: c * c, lambda c: x * 2, came)
            return lax.psum(y.sum(), "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    @EXCHANGES
    def test_result_that_is_not_differentiated(self, exchange):
        def body(exchange, w, x):
            came = lax.stop_gradient(exchange(x @ w, "x", chain()))
            return lax.psum((came * (x @ w)).sum(), "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    @EXCHANGES
    def test_sent_value_that_is_not_differentiated(self, exchange):
        def body(exchange, w, x):
            came = exchange(lax.stop_gradient(x @ w), "x", chain())
            return lax.psum((came * (x @ w)).sum(), "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    @EXCHANGES
    def test_constant_that_is_sent(self, exchange):
        def body(exchange, w, x):
            came = exchange(varying(jnp.ones((3,))), "x", chain())
            return lax.psum((came * w * x[0]).sum() ** 2, "x")

        self.check(functools.partial(body, exchange), functools.partial(body, lax.ppermute))

    def test_send_that_is_received_by_one_of_two(self):
        """Two sends on one channel; what came first is not used."""

        def body(w, x):
            peerax.psend(x @ w, "x", chain())
            peerax.psend(x * w[0], "x", chain())
            peerax.precv(peerax.create_token(), x, "x", chain())
            second = peerax.precv(peerax.create_token(), x, "x", chain())
            return lax.psum((second * second).sum(), "x")

        def permuted(w, x):
            return lax.psum((lax.ppermute(x * w[0], "x", chain()) ** 2).sum(), "x")

        self.check(body, permuted)

    @pytest.mark.parametrize("order", [*itertools.permutations(range(3)), (2, 2, 2), (1, 2, 1), (0, 2, 2)])
    def test_receives_of_a_chain_of_tokens_by_other_tokens(self, order):
        """Whatever is right for the values is right for their cotangents."""

        def body(w, x):
            tokens = []
            for factor in (1, 10, 100):
                last = tokens[-1] if tokens else None
                tokens.append(peerax.psend(x * factor, "x", ring(), token=last))
            came = [peerax.precv(tokens[i], x, "x", ring()) for i in order]
            return sum(y * (i + 2) for i, y in enumerate(came))

        forward = functools.partial(on_ranks(body, 3, True, out_specs=P("x")), weights())
        forward_mode = jax.jit(jax.jacfwd(forward))(rows(3))
        assert_same(jnp.tensordot(forward_mode, rows(3)), jax.jit(forward)(rows(3)))
        assert_same(jax.jit(jax.jacrev(forward))(rows(3)), forward_mode)


class TestSeveralAxes:
    """What comes along one axis differs along the others too, if it did where it was sent."""

    @staticmethod
    def run(body, check_vma, names=("data", "stage")):
        mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), names)
        whole = P(names)
        return jax.shard_map(body, mesh=mesh, in_specs=(P(), whole), out_specs=P(), check_vma=check_vma)

    @CHECK_VMA
    @EXCHANGES
    def test_along_one(self, exchange, check_vma):
        def body(exchange, w, x):
            y = exchange(x @ w, "stage", [(0, 1)])
            y = exchange(y + x, "data", [(0, 1), (1, 0)])
            return lax.psum((y * x).sum(), ("data", "stage"))

        fs = [self.run(functools.partial(body, e), check_vma) for e in (exchange, lax.ppermute)]
        assert_same(*(jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(weights(), rows(4)) for f in fs))

    @CHECK_VMA
    @EXCHANGES
    def test_along_both(self, exchange, check_vma):
        def body(exchange, w, x):
            y = exchange(x @ w, ("data", "stage"), [(0, 3), (3, 1)])
            return lax.psum((y * y * x).sum(), ("data", "stage"))

        fs = [self.run(functools.partial(body, e), check_vma) for e in (exchange, lax.ppermute)]
        assert_same(*(jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(weights(), rows(4)) for f in fs))

    def test_what_differs_along_data_cannot_leave_as_replicated(self):
        def body(w, x):
            return separate(x.sum(), "stage", [(0, 1)])[None]

        mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "stage"))
        program = jax.shard_map(body, mesh=mesh, in_specs=(P(), P(("data", "stage"))), out_specs=P("stage"))
        with pytest.raises(ValueError, match="out_specs"):
            jax.jit(program).lower(weights(), rows(4))


class TestTraffic:
    """Messages are those of the program and their cotangents, no more."""

    @EXCHANGES
    def test_ints_and_keys_have_no_cotangents(self, exchange):
        def body(w, x):
            sent = {"n": jnp.arange(3), "x": x @ w, "key": jax.random.key(0), "b": x > 0, "w": varying(w) * 2}
            came = exchange(sent, "x", chain())
            return lax.psum((came["x"] @ came["w"] * came["n"].astype(x.dtype)).sum(), "x")

        f = on_ranks(body, 4, False)
        forward = messages(f, weights(), rows(4))
        assert forward == 3 * 5
        assert messages(jax.grad(f), weights(), rows(4)) == forward + 3 * 2
        assert messages(lambda w, x: jax.jvp(f, (w, x), (w, x)), weights(), rows(4)) == forward + 3 * 2

    @EXCHANGES
    def test_only_ints(self, exchange):
        def body(w, x):
            came = exchange(lax.axis_index("x") + 1, "x", ring())
            return lax.psum((x @ w * came.astype(x.dtype)).sum(), "x")

        f = on_ranks(body, 4, True)
        assert messages(jax.grad(f), weights(), rows(4)) == messages(f, weights(), rows(4)) == 4

    def test_a_batch_is_one_message(self):
        f = jax.vmap(on_ranks(lambda w, x: lax.psum(pair(x @ w, "x", ring()).sum(), "x"), 4, True), in_axes=(0, None))
        batch = jnp.stack([weights()] * 7)
        assert messages(f, batch, rows(4)) == 4
        assert messages(jax.vmap(jax.grad(lambda w: f(w[None], rows(4)).sum())), batch) == 8
