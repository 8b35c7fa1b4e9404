"""A jitted receive has no operand at all; whatever is around it must enter it all the same, in every transformation."""

import functools
import gc
import pathlib
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import line, pair, site

RIGHT, LEFT = [(0, 1), (1, 2)], [(1, 0), (2, 1)]
X = jnp.arange(1.0, 4.0)


@jax.jit
def receive():
    return peerax.precv(peerax.create_token(), jax.ShapeDtypeStruct((1,), jnp.float32), "x", RIGHT)


def separate(v):
    peerax.psend(jnp.sin(v), "x", RIGHT)
    return receive() * v


def permuted(v):
    return lax.ppermute(jnp.sin(v), "x", RIGHT) * v


AROUND = {
    "jit": jax.jit,
    "scan": lambda step: lambda v: lax.scan(lambda c, _: (step(c), None), v, None, length=2)[0],
    "fori": lambda step: lambda v: lax.fori_loop(0, 2, lambda i, c: step(c), v),
    "cond": lambda step: lambda v: lax.cond(lax.axis_index("x") > -1, step, lambda v: v, v),
    "checkpoint": jax.checkpoint,
    "checkpointed-scan": lambda step: jax.checkpoint(
        lambda v: lax.scan(lambda c, _: (step(c), None), v, None, length=2)[0]
    ),
}
TRANSFORMS = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x + 1,))[1],
    "jacfwd": jax.jacfwd,
    "hessian": jax.hessian,
    "jacfwd-of-jacfwd": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "grad-of-jvp": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x + 1,))[1]),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x + 1])),
    "vmap-of-grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x + 1])),
    "vmap-of-jvp": lambda f: lambda x: jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1])(jnp.stack([x, x + 1])),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_around_the_shard_map(around, transform):
    def program(step):
        def body(x):
            return lax.psum((AROUND[around](step)(x) ** 2).sum(), "x")

        return jax.jit(TRANSFORMS[transform](jax.shard_map(body, mesh=line(3), in_specs=P("x"), out_specs=P())))

    actual, expected = (program(step)(X) for step in (separate, permuted))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("order", ["inside first", "around first"])
def test_batched_inside_and_around(around, order):
    """What JAX keeps of one must not be used for the other."""

    def run(step, inside):
        f = AROUND[around](step)
        if inside:
            program = jax.shard_map(jax.vmap(f), mesh=line(3), in_specs=P(None, "x"), out_specs=P(None, "x"))
        else:
            program = jax.vmap(jax.shard_map(f, mesh=line(3), in_specs=P("x"), out_specs=P("x")))
        return jax.jit(program)(jnp.stack([X, X + 1]))

    jax.clear_caches()
    for inside in (True, False) if order == "inside first" else (False, True):
        np.testing.assert_allclose(*(run(step, inside) for step in (separate, permuted)), rtol=1e-6)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_linear_transpose(around, inside):
    def double(exchange, v):
        return 2 * exchange(3 * v) + v

    def send_and_receive(v):
        peerax.psend(v, "x", RIGHT)
        return receive()

    def program(exchange):
        f = AROUND[around](functools.partial(double, exchange))
        options = {"mesh": line(3), "out_specs": P("x")}
        if inside:
            both = (P("x"), P("x"))
            return jax.shard_map(lambda x, t: jax.linear_transpose(f, x)(t)[0], in_specs=both, **options)
        mapped = jax.shard_map(f, in_specs=P("x"), **options)
        return lambda x, t: jax.linear_transpose(mapped, x)(t)[0]

    def move(v):
        return lax.ppermute(v, "x", RIGHT)

    np.testing.assert_allclose(*(jax.jit(program(step))(X, X + 1) for step in (send_and_receive, move)))


class TestRuleOfTheUser:
    """Both ends of messages of tangents, in the rule of a custom_jvp."""

    @staticmethod
    def send(x, tag=0):
        peerax.psend(x, "x", RIGHT, tag=tag)

    @staticmethod
    def receive(v, tag=0):
        return peerax.precv(peerax.create_token(), v, "x", RIGHT, tag=tag)

    def tangent(self, v, t):
        self.send(t * jnp.cos(v))
        return jnp.sin(v), self.receive(v)

    def ordered(self, v, t):
        self.send(t * jnp.cos(v))
        token, _ = peerax.order(peerax.create_token(), t)
        return jnp.sin(v), peerax.precv(token, v, "x", RIGHT)

    def value_and_tangent(self, v, t):
        self.send(jnp.sin(v))
        self.send(t * jnp.cos(v))
        return self.receive(v), self.receive(v)

    def tangent_and_value(self, v, t):
        self.send(t * jnp.cos(v))
        self.send(jnp.sin(v))
        tangent = self.receive(v)
        return self.receive(v), tangent

    def in_turn(self, v, t):
        self.send(jnp.sin(v))
        value = self.receive(v)
        self.send(t * jnp.cos(v))
        return value, self.receive(v)

    def value_received_first(self, v, t):
        value = self.receive(v, 1)
        self.send(t * jnp.cos(v))
        tangent = self.receive(v)
        self.send(jnp.sin(v), 1)
        return value, tangent

    def two_tangents(self, v, t):
        self.send(t * jnp.cos(v))
        self.send(t * v, 1)
        return jnp.sin(v), self.receive(v, 1) * v + self.receive(v)

    def beside_a_pair(self, v, t):
        token = peerax.psend(t * jnp.cos(v), "x", RIGHT)
        self.send(jnp.sin(v))
        tangent = peerax.precv(token, v, "x", RIGHT)
        return self.receive(v), tangent

    def pairs(self, v, t):
        return pair(jnp.sin(v), "x", RIGHT), pair(t * jnp.cos(v), "x", RIGHT)

    def crossed_pairs(self, v, t):
        first, second = (peerax.psend(x, "x", RIGHT) for x in (t * jnp.cos(v), jnp.sin(v)))
        return peerax.precv(second, v, "x", RIGHT), peerax.precv(first, v, "x", RIGHT)

    def in_a_call(self, v, t):
        return jax.jit(self.tangent)(v, t)

    def from_the_left_and_the_right(self, v, t):
        """What goes left is a tangent, what goes right a value."""
        peerax.psend(t * jnp.cos(v), "x", LEFT)
        peerax.psend(jnp.sin(v), "x", RIGHT)
        new = peerax.create_token
        return peerax.precv(new(), v, "x", RIGHT), peerax.precv(new(), v, "x", LEFT)

    RULES = {  # and what it is with ppermute
        "tangent": lambda v, t: (jnp.sin(v), moved(t * jnp.cos(v))),
        "ordered": lambda v, t: (jnp.sin(v), moved(t * jnp.cos(v))),
        "value_and_tangent": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "tangent_and_value": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "in_turn": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "value_received_first": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "two_tangents": lambda v, t: (jnp.sin(v), moved(t * v) * v + moved(t * jnp.cos(v))),
        "beside_a_pair": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "pairs": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "crossed_pairs": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v))),
        "in_a_call": lambda v, t: (jnp.sin(v), moved(t * jnp.cos(v))),
        "from_the_left_and_the_right": lambda v, t: (moved(jnp.sin(v)), moved(t * jnp.cos(v), LEFT)),
    }
    WAYS = {
        "jvp": lambda f, x: jax.jvp(f, (x,), (x + 1,)),
        "linearize": lambda f, x: jax.linearize(f, x)[1](x + 1),
        "vjp": lambda f, x: jax.vjp(f, x)[1](x + 1),
        "grad": lambda f, x: jax.grad(lambda x: (f(x) ** 2).sum())(x),
        "in a scan": lambda f, x: jax.grad(lambda x: lax.scan(lambda x, _: (f(x), None), x, None, length=2)[0].sum())(
            x
        ),
        "in a vmap": lambda f, x: jax.grad(lambda x: jax.vmap(f)(jnp.stack([x, x + 1])).sum())(x),
        "hessian": lambda f, x: jax.hessian(lambda x: (f(x) ** 2).sum())(x)[0],
        "in a checkpoint": lambda f, x: jax.grad(lambda x: jax.checkpoint(lambda x: f(jnp.sin(x)))(x).sum())(x),
    }

    def program(self, rule, way):
        @jax.custom_jvp
        def f(v):
            return rule(v, v)[0]

        f.defjvp(lambda primals, tangents: rule(*primals, *tangents))
        body = functools.partial(self.WAYS[way], f)
        return jax.jit(jax.shard_map(body, mesh=line(3), in_specs=P("x"), out_specs=P("x")))

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("rule", RULES)
    def test_equals_ppermute(self, rule, way):
        actual, expected = (self.program(r, way)(X) for r in (getattr(self, rule), self.RULES[rule]))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), actual, expected)

    def test_a_tangent_received_before_it_is_sent_is_an_error(self):
        def rule(v, t):
            new = peerax.create_token()
            tangent = peerax.precv(new, v, "x", RIGHT)  # receive
            peerax.psend(t * jnp.cos(v), "x", RIGHT)  # send
            return jnp.sin(v), tangent

        lines = site(rule, "receive"), site(rule, "send")
        for way in ("linearize", "in a scan", "in a checkpoint"):
            with pytest.raises(peerax.PeeraxError) as raised:
                self.program(rule, way)(X)
            found = raised.value.diagnostic
            assert found.code == "PX214"
            assert tuple(f"{pathlib.Path(file).name}:{line}" for file, line in found.locations) == lines

    def sent_in_a_call(self, v, t):
        jax.jit(lambda v, t: self.send(t * jnp.cos(v)))(v, t)
        return jnp.sin(v), self.receive(v)

    def received_in_a_call(self, v, t):
        self.send(t * jnp.cos(v))
        return jnp.sin(v), jax.jit(self.receive)(v)

    def sent_in_a_loop(self, v, t):
        lax.scan(lambda c, k: (c, self.send(t * k)), 0.0, jnp.arange(2.0))
        return jnp.sin(v), self.receive(v) + self.receive(v)

    def while_a_pair_is_on_its_way(self, v, t):
        token = peerax.psend(jnp.sin(v), "x", RIGHT)
        self.send(t * jnp.cos(v))
        tangent = self.receive(v)
        return peerax.precv(token, v, "x", RIGHT), tangent

    def in_one_message(self, v, t):
        token = peerax.psend((jnp.sin(v), t * jnp.cos(v)), "x", RIGHT)
        return peerax.precv(token, (v, v), "x", RIGHT)

    UNCLEAR = (
        "sent_in_a_call",
        "received_in_a_call",
        "sent_in_a_loop",
        "while_a_pair_is_on_its_way",
        "in_one_message",
    )

    @pytest.mark.parametrize("way", ["linearize", "grad", "in a scan", "in a vmap"])
    @pytest.mark.parametrize("rule", UNCLEAR)
    def test_what_cannot_be_told_apart_is_an_error(self, rule, way):
        """JAX would take the tangent for zero."""
        with pytest.raises(peerax.PeeraxError) as raised:
            self.program(getattr(self, rule), way)(X)
        found = raised.value.diagnostic
        files = [pathlib.Path(file).name for file, _ in found.locations]
        assert (found.code, files) == ("PX214", [pathlib.Path(__file__).name])

    def test_no_trace_outlives_its_lowering(self):
        seen = []

        def rule(v, t):
            seen.append(weakref.ref(v._trace))
            return self.tangent(v, t)

        self.program(rule, "jvp").lower(X)
        self.program(rule, "vjp").lower(X)
        jax.clear_caches()
        gc.collect()
        assert len(seen) >= 2 and not any(trace() for trace in seen)

    def received_first(self, v, t):
        tangent = self.receive(v)
        self.send(t * jnp.cos(v))
        return jnp.sin(v), tangent

    @pytest.mark.parametrize("rule", ["sent_in_a_call", "received_in_a_call", "in_one_message", "received_first"])
    def test_forwards_there_is_nothing_to_tell_apart(self, rule):
        expected = self.RULES["pairs" if rule == "in_one_message" else "tangent"]
        actual, expected = (self.program(r, "jvp")(X) for r in (getattr(self, rule), expected))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), actual, expected)


def moved(x, perm=RIGHT):
    return lax.ppermute(x, "x", perm)
