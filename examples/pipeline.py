"""A pipeline of four stages, written for GPUs with jax.lax.psend and precv. Nothing in it knows peerax.

    peerax run examples/pipeline.py --devices 4

Each device holds one layer of a network. A batch is cut into microbatches, which go through the stages one
after another, so that all stages are busy at once. A stage only says from whom it receives and to whom it
sends; that stage 1 starts later than stage 0 follows from the messages.

The result is compared with the same network on one device. Both do the same arithmetic in the same order,
so the largest difference is 0.0.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

STAGES, MICROBATCHES, ROWS, WIDTH = 4, 6, 16, 128
FORWARD = [(stage, stage + 1) for stage in range(STAGES - 1)]


def layer(weights, x):
    return x + jnp.tanh(x @ weights)


def stage(weights, microbatches):
    """Run one stage; every device does this with weights of its own. Returns what the stage computed."""
    weights = weights[0]
    first = lax.axis_index("stage") == 0
    shape = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)

    def step(carry, microbatch):
        # Stage 0 receives nothing and goes on at once; the others wait here for the stage before them.
        arrived = lax.precv(lax.create_token(), shape, "stage", FORWARD)
        y = layer(weights, jnp.where(first, microbatch, arrived))
        # The last stage sends nothing. The others need not know when the message is received.
        lax.psend(y, "stage", FORWARD)
        return carry, y

    _, outputs = lax.scan(step, None, microbatches)
    return outputs[None]


def on_one_device(weights, microbatches):
    """Run the whole network without a pipeline, one microbatch after the other."""

    def step(carry, x):
        for stage in range(STAGES):
            x = layer(weights[stage], x)
        return carry, x

    return lax.scan(step, None, microbatches)[1]


def picture():
    """Draw which microbatch each stage works on; time goes to the right."""
    for stage in range(STAGES):
        idle = "  . "
        work = "".join(f" [{microbatch}]" for microbatch in range(MICROBATCHES))
        print(f"stage {stage} {idle * stage}{work}{idle * (STAGES - 1 - stage)}")


def main():
    if len(jax.devices()) < STAGES:
        sys.exit(f"this needs {STAGES} devices: peerax run {sys.argv[0]} --devices {STAGES}")
    mesh = Mesh(np.array(jax.devices()[:STAGES]), ("stage",))
    rng = np.random.default_rng(0)
    weights = (rng.normal(size=(STAGES, WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    microbatches = rng.normal(size=(MICROBATCHES, ROWS, WIDTH)).astype(np.float32)

    specs = {"in_specs": (P("stage"), P()), "out_specs": P("stage")}
    pipeline = jax.jit(jax.shard_map(stage, mesh=mesh, check_vma=False, **specs))
    outputs = pipeline(weights, microbatches)[-1]  # those of the last stage
    expected = jax.jit(on_one_device)(weights, microbatches)

    difference = np.abs(np.asarray(outputs) - np.asarray(expected)).max()

    picture()
    print(f"{STAGES} stages, {MICROBATCHES} microbatches, largest output {jnp.abs(expected).max():.3f}")
    print(f"largest difference from the network on one device: {difference}")


if __name__ == "__main__":
    main()
