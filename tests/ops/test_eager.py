"""shard_map without jit gives what it gives with jit."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, chain, grid, line, pair, ring, run_time_error, site

X = jnp.arange(8.0) + 1


def receive(x, perm):
    return peerax.precv(peerax.create_token(), x, "x", perm)


def one_pair(x):
    return pair(x, "x", chain(4))


def separate(x):
    y = receive(x, [(0, 1)])
    peerax.psend(x, "x", [(0, 1)])
    peerax.psend(y, "x", ring(4), tag=3)
    return x + peerax.precv(peerax.create_token(), x, "x", ring(4), tag=3)


def in_scan(x):
    return lax.scan(lambda c, i: (pair(c, "x", ring(4)) + i, c), x, jnp.arange(3.0))[0]


def in_nested_jit(x):
    return jax.jit(lambda y: pair(jnp.sin(y), "x", ring(4)))(x) + lax.psum(x, "x")


def in_while_and_cond(x):
    y = lax.while_loop(lambda s: lax.psum(s.sum(), "x") < 300, lambda s: pair(s, "x", ring(4)) + s, x)
    return lax.cond(lax.axis_index("x") < 2, lambda: pair(y, "x", [(0, 1)]), lambda: y)


def with_python_in_between(x):
    """Values of the arguments are not looked at, but Python runs as ever."""
    ys = [x]
    for k in range(1, 4):
        ys.append(pair(ys[-1] * k, "x", ring(4, k)))
    return {"last": ys[-1], "all": jnp.concatenate(ys)}


def mixed_pytree(x):
    key = jax.random.fold_in(jax.random.key(0), lax.axis_index("x"))
    sent = {"w": x, "i": x.astype(jnp.int4), "k": key, "n": None}
    got = pair(sent, "x", ring(4))
    return got["w"] + got["i"].astype(x.dtype) + jax.random.uniform(got["k"])


BODIES = [one_pair, separate, in_scan, in_nested_jit, in_while_and_cond, with_python_in_between, mixed_pytree]


@pytest.mark.parametrize("check_vma", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_equals_jit(body, check_vma):
    program = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"), check_vma=check_vma)
    assert_same_bits(program(X), jax.jit(program)(X))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_disable_jit(body):
    program = jax.jit(jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x")))
    expected = program(X)
    with jax.disable_jit():
        actual = program(X)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)  # fused or not, a sine may differ in its last bit


def test_results_have_the_same_shardings():
    def body(x):
        y = pair(x, "x", ring(4))
        return y, lax.psum(y, "x")

    program = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=(P("x"), P()))
    for eager, jitted in zip(program(X), jax.jit(program)(X), strict=True):
        assert eager.sharding.is_equivalent_to(jitted.sharding, eager.ndim)
        assert_same_bits(eager, jitted)


def test_sharded_arguments_several_axes_and_closures():
    x = jax.device_put(jnp.arange(16.0).reshape(4, 4), NamedSharding(grid(2, 4), P("a", "b")))
    outside = jnp.float32(3)

    def body(x):
        return pair(x * outside, "b", chain(4)) + pair(x, "a", ring(2))

    program = jax.shard_map(body, mesh=grid(2, 4), in_specs=P("a", "b"), out_specs=P("a", "b"))
    assert_same_bits(program(x), jax.jit(program)(x))


def test_partially_manual():
    def body(x):
        return pair(x, "b", chain(4))

    options = {"in_specs": P("b"), "out_specs": P("b"), "axis_names": {"b"}}
    program = jax.shard_map(body, mesh=grid(2, 4), **options)
    assert_same_bits(program(X), jax.jit(program)(X))


def test_nested_in_a_jit_around():
    program = jax.shard_map(one_pair, mesh=line(4), in_specs=P("x"), out_specs=P("x"))
    assert_same_bits(jax.jit(lambda x: program(x) + 1)(X), program(X) + 1)


def test_no_arguments_and_keywords():
    def body():
        here = lax.axis_index("x")[None]
        return pair(here, axis_name="x", perm=ring(4))

    np.testing.assert_array_equal(jax.shard_map(body, mesh=line(4), in_specs=(), out_specs=P("x"))(), [3, 0, 1, 2])


@pytest.mark.parametrize("body", [one_pair, in_scan, in_nested_jit], ids=lambda body: body.__name__)
def test_transformed_equals_jit(body):
    program = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))
    grad = jax.grad(lambda x: (program(x) ** 2).sum())
    for transformed in (grad, lambda x: jax.vmap(program)(jnp.stack([x, 2 * x]))):
        np.testing.assert_allclose(transformed(X), jax.jit(transformed)(X), rtol=1e-6)


class TestCompilation:
    @staticmethod
    def program(factor, offset=0.0, mesh=None):
        """A function of its own in every call, as in a script with a loop around a shard_map."""

        def body(x):
            return pair(x * factor, "x", ring(4)) + offset

        return jax.shard_map(body, mesh=mesh or line(4), in_specs=P("x"), out_specs=P("x"))

    def test_once_for_the_same_program(self, compiled):
        expected = self.program(3.0)(X)
        del compiled[:]
        for _ in range(3):
            assert_same_bits(self.program(3.0)(X), expected)
        assert compiled.count("jit(call)") == 0, compiled

    def test_again_for_another_one(self, compiled):
        other_devices = Mesh(np.array(jax.devices()[4:8]), ("x",))
        programs = [self.program(5.0), self.program(5.0, 1.0), self.program(5.0, mesh=other_devices)]
        results = [np.asarray(program(X)) for program in programs]
        assert compiled.count("jit(call)") == len(programs), compiled
        first = np.roll(np.asarray(X) * 5, 2)
        for result, expected in zip(results, [first, first + 1, first], strict=True):
            np.testing.assert_array_equal(result, expected)

    def test_closed_over_arrays_are_those_of_the_call(self, run_python):
        """Also where JAX hands them over as arguments that are not in the text of the program."""
        code = """
import jax, jax.numpy as jnp, numpy as np, peerax
from jax.sharding import Mesh, PartitionSpec as P

def shift(x, array):
    f = jax.shard_map(
        lambda x: peerax.precv(peerax.psend(x + array, "x", [(0, 1)]), x, "x", [(0, 1)]),
        mesh=Mesh(jax.devices(), ("x",)), in_specs=P("x"), out_specs=P("x"),
    )
    return np.asarray(f(x))[1]

for k in range(3):
    assert shift(jnp.zeros((4, 300)), jnp.full((1, 300), k)).tolist() == [k] * 300
"""
        for flag in ("0", "1"):
            result = run_python(code, env={"JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": flag})
            assert result.returncode == 0, result.stderr

    def test_callbacks_are_those_of_the_call(self):
        for count in range(3):
            seen = []

            def body(x, seen=seen, count=count):
                x = pair(x, "x", ring(4))
                jax.debug.callback(lambda: seen.append(count))
                return x

            jax.block_until_ready(jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))(X))
            jax.effects_barrier()
            assert seen == [count] * 4


class TestErrors:
    def test_at_run_time(self):
        def body(x):
            return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])  # RECEIVE

        text = run_time_error(jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x")), X)
        assert "PX202" in text and site(body, "RECEIVE") in text

    @pytest.mark.parametrize("disabled", [False, True])
    def test_at_trace_time(self, disabled):
        def body(x):
            return peerax.psend(x, "x", [(0, 4)])  # SEND

        with jax.disable_jit() if disabled else contextlib.nullcontext(), pytest.raises(peerax.PeeraxError) as info:
            jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))(X)
        assert info.value.code == "PX102" and site(body, "SEND") in str(info.value)

    def test_of_a_pair_that_disagrees(self):
        def body(x):
            token = peerax.psend(x, "x", ring(4))
            return peerax.precv(token, x[:1], "x", ring(4))

        with pytest.raises(peerax.PeeraxError, match="PX203"):
            jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))(X)

    def test_of_the_user_pass_through(self):
        def body(x):
            pair(x, "x", ring(4))
            raise ZeroDivisionError("the user's")

        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="the user's"):
                jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))(X)


def test_a_handler_for_all_exceptions_does_not_change_the_result():
    def body(x):
        try:
            return pair(x, "x", ring(4))
        except Exception:
            return x

    program = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(program(X), np.roll(X, 2))


def test_no_tracers_leak():
    program = jax.shard_map(one_pair, mesh=line(4), in_specs=P("x"), out_specs=P("x"))
    with jax.checking_leaks():
        np.testing.assert_array_equal(jax.jit(lambda x: program(x) + 1)(X)[2:], X[:6] + 1)
        np.testing.assert_array_equal(program(X)[2:], X[:6])


def test_jax_itself_is_left_alone():
    """A shard_map without peerax's operations is evaluated as before."""
    seen = []
    program = jax.shard_map(
        lambda x: (seen.append(1), lax.ppermute(x, "x", ring(4)))[1], mesh=line(4), in_specs=P("x"), out_specs=P("x")
    )
    np.testing.assert_array_equal(program(X), np.roll(X, 2))
    assert seen == [1]
