"""order is the identity, and a dependency that the compiler keeps."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, line, on_ranks, pair, ring
from tests.ops.test_pairs_equal_ppermute import DTYPES, random_array, x64

X = jnp.arange(8.0)
TREE = {
    "x": X.reshape(2, 4),
    "none": None,
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(4, impl="rbg"), 2),
    "int4": jnp.arange(-3, 4).astype(jnp.int4),
    "empty": (jnp.zeros((0, 3)), [], {}),
    "scalars": [jnp.bfloat16(1.5), jnp.array(True), jnp.uint8(200)],
    "token": peerax.create_token(),
}
ways = pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])


class TestIdentity:
    @ways
    def test_on_a_pytree(self, jit):
        f = jax.jit(peerax.order) if jit else peerax.order
        assert_same_bits(f(TREE), TREE)
        assert_same_bits(f(TREE, X, None, [X]), (TREE, X, None, [X]))

    @pytest.mark.parametrize("name", DTYPES)
    def test_on_each_dtype(self, name):
        with x64(name):
            x = jnp.asarray(random_array(getattr(jnp, name), (2, 3), 5))
            assert_same_bits(jax.jit(peerax.order)(x, X), (x, X))

    def test_on_numbers_and_nothing(self):
        assert peerax.order(None) is None
        assert peerax.order(()) == ()
        number, array = peerax.order(2.5, np.arange(3))
        assert_same_bits((number, array), (jnp.asarray(2.5), jnp.arange(3)))

    def test_of_an_operand_given_twice(self):
        assert_same_bits(jax.jit(lambda x: peerax.order(x, x))(X), (X, X))

    def test_leaves_donated_and_other_arrays_alone(self):
        """Results may take the memory of operands, but never of those that somebody else has."""
        first, second = jax.jit(lambda x: (peerax.order(x, x + 1)[0] * 1, x))(X)
        np.testing.assert_array_equal(first, np.arange(8))
        y = peerax.order(X)
        np.testing.assert_array_equal(jax.jit(lambda y: y + 1, donate_argnums=0)(y), np.arange(8) + 1)
        np.testing.assert_array_equal(X, np.arange(8))
        np.testing.assert_array_equal(second, np.arange(8))

    def test_in_a_loop_that_updates_in_place(self):
        def step(carry, i):
            old, _ = peerax.order(carry, i)
            new = carry.at[i % 8].add(1.0)
            return new, old

        last, olds = jax.jit(lambda x: lax.scan(step, x, jnp.arange(10)))(X)
        np.testing.assert_array_equal(olds[0], X)
        np.testing.assert_array_equal(last - olds[9], np.eye(8)[1])

    def test_sharded_arrays_stay_sharded(self):
        x = jax.device_put(X, NamedSharding(line(4), P("x")))
        for f in (peerax.order, jax.jit(peerax.order)):
            first, second = f(x, 2 * x)
            assert first.sharding.is_equivalent_to(x.sharding, 1)
            assert_same_bits((first, second), (x, 2 * x))

    @pytest.mark.parametrize("check_vma", [False, True])
    def test_inside_shard_map(self, check_vma):
        """Operands that vary and operands that do not keep their types."""

        def body(x):
            varies, key, same = peerax.order(x, jax.random.key(0), jnp.ones(2))
            return varies + jax.random.uniform(key), same

        options = {"out_specs": (P("x"), P()), "check_vma": check_vma}
        varies, same = on_ranks(body, **options)(X)
        np.testing.assert_allclose(varies, X + jax.random.uniform(jax.random.key(0)), rtol=1e-6)
        np.testing.assert_array_equal(same, [1, 1])
        varies, _ = jax.shard_map(body, mesh=line(4), in_specs=P("x"), **options)(X)
        np.testing.assert_allclose(varies, X + jax.random.uniform(jax.random.key(0)), rtol=1e-6)


class TestTransformations:
    @ways
    @pytest.mark.parametrize("axes", [(0, 0), (1, 0), (None, 0), (0, None), (-1, 1)], ids=str)
    def test_vmap(self, axes, jit):
        a, b = jnp.arange(9.0).reshape(3, 3), jnp.arange(9).reshape(3, 3)
        f = jax.vmap(lambda a, b: peerax.order({"a": a, "b": b}), in_axes=axes)
        plain = jax.vmap(lambda a, b: {"a": a, "b": b}, in_axes=axes)
        assert_same_bits((jax.jit(f) if jit else f)(a, b), plain(a, b))

    def test_vmap_of_keys(self):
        keys = jax.random.split(jax.random.key(0), 3)
        assert_same_bits(jax.vmap(lambda k, x: peerax.order(k, x))(keys, jnp.arange(3)), (keys, jnp.arange(3)))

    @ways
    def test_jvp_and_vjp_are_the_identity(self, jit):
        def f(a, b, i):
            return peerax.order(a, b, i)

        def both(a, b, i):
            primals, tangents = jax.jvp(lambda a, b: f(a, b, i), (a, b), (2 * a, 3 * b))
            results, pull = jax.vjp(lambda a, b: f(a, b, i), a, b)
            zero = np.zeros(i.shape, jax.dtypes.float0)
            return primals, tangents[:2], results, pull((4 * a, 5 * b, zero))

        a, b, i = X, X.astype(jnp.bfloat16), jnp.arange(3)
        primals, tangents, results, cotangents = (jax.jit(both) if jit else both)(a, b, i)
        assert_same_bits((primals, results), ((a, b, i), (a, b, i)))
        assert_same_bits((tangents, cotangents), ((2 * a, 3 * b), (4 * a, 5 * b)))

    def test_grad_where_some_results_are_not_used(self):
        def f(a, b):
            return (peerax.order(a, b, jnp.ones(3))[1] ** 2).sum()

        assert_same_bits(jax.grad(f, argnums=(0, 1))(X, X), (0 * X, 2 * X))

    def test_second_derivatives_and_linearize(self):
        def f(a):
            return (peerax.order(a, jnp.arange(2))[0] ** 3).sum()

        np.testing.assert_array_equal(jax.jit(jax.hessian(f))(X[:3]), np.diag(6 * X[:3]))
        value, push = jax.linearize(f, X)
        np.testing.assert_array_equal(push(X), 3 * (X**3).sum())

    @ways
    def test_scan_and_its_gradient(self, jit):
        def f(xs):
            def step(c, x):
                return (peerax.order(c, x)[0] * x, peerax.order(c))

            return lax.scan(step, jnp.float32(1), xs)[0]

        f = jax.jit(jax.grad(f)) if jit else jax.grad(f)
        np.testing.assert_allclose(f(X + 1), 40320 / np.arange(1, 9), rtol=1e-6)

    def test_checkpoint_cond_and_while(self):
        def f(x):
            y = jax.checkpoint(lambda x: peerax.order(jnp.sin(x), x)[0])(x)
            y = lax.cond(x.sum() > 0, lambda y: peerax.order(y, x)[0], lambda y: y, y)

            def step(s):
                return (s[0] + 1, peerax.order(s[1], s[0])[0] + 1)

            return lax.while_loop(lambda s: s[0] < 3, step, (0, y))[1].sum()

        np.testing.assert_allclose(jax.jit(f)(X), (np.sin(X) + 3).sum(), rtol=1e-6)

        def g(x):
            return jax.checkpoint(lambda x: (peerax.order(jnp.sin(x), x)[0] * x).sum())(x)

        np.testing.assert_allclose(jax.grad(g)(X), np.sin(X) + X * np.cos(X), rtol=1e-6)


class TestDependency:
    @staticmethod
    def seen(name, log, x):
        def callback(x):
            log.append(name)
            return x

        return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def test_the_others_are_computed_although_nobody_uses_them(self):
        log = []

        def f(x):
            return peerax.order(x, self.seen("other", log, x))[0]

        jax.block_until_ready(jax.jit(f)(X))
        assert log == ["other"]

    def test_it_makes_an_order_that_the_data_does_not(self):
        """Three times in a loop: the second callback needs only x, and comes after the first."""
        log = []

        def f(x):
            first = self.seen("first", log, x * 2)
            x, first = peerax.order(x, first)
            second = self.seen("second", log, x)
            x, second = peerax.order(x, second)
            return self.seen("third", log, x * 3), first, second

        program = jax.jit(f)
        for _ in range(10):
            jax.block_until_ready(program(X))
        assert log == ["first", "second", "third"] * 10

    @pytest.mark.parametrize("operation", ["psend", "precv", "pair"])
    def test_an_operation_comes_after_its_token(self, operation):
        """Also after what was ordered before it: rank 1 sleeps, and what it does next is late."""

        def late(rank, x):
            if rank == 1:
                time.sleep(0.2)
                log.append("slept")
            return x

        def note(rank, x):
            log.append(f"rank {rank}")
            return x

        def call(callback, x):
            return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), lax.axis_index("x"), x)

        def body(x):
            token = peerax.create_token()
            after, _ = peerax.order(token, call(late, x))
            if operation == "pair":
                token = peerax.psend(x, "x", [(1, 2)], token=after)
                return call(note, peerax.precv(token, x, "x", [(1, 2)]))
            if operation == "psend":
                peerax.psend(x, "x", [(1, 2)], token=after)
                return call(note, peerax.precv(token, x, "x", [(1, 2)]))
            peerax.psend(x, "x", [(2, 1)], token=token)
            return call(note, peerax.precv(after, x, "x", [(2, 1)]))

        receiver = 1 if operation == "precv" else 2
        for _ in range(3):
            log = []
            jax.block_until_ready(on_ranks(body)(X))
            assert log.index("slept") < log.index(f"rank {receiver}"), log

    def test_of_messages_and_values_inside_shard_map(self):
        def body(x):
            token = peerax.psend(x, "x", ring(4))
            token, y = peerax.order(token, jnp.sin(x))
            return peerax.precv(token, x, "x", ring(4)) + 0 * y

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 2))

    @pytest.mark.parametrize("platform", ["tpu", "cuda"])
    def test_on_other_platforms_it_is_an_optimization_barrier(self, platform):
        text = jax.jit(peerax.order).trace(TREE, X).lower(lowering_platforms=(platform,)).as_text()
        assert text.count("stablehlo.optimization_barrier") == 1
        assert "custom_call" not in text

    def test_on_cpu_it_is_more(self):
        text = jax.jit(peerax.order).trace(X, 2 * X).lower(lowering_platforms=("cpu",)).as_text()
        assert "peerax_order" in text


def test_it_works_before_anything_was_sent(run_python):
    """The transport is loaded by whichever operation comes first."""
    result = run_python("import jax, peerax\nprint(jax.jit(peerax.order)(1.0), peerax.order(2.0))\n", devices=1)
    assert result.stdout == "1.0 2.0\n", result.stderr


def test_eager_calls_do_not_compile_each_time():
    compiled = []

    def listen(event, *_, **__):
        compiled.append(event.endswith("backend_compile_duration"))

    peerax.order(X, 1.5)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for _ in range(5):
            peerax.order(X, 1.5)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert sum(compiled) == 0


def test_a_pair_still_works_after_all_this():
    np.testing.assert_array_equal(on_ranks(lambda x: pair(x, "x", ring(4)))(X), np.roll(X, 2))


EMPTY = {
    "one": lambda x: x[:0],
    "two": lambda x: (x[:0], x[:, :0]),
    "beside a full one": lambda x: (x[:0], x),
    "nothing at all": lambda x: (),
}


@pytest.mark.parametrize("separate", [False, True], ids=["pairs", "separate"])
@pytest.mark.parametrize("message", EMPTY.values(), ids=EMPTY)
def test_messages_without_elements_keep_their_place(message, separate):
    """To XLA a value without elements is a constant, and what waits for it waits for nothing."""

    def body(x):
        for _ in range(3):
            token = peerax.psend(message(x), "x", ring(4))
            token = peerax.create_token() if separate else token
            peerax.precv(token, jax.tree.map(jax.typeof, message(x)), "x", ring(4))
        return x

    program = on_ranks(body)
    x = jnp.ones((8, 3))
    np.testing.assert_array_equal(program(x), x)
    text = program.lower(x).compile().as_text()
    awaited = re.findall(r'custom-call\((.*?)\),.*custom_call_target="peerax_after"', text)
    assert not any("constant" in operands for operands in awaited)
    handles = re.findall(r'custom-call\(([^,)]*).*custom_call_target="peerax_(?:send|receive|exchange)"', text)
    assert len(handles) == len({*handles}) == (6 if separate else 3), "each comes after another"
