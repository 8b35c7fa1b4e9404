"""A transformer is trained in a pipeline of four stages, to write like the manual of Python, character by character.

    pip install ".[train]"
    peerax run examples/train_transformer.py --devices 4

Each device has two of the eight layers. The embedding is used twice, by the first stage and by the last one, and its
gradient is the sum of both. The text is what `help("topics")` leads to: it comes with Python, nothing is downloaded.

    --schedule NAME     in another order: gpipe, zb-h1, zbv, ... (`peerax schedule NAME` draws it)
    --unpipelined       the same on one device, by jax.value_and_grad: the losses are the same, to rounding
    --checkpoint DIR    keep the state there, and go on from what is there: the losses are those of a run without a
                        stop. What is kept is in the order of the layers, so the next run may have another schedule
"""

import argparse
import functools
import math
import pathlib
import sys
import time
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from peerax import pipeline

STAGES, LAYERS, WIDTH, HEADS, LENGTH, BATCH = 4, 8, 64, 4, 64, 16
EVERY_TENTH = sorted(topics)[::10]  # kept from training, to see what was learned
TEXTS = [[topics[name] for name in sorted(topics) if (name in EVERY_TENTH) == held_out] for held_out in (False, True)]
TEXTS = ["\n\n".join(texts).encode("ascii", "replace").decode() for texts in TEXTS]
CHARACTERS = sorted(set().union(*TEXTS))
TRAINED, HELD_OUT = (np.array([CHARACTERS.index(character) for character in text], np.int32) for text in TEXTS)


def normalized(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * gain


def nearer(length):
    """Return what is taken off for the distance of two characters, float32[1, heads, length, length]."""
    distances = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    return -distances * np.float32(4.0) ** -np.arange(HEADS, dtype=np.float32)[None, :, None, None]


def layer(weights, x):
    """Look at the characters before, then think about them."""
    heads = (*x.shape[:-1], HEADS, WIDTH // HEADS)
    q, k, v = (part.reshape(heads) for part in jnp.split(normalized(x, weights["before"]) @ weights["qkv"], 3, -1))
    seen = jax.nn.dot_product_attention(q, k, v, bias=nearer(x.shape[-2]).astype(x.dtype), is_causal=True)
    x = x + seen.reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(normalized(x, weights["between"]) @ weights["up"]) @ weights["down"]


def stage(weights, x):
    """Go through the layers of a stage."""
    return jax.lax.scan(lambda x, of_layer: (layer(of_layer, x), None), x, weights["layers"])[0]


def embed(shared, characters):
    return shared["embedding"][characters]


def head(shared, y):
    """Tied: the logit of a character is how much y is like its embedding."""
    return normalized(y, shared["gain"]) @ shared["embedding"].T


def loss(logits, following):
    return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()


def logits_of(schedule, params, characters):
    """Go through the whole model, without a pipeline."""
    stages, shared = params
    x = embed(shared, characters)
    for of_stage in pipeline.unstack_stages(stages, schedule):
        x = stage(of_stage, x)
    return head(shared, x)


def parameters(seed=0):
    """Return the weights of the layers, all of them in one array, and what the first and the last stage share."""
    random = np.random.default_rng(seed)

    def normal(*shape, scale):
        return (random.normal(size=shape) * scale).astype(np.float32)

    into = 1 / math.sqrt(WIDTH)
    back = into / math.sqrt(2 * LAYERS)  # what all layers add is as large as what they start from
    layers = {
        "before": np.ones((LAYERS, WIDTH), np.float32),
        "qkv": normal(LAYERS, WIDTH, 3 * WIDTH, scale=into),
        "out": normal(LAYERS, WIDTH, WIDTH, scale=back),
        "between": np.ones((LAYERS, WIDTH), np.float32),
        "up": normal(LAYERS, WIDTH, 4 * WIDTH, scale=into),
        "down": normal(LAYERS, 4 * WIDTH, WIDTH, scale=back / 2),
    }
    shared = {"embedding": normal(len(CHARACTERS), WIDTH, scale=into), "gain": np.ones(WIDTH, np.float32)}
    return {"layers": layers}, shared


def batch(text, number):
    """Return characters and what follows them. They depend on the number of the step only, so a run can go on."""
    starts = np.random.default_rng(number).integers(0, len(text) - LENGTH, BATCH)
    examples = text[starts[:, None] + np.arange(LENGTH + 1)]
    return examples[:, :-1], examples[:, 1:]


def of_layers(path):
    """Whether an array has something for each layer: weights, and what the optimizer keeps of them in trees alike."""
    return jax.tree_util.DictKey("layers") in path


def in_stages(state, schedule):
    """Put layers that are in their own order into stages that are in the order of a schedule."""
    order, shape = order_of_layers(schedule), (schedule.stages, LAYERS // schedule.stages)

    def of(path, x):
        return x[order].reshape(*shape, *x.shape[1:]) if of_layers(path) else x

    return jax.tree.map_with_path(of, state)


def in_order(state, schedule):
    """Undo that."""
    places = np.argsort(order_of_layers(schedule))

    def of(path, x):
        return x.reshape(LAYERS, *x.shape[2:])[places] if of_layers(path) else x

    return jax.tree.map_with_path(of, state)


def order_of_layers(schedule):
    layers = np.arange(LAYERS).reshape(schedule.stages, -1)
    return np.asarray(pipeline.stack_stages([*layers], schedule)).reshape(-1)


def placed(state, mesh):
    """Give each device its stages, and what the optimizer keeps of them; give all devices the rest."""

    def of(path, x):
        return jax.device_put(x, NamedSharding(mesh, P("stage") if of_layers(path) else P()))

    return jax.tree.map_with_path(of, state)


class Checkpoints:
    """Keep states in a directory, if there is one, in the order of the layers."""

    def __init__(self, directory, schedule, mesh):
        self.manager, self.schedule, self.mesh = None, schedule, mesh
        if directory is not None:
            import orbax.checkpoint as ocp

            self.args = ocp.args
            self.manager = ocp.CheckpointManager(
                directory.absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
            )

    def keep(self, steps, state):
        if self.manager:
            self.manager.save(steps, args=self.args.StandardSave(in_order(state, self.schedule)))

    def latest(self, state):
        """Return after how many steps it was kept, and the state; if there is none, 0 and the one given."""
        steps = self.manager and self.manager.latest_step()
        if not steps:
            return 0, state
        kept = self.manager.restore(steps, args=self.args.StandardRestore(in_order(state, self.schedule)))
        return steps, placed(in_stages(kept, self.schedule), self.mesh)

    def close(self):
        """Wait until all is written."""
        if self.manager:
            self.manager.close()


def written(schedule, params, beginning, count):
    """Return what the model writes after a beginning, one character after the other."""

    @jax.jit
    def longer(characters, key):
        """Forget the first character, and add one at the end."""
        logits = logits_of(schedule, params, characters[None])[0, -1]
        return jnp.append(characters[1:], jax.random.categorical(key, logits / 0.7).astype(characters.dtype))

    characters, made = jnp.asarray(beginning[-LENGTH:]), []
    for key in jax.random.split(jax.random.key(0), count):
        characters = longer(characters, key)
        made.append(CHARACTERS[characters[-1]])
    return "".join(made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedule", choices=pipeline.SCHEDULES, default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=20, metavar="N", help="how many steps from one line to the next")
    parser.add_argument("--write", type=int, default=300, metavar="N", help="how many characters to write at the end")
    parser.add_argument("--unpipelined", action="store_true")
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="DIR")
    options = parser.parse_args()
    ranks = 1 if options.unpipelined else STAGES
    if len(jax.devices()) < ranks:
        sys.exit(f"this needs {ranks} devices: peerax run {sys.argv[0]} --devices {ranks}")
    mesh = Mesh(np.array(jax.devices()[:ranks]), ("stage",))
    schedule = pipeline.schedule(options.schedule, ranks=STAGES, microbatches=options.microbatches)

    if options.unpipelined:
        value = jax.jit(lambda params, characters, following: loss(logits_of(schedule, params, characters), following))
        value_and_grad = jax.value_and_grad(value)
    else:
        parts = {"schedule": schedule, "axis_name": "stage", "mesh": mesh, "embed_fn": embed, "head_fn": head}
        value_and_grad = pipeline.value_and_grad(stage, loss, **parts)
        value = pipeline.evaluate(stage, loss, microbatches=4, **parts)  # as many as one likes
    rate = optax.schedules.warmup_constant_schedule(init_value=0.0, peak_value=4e-3, warmup_steps=30)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, characters, following):
        params, kept = state
        found, grads = value_and_grad(params, characters, following)
        updates, kept = optimizer.update(grads, kept, params)
        return (optax.apply_updates(params, updates), kept), found

    params = parameters()
    state = placed(in_stages((params, optimizer.init(params)), schedule), mesh)
    checkpoints = Checkpoints(options.checkpoint, schedule, mesh)
    first, state = checkpoints.latest(state)
    how = "without a pipeline" if options.unpipelined else f"{STAGES} stages, {schedule.name}"
    print(f"{how}: {len(TRAINED)} characters, {len(CHARACTERS)} different ones")
    if first:
        print(f"goes on after step {first} of {options.checkpoint}")

    since, at = time.monotonic(), first
    for done in range(first + 1, options.steps + 1):
        state, found = step(state, *batch(TRAINED, done))
        if done == first + 1 or done % options.every == 0 or done == options.steps:
            found.block_until_ready()
            now = time.monotonic()
            print(f"step {done:4}  loss {found:.5f}  {(now - since) / (done - at):.3f} s a step", flush=True)
            since, at = now, done
        if done % 100 == 0 or done == options.steps:
            checkpoints.keep(done, state)
    checkpoints.close()

    entropy = -sum(share * math.log(share) for share in np.bincount(HELD_OUT) / len(HELD_OUT) if share)
    found = np.mean([value(state[0], *batch(HELD_OUT, number)) for number in range(4)])
    print(f"on text not seen: loss {found:.3f}; for the frequencies of characters alone it is {entropy:.3f}")
    if options.write:
        params = jax.device_put(state[0], jax.devices()[0])
        print(f"what it writes:\n{written(schedule, params, HELD_OUT[:LENGTH], options.write)}")


if __name__ == "__main__":
    main()
