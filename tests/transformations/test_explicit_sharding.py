"""A mesh with explicit axes, one of them manual: what is received is sharded along the others as out_shape says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from tests.transformations.programs import assert_same, chain, pair, ring, separate

SIZES = pytest.mark.parametrize("size", [3, 4])


def around(exchange, w, x):
    return exchange(x * w, "x", ring()) * x


def along(exchange, w, x):
    return exchange(x * w, "x", chain()) * x


def stepwise(exchange, w, x):
    """The carry of a loop has one type."""
    return lax.scan(lambda y, k: (exchange(y * w, "x", ring()) + x, y * k), x, jnp.arange(3.0))[0]


def among_collectives(exchange, w, x):
    """JAX's own collectives and order keep the sharding too, where they are in the total order."""
    y = lax.ppermute(exchange(x * w, "x", ring()), "x", ring()) * lax.psum(x, "x")
    return peerax.order(y, x)[0] * x


def in_a_tree(exchange, w, x):
    came = exchange({"rows": x * w, "w": w * 2, "n": lax.axis_index("x")}, "x", ring())
    return came["rows"] * came["w"] + came["n"].astype(x.dtype) * x


STEPS = {
    "pair": (around, pair),
    "separate": (along, separate),
    "scan": (stepwise, pair),
    "collectives": (among_collectives, pair),
    "tree": (in_a_tree, pair),
}
TRANSFORMS = {
    "grad": lambda f: jax.value_and_grad(f, argnums=(0, 1)),
    "jvp": lambda f: lambda w, x: jax.jvp(f, (w, x), (w + 1, x * 2)),
    "vmap": lambda f: lambda w, x: jax.vmap(jax.grad(f), (0, None))(jnp.stack([w, w * 2]), x),
}


def mesh_of(size):
    devices = jax.devices()[: size * 2]
    return jax.make_mesh((size, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2, devices=devices)


def run(step, exchange, transform, size, check_vma=True):
    mesh = mesh_of(size)

    def loss(w, x):
        def body(w, x):
            y = step(exchange, w, x)
            assert jax.typeof(y).sharding.spec == P(None, "y")
            return y

        specs = (P(), P("x"))
        return jax.shard_map(body, in_specs=specs, out_specs=P("x"), axis_names={"x"}, check_vma=check_vma)(w, x).sum()

    with jax.set_mesh(mesh):
        x = np.arange(size * 2 * 4, dtype=np.float32).reshape(size * 2, 4) % 5 - 2
        x = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
        w = jax.device_put(np.float32(2), NamedSharding(mesh, P()))
        return jax.jit(transform(loss))(w, x)


@pytest.mark.parametrize("size, check_vma", [(3, True), (4, False)], ids=["vma", "no-vma"])
@pytest.mark.parametrize("name", STEPS)
def test_gradients(name, size, check_vma):
    step, exchange = STEPS[name]
    actual, expected = (run(step, e, TRANSFORMS["grad"], size, check_vma) for e in (exchange, lax.ppermute))
    assert_same(actual, expected)
    assert jax.typeof(actual[1][1]) == jax.typeof(expected[1][1])


@SIZES
@pytest.mark.parametrize("transform", ["jvp", "vmap"])
def test_other_transformations(transform, size):
    results = [run(around, exchange, TRANSFORMS[transform], size) for exchange in (pair, lax.ppermute)]
    assert_same(*results)


@SIZES
def test_an_out_shape_without_sharding_gives_the_whole_array(size):
    def whole(exchange, w, x):
        if exchange is lax.ppermute:
            y = jax.reshard(exchange(x * w, "x", ring()), P(None, None))
        else:
            out_shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
            y = peerax.precv(peerax.psend(x * w, "x", ring()), out_shape, "x", ring())
        assert jax.typeof(y).sharding.spec == P(None, None)
        return jax.reshard(y, P(None, "y")) * x

    assert_same(*(run(whole, exchange, TRANSFORMS["grad"], size) for exchange in (pair, lax.ppermute)))
