"""The gradients of a pipeline are those of the same function without one, for every schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from peerax.pipeline import SCHEDULES, Schedule, schedule, value_and_grad
from tests.pipeline.executor import models

# Ranks and microbatches are spread over the schedules: fewer microbatches than ranks, as many, and odd ones.
SIZES = {
    "gpipe": [(3, 2), (4, 9)],
    "1f1b": [(2, 1), (4, 3), (4, 9), (8, 16)],
    "eager-1f1b": [(3, 9), (4, 1)],
    "interleaved-1f1b": [(2, 4), (4, 3)],
    "looped-bfs": [(3, 2), (2, 9)],
    "combined-tick": [(4, 8), (2, 4)],
    "circular": [(3, 3), (2, 9)],
    "zb-h1": [(4, 8), (3, 1)],
    "zb-h2": [(4, 9), (2, 1)],
    "interleaved-zb": [(2, 4), (3, 2)],
    "zbv": [(4, 9), (3, 2), (2, 1)],
    "dualpipev": [(2, 9), (4, 8)],
}
# Of the first size both ways, of the others one.
CASES = [
    (name, *size, remat)
    for name, sizes in SIZES.items()
    for number, size in enumerate(sizes)
    for remat in ((True, False) if number == 0 else (number % 2 == 0,))
]


def test_all_schedules_are_here():
    assert set(SIZES) == set(SCHEDULES)


@pytest.mark.parametrize(("name", "ranks", "microbatches", "remat"), CASES)
def test_of_every_schedule(name, ranks, microbatches, remat):
    made = schedule(name, ranks, microbatches)
    params, (x, targets) = models.weights_of(made), models.vectors(16 if 16 % microbatches == 0 else 18)
    got = models.quick(models.of_vectors(made, remat=remat), params, x, targets)
    wanted = models.of_squares(made, params, x, targets)
    models.assert_close(got, wanted)


LOSSES = {"mean": models.entropy, "sum": models.entropy_sum, "weighted": models.weighted_entropy}


# Each schedule with one of all combinations.
ENDS = [(reduction, tied, remat) for reduction in LOSSES for tied in (True, False) for remat in (True, False)]


@pytest.mark.parametrize(("name", "how"), [*zip(SCHEDULES, ENDS, strict=True)])
def test_with_embedding_and_head(name, how):
    reduction, tied, remat = how
    made = schedule(name, 2, 4)
    params, shared = models.weights_of(made), models.shared_of(head=not tied)
    head = models.tied_head if tied else models.untied_head
    tokens, targets = models.texts(8)
    step = value_and_grad(
        models.stage,
        LOSSES[reduction],
        schedule=made,
        axis_name="stage",
        mesh=models.mesh(2),
        embed_fn=models.embed,
        head_fn=head,
        remat=remat,
        reduction=reduction,
    )

    def loss(shared, y):
        made = LOSSES[reduction](head(shared, y), targets)
        return made[0] / made[1] if reduction == "weighted" else made

    wanted = models.unpipelined(made, models.stage, loss, params, tokens, shared)
    models.assert_close(models.quick(step, (params, shared), tokens, targets), wanted)


@pytest.mark.parametrize("ticks", ["one", "all"])
@pytest.mark.parametrize("name", ["1f1b", "dualpipev"])
def test_however_ticks_are_filled(name, ticks):
    made = schedule(name, 3, 6)
    params, (x, targets) = models.weights_of(made), models.vectors(6)
    got = models.quick(models.of_vectors(made, remat=False, ticks=ticks), params, x, targets)
    wanted = models.of_squares(made, params, x, targets)
    models.assert_close(got, wanted)


BY_HAND = """0F0,0F1,3F0,3B0,0B0,3F1,3B1,0B1
1F0,1F1,2F0,2B0,1B0,2F1,2I1,1I1,2W1,1W1
"""
IN_BLOCKS = """0F1,1F1,0F0,1F0,1B1,0B1,1B0,0B0
2F1,3F1,3B1,2B1,2F0,3F0,3B0,2B0
"""


@pytest.mark.parametrize("text", [BY_HAND, IN_BLOCKS], ids=["by hand", "in blocks"])
def test_of_schedules_of_ones_own(text):
    made = Schedule.from_csv(text).validate()
    params, (x, targets) = models.weights_of(made), models.vectors(4)
    got = models.quick(models.of_vectors(made, remat=False), params, x, targets)
    wanted = models.of_squares(made, params, x, targets)
    models.assert_close(got, wanted)


def test_with_policies():
    made = schedule("zb-h1", 2, 3)
    params, (x, targets) = models.weights_of(made), models.vectors(6)
    wanted = models.of_squares(made, params, x, targets)
    for policy in (jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.everything_saveable):
        models.assert_close(models.quick(models.of_vectors(made, remat=policy), params, x, targets), wanted)


@pytest.mark.parametrize("remat", [True, False])
def test_of_stages_that_scan_over_layers(remat):
    made = schedule("zb-h1", 2, 3)
    params, (x, targets) = models.weights_of(made), models.vectors(6)
    params = jax.tree.map(lambda leaf: np.stack([leaf, leaf + 0.1, leaf - 0.1], 1), params)

    def stage(weights, x):
        gain = weights["bias"].mean()  # of all layers: a sum over the rounds of the scan

        def layer(x, of_layer):
            return models.stage(of_layer, x) * jnp.cos(gain), None

        return jax.lax.scan(layer, x, weights)[0]

    step = value_and_grad(stage, models.squares, schedule=made, axis_name="stage", mesh=models.mesh(2), remat=remat)
    wanted = models.unpipelined(made, stage, lambda _, y: models.squares(y, targets), params, x)
    models.assert_close(models.quick(step, params, x, targets), wanted)


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, ()), lambda _, g: (3 * g,))  # not what it would be otherwise


@pytest.mark.parametrize("remat", [True, False])
def test_of_stages_of_all_kinds_of_equations(remat):
    """Rules of one's own, branches, loops, sorting and whole numbers, with backwards in halves."""
    made = schedule("zb-h1", 2, 3)
    params, (x, targets) = models.weights_of(made), models.vectors(6)

    @jax.checkpoint
    def inner(weights, x):
        return jax.nn.gelu(doubled(x) @ weights["up"]) + jax.nn.relu(weights["bias"])

    def stage(weights, x):
        hidden = jax.jit(inner)(weights, x)
        best = jax.lax.top_k(hidden, 2)[1]
        chosen = jnp.where(jnp.arange(6) == best[:, :1], hidden, 0) + jnp.sort(hidden)
        mixed = jax.lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h @ weights["mix"]), chosen)
        sign = weights["bias"][0] > 0
        y = jax.lax.cond(sign, lambda m: m @ weights["down"], lambda m: jnp.sin(m) @ weights["down"], mixed)
        return x + jax.nn.softmax(y) * jax.lax.stop_gradient(hidden.mean(-1, keepdims=True))

    step = value_and_grad(stage, models.squares, schedule=made, axis_name="stage", mesh=models.mesh(2), remat=remat)
    wanted = models.unpipelined(made, stage, lambda _, y: models.squares(y, targets), params, x)
    models.assert_close(models.quick(step, params, x, targets), wanted)


def test_two_calls_add_up_to_one_of_twice_the_examples():
    half, whole = schedule("1f1b", 2, 2), schedule("1f1b", 2, 4)
    params, (x, targets) = models.weights_of(half), models.vectors(8)
    step = models.of_vectors(half)
    one, two = step(params, x[:4], targets[:4]), step(params, x[4:], targets[4:])
    mean = jax.tree.map(lambda a, b: (a + b) / 2, one, two)
    models.assert_close(mean, models.quick(models.of_vectors(whole), params, x, targets))
