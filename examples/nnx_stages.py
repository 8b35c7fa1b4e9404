"""Stages that are Flax NNX modules: their parameters are stacked, and the graph of one is that of all.

pip install flax
peerax run examples/nnx_stages.py --devices 4
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from peerax import pipeline

STAGES, WIDTH = 4, 16


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


graphs, weights = zip(*(nnx.split(Block(nnx.Rngs(seed)), nnx.Param) for seed in range(STAGES)), strict=True)
schedule = pipeline.schedule("1f1b", ranks=STAGES, microbatches=8)
mesh = Mesh(np.array(jax.devices()[:STAGES]), ("stage",))
params = pipeline.stack_stages(weights, schedule)


def loss(y, targets):
    return jnp.mean((y - targets) ** 2)


def stage(weights, x):
    return nnx.merge(graphs[0], weights)(x)


def whole(params, x, targets):
    for weights in pipeline.unstack_stages(params, schedule):
        x = stage(weights, x)
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
