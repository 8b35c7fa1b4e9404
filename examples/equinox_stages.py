"""Stages that are Equinox modules: their arrays are stacked, and what else they have is the same in all.

pip install equinox
peerax run examples/equinox_stages.py --devices 4
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from peerax import pipeline

STAGES, WIDTH = 4, 16


class Block(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, depth=1, activation=jax.nn.gelu, key=key)

    def __call__(self, x):
        return x + self.mlp(x)


blocks = [Block(key) for key in jax.random.split(jax.random.key(0), STAGES)]
arrays, rest = zip(*(eqx.partition(block, eqx.is_inexact_array) for block in blocks), strict=True)
schedule = pipeline.schedule("1f1b", ranks=STAGES, microbatches=8)
mesh = Mesh(np.array(jax.devices()[:STAGES]), ("stage",))
params = pipeline.stack_stages(arrays, schedule)


def loss(y, targets):
    return jnp.mean((y - targets) ** 2)


def stage(arrays, x):
    return jax.vmap(eqx.combine(arrays, rest[0]))(x)


def whole(params, x, targets):
    for arrays in pipeline.unstack_stages(params, schedule):
        x = stage(arrays, x)
    return loss(x, targets)


x, targets = jax.random.normal(jax.random.key(1), (2, 32, WIDTH))
step = jax.jit(pipeline.value_and_grad(stage, loss, schedule=schedule, axis_name="stage", mesh=mesh))
wanted = jax.jit(jax.value_and_grad(whole))(params, x, targets)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), step(params, x, targets), wanted)
print("the gradients are those without a pipeline")

for number in range(10):
    value, grads = step(params, x, targets)
    print(f"step {number}  loss {value:.4f}")
    params = jax.tree.map(lambda w, d: w - 0.1 * d, params, grads)
