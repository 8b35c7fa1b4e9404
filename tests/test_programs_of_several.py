"""Several communicating shard_maps in one program: XLA must not mix their operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax

RANKS = 4
CHAIN = [(i, i + 1) for i in range(RANKS - 1)]
X = np.arange(2 * RANKS, dtype=np.float32) / 8


def pipeline(scale):
    """A receive before the loop and a send after it, and a collective in it: mixed with another one, it would hang."""

    def body(x):
        first = peerax.precv(peerax.create_token(), x, "x", CHAIN)

        def tick(carry, _):
            result, arrived = carry
            peerax.psend(result, "x", CHAIN)
            new = jnp.tanh(arrived * scale + x) + lax.psum(arrived, "x")
            return (new, peerax.precv(peerax.create_token(), x, "x", CHAIN)), None

        (result, _), _ = lax.scan(tick, (x, first), None, length=4)
        peerax.psend(result, "x", CHAIN)
        return result

    mesh = Mesh(jax.devices()[:RANKS], ("x",))
    return jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))


F, G = pipeline(1.0), pipeline(2.0)
JITTED_F, JITTED_G = jax.jit(F), jax.jit(G)

PROGRAMS = {
    "in one block": (lambda x: F(x) + G(x), lambda x: JITTED_F(x) + JITTED_G(x)),
    "jitted each": (lambda x: JITTED_F(x) + JITTED_G(x), lambda x: JITTED_F(x) + JITTED_G(x)),
    "one twice": (lambda x: JITTED_F(x) + JITTED_F(x + 1), lambda x: JITTED_F(x) + JITTED_F(x + 1)),
    "in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: JITTED_F(c) + JITTED_G(c), x),
        lambda x: repeated(3, lambda c: JITTED_F(c) + JITTED_G(c), x),
    ),
}


def repeated(count, f, x):
    for _ in range(count):
        x = f(x)
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_equals_one_after_the_other(name):
    together, one_by_one = PROGRAMS[name]
    np.testing.assert_allclose(jax.jit(together)(X), one_by_one(X), rtol=1e-6)


def test_gradient_of_a_product():
    """Forward and backward bodies of two pipelines in one program."""
    gradient = jax.jit(jax.grad(lambda x: (JITTED_F(x) * JITTED_G(x + 1)).sum()))(X)
    _, back_f = jax.vjp(JITTED_F, X)
    _, back_g = jax.vjp(JITTED_G, X + 1)
    expected = back_f(JITTED_G(X + 1))[0] + back_g(JITTED_F(X))[0]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
