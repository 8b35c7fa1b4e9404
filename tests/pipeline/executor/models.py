"""A small decoder in stages, and what its pipeline must be equal to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from peerax.pipeline import value_and_grad
from peerax.pipeline.executor._layout import stage_order

WIDTH, WORDS, LENGTH = 8, 11, 3
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def stage(weights, x):
    """Three products, so that two are in the middle of the backward."""
    hidden = jnp.tanh(x @ weights["up"] + weights["bias"])
    return x + jnp.tanh(hidden @ weights["mix"]) @ weights["down"]


def embed(shared, tokens):
    return shared["table"][tokens] + shared["positions"]


def tied_head(shared, y):
    return y @ shared["table"].T


def untied_head(shared, y):
    return y @ shared["head"]


def squares(y, targets):
    return jnp.mean((y - targets) ** 2)


def entropy(logits, targets):
    return _entropies(logits, targets[0]).mean()


def entropy_sum(logits, targets):
    return _entropies(logits, targets[0]).sum()


def weighted_entropy(logits, targets):
    words, weights = targets
    return (_entropies(logits, words) * weights).sum(), weights.sum()


def _entropies(logits, words):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), words[..., None], -1)[..., 0]


@functools.cache
def mesh(ranks, *others, names=("stage",)):
    sizes = (ranks, *others)
    return Mesh(np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes), names)


def weights_of(schedule, seed=0, dtype=np.float32):
    random = np.random.default_rng(seed)

    shapes = {"up": (WIDTH, 6), "bias": (6,), "mix": (6, 6), "down": (6, WIDTH)}
    made = {name: random.normal(size=(schedule.stages, *shape)) * 0.4 for name, shape in shapes.items()}
    return {name: leaf[stage_order(schedule)].astype(dtype) for name, leaf in made.items()}


def shared_of(head=False, seed=1):
    random = np.random.default_rng(seed)
    shapes = {"table": (WORDS, WIDTH), "positions": (LENGTH, WIDTH), **({"head": (WIDTH, WORDS)} if head else {})}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def vectors(examples, seed=2):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=(examples, WIDTH)).astype(np.float32) for _ in range(2))


def texts(examples, seed=3):
    """Tokens, and targets with weights that differ a lot from microbatch to microbatch."""
    random = np.random.default_rng(seed)
    words = random.integers(0, WORDS, (examples, LENGTH + 1)).astype(np.int32)
    weights = random.integers(0, 2, (examples, LENGTH)) * random.random((examples, 1))
    return words[:, :-1], (words[:, 1:], weights.astype(np.float32))


def unpipelined(schedule, stage_fn, loss_of, params, x, shared=None):
    """Value and gradients of all stages after each other; loss_of is of what the last one returns."""

    places = np.argsort(stage_order(schedule))

    def loss(both):
        weights, shared = both
        y = x if shared is None else embed(shared, x)
        in_order = jax.tree.map(lambda leaf: leaf[places], weights)
        y, _ = jax.lax.scan(lambda y, of_stage: (stage_fn(of_stage, y), None), y, in_order)
        return loss_of(shared, y)

    value, grads = quick(jax.value_and_grad(loss), (params, shared))
    return value, grads[0] if shared is None else grads


def quick(function, *args):
    """Run a function once: less time for the compiler, more for the program."""
    return jax.jit(function, compiler_options=QUICK)(*args)


def of_squares(schedule, params, x, targets):
    """The same of the small stages and the squares, which is compiled once for each number of stages and examples."""
    order = stage_order(schedule)
    value, grads = _of_squares(jax.tree.map(lambda leaf: leaf[np.argsort(order)], params), x, targets)
    return value, jax.tree.map(lambda leaf: np.asarray(leaf)[order], grads)


@functools.partial(jax.jit, compiler_options=QUICK)
@jax.value_and_grad
def _of_squares(in_order, x, targets):
    y, _ = jax.lax.scan(lambda y, of_stage: (stage(of_stage, y), None), x, in_order)
    return squares(y, targets)


def assert_close(got, wanted, tolerance=1e-6):
    """Equal to within a part of the largest value of each array."""

    def check(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))

    jax.tree.map(check, got, wanted)


def of_vectors(made, **options):
    """Return value_and_grad of the pipeline without embedding and head, over a mesh."""
    options = {"schedule": made, "mesh": mesh(made.ranks), **options}
    return value_and_grad(stage, squares, axis_name="stage", **options)
