"""Faults that users of other pipelines reported: none of them is here. A number is that of the report, as in the table.

| report | what was wrong | the test |
|---|---|---|
| 1 maxtext#752 | no 1F1B without several programs | test_programs: test_memory_does_not_grow_with_microbatches |
| 2 maxtext#2739 | did not compile for GPUs | test_programs: test_it_compiles_for_devices_that_are_not_there |
| 4 maxtext#1039 | computed again twice | test_stages_are_computed_again_once |
| 3 maxtext#4192 | one transport only | test_p2p: both strategies give the same |
| 7 openxla/xla#20808 | a permute became an all-gather | test_options: test_gradients_are_summed_over_the_data_once |
| 9 openxla/xla#40505, #44530 | edges after each other were slow or hung | test_edges_after_each_other |
| 12 jax#20088 | wrong numbers where buffers are donated | test_donated_parameters |
| 13 jax#29637 | branches refused operands of several shardings | test_a_batch_with_an_explicit_sharding |
| 15 pytorch#55036 | dropout depended on the partition | test_options: test_keys_are_those_of_layers_and_examples |
| 17 marin#7655 | a collective within a stage hung | test_sums_over_another_axis_within_stages |
| 19 marin#7024 | experts were chosen anew in the backward | test_experts_that_tie |
| 21 axlearn#572 | messages grew to float32 | test_what_goes_from_stage_to_stage_stays_narrow |
| 22 mintext#2, jax#17216 | no example to be had | the program in docs/pipelines.md, which test_documents runs |
| 23 torchtitan#775 | fewer microbatches than ranks hung | test_gradients: test_of_every_schedule, e.g. (4, 3) |
| 25 torchtitan#1733 | scaled anew at each accumulation | test_gradients: test_two_calls_add_up_to_one_of_... |
| 26 torchtitan#2972 | gradients not divided by tokens | test_gradients: test_with_embedding_and_head, "weighted" |
| 27 DeepSpeed#7773 | gradients grew with microbatches | test_gradients_do_not_depend_on_the_number_of_microbatches |
| 29 DeepSpeed#3045 | evaluation needed the batch of training | test_options: test_evaluation_with_other_microbatches |
| 31 pytorch#159942 | one shape only | test_options: test_another_length_is_traced_again |
| 33 pytorch#136766 | halves of backwards and checkpoints ran out of memory | test_memory_of_backwards_in_halves |
| 35 pytorch#164756 | weights were gathered for each microbatch | test_sharded_weights_are_gathered_once |
| 36 pytorch#161904 | some schedules failed if compiled | test_gradients: test_of_every_schedule, under jit |
| 42 zero-bubble#73 | messages left late | tests/pipeline/test_program: test_messages_are_sent_at_once |
| 43 jax#31398, openxla/xla#10394 | passes of XLA crashed or hung | test_passes_of_xla_that_are_on_or_off |
"""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from peerax.pipeline import schedule, value_and_grad
from tests.pipeline.executor import models


def compiled(step, *arguments):
    return jax.jit(step, compiler_options=models.QUICK).lower(*arguments).compile().as_text()


@pytest.mark.parametrize("of_its_own", [False, True])
def test_stages_are_computed_again_once(of_its_own):
    """Report 4, maxtext#1039. In all: a forward, a forward again, and two products for each in the backward."""
    made = schedule("1f1b", 2, 4)
    stage = jax.checkpoint(models.stage) if of_its_own else models.stage
    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2), "remat": not of_its_own}
    step = value_and_grad(stage, models.squares, **options)
    text = jax.jit(step).lower(models.weights_of(made), *models.vectors(8)).compile().as_text()
    products = text.count(" dot(")
    assert 3 + 6 < products <= 3 + 3 + 6


def test_donated_parameters():
    """Report 12, jax#20088. On 8 devices, with sharded parameters that a step gives back in the same buffers."""
    made = schedule("1f1b", 4, 4)
    mesh = models.mesh(4, 2, names=("stage", "data"))
    x, targets = models.vectors(16)
    gradients = models.of_vectors(made, mesh=mesh, data_axes="data")
    where = NamedSharding(mesh, P("stage"))

    def train(params, x, targets):
        loss, grads = gradients(params, x, targets)
        params = jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)
        return loss, jax.lax.with_sharding_constraint(params, where)

    results = []
    for donated in ((), (0,)):
        step = jax.jit(train, donate_argnums=donated, compiler_options=models.QUICK)
        params, losses = jax.device_put(models.weights_of(made), where), []
        for _ in range(3):
            before = params
            loss, params = step(params, x, targets)
            losses.append(loss)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before)) == bool(donated)
        results.append((losses, params))
    models.assert_close(*results, 0)


def test_a_batch_with_an_explicit_sharding():
    """Report 13, jax#29637."""
    made = schedule("zb-h1", 2, 3)
    kinds = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.make_mesh((2, 2), ("stage", "data"), axis_types=kinds)
    params, (x, targets) = models.weights_of(made), models.vectors(12)
    wanted = models.of_squares(made, params, x, targets)
    params = jax.device_put(params, NamedSharding(mesh, P("stage")))
    x, targets = jax.device_put((x, targets), NamedSharding(mesh, P("data")))
    models.assert_close(models.quick(models.of_vectors(made, mesh=mesh, data_axes="data"), params, x, targets), wanted)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "dualpipev"])
def test_sums_over_another_axis_within_stages(name):
    """Report 17, marin#7655. While ranks of one stage sum, those of the others do something else, or nothing."""
    made = schedule(name, 2, 4)
    mesh = models.mesh(2, 2, names=("stage", "tensor"))
    params, (x, targets) = models.weights_of(made), models.vectors(8)

    def stage(weights, x):
        hidden = jnp.tanh(x @ weights["up"] + weights["bias"])
        mixed = jax.lax.psum(hidden @ weights["mix"], "tensor")
        return x + jnp.tanh(mixed) @ weights["down"]

    columns, rows, whole = P("stage", None, "tensor"), P("stage", "tensor"), P("stage")
    specs = {"up": columns, "bias": rows, "mix": rows, "down": whole}
    step = value_and_grad(stage, models.squares, schedule=made, axis_name="stage")
    step = jax.shard_map(step, mesh=mesh, in_specs=(specs, P(), P()), out_specs=(P(), specs))
    models.assert_close(models.quick(step, params, x, targets), models.of_squares(made, params, x, targets))


def test_experts_that_tie():
    """Report 19, marin#7024. All experts are as good for each example: the choice of the forward must be kept."""
    made = schedule("1f1b", 2, 2)
    params, (x, targets) = models.weights_of(made), models.vectors(4)

    def stage(weights, x):
        scores = jnp.zeros((*x.shape[:-1], 6)) + x.sum(-1, keepdims=True)
        best, chosen = jax.lax.top_k(scores, 2)
        hidden = jnp.tanh(x @ weights["up"] + weights["bias"])
        picked = jnp.take_along_axis(hidden, chosen, -1) * jax.nn.softmax(best + hidden[..., :2])
        return x + picked @ weights["down"][:2]

    wanted = models.unpipelined(made, stage, lambda _, y: models.squares(y, targets), params, x)
    for remat in (True, False):
        options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2), "remat": remat}
        got = models.quick(value_and_grad(stage, models.squares, **options), params, x, targets)
        models.assert_close(got, wanted)


def test_what_goes_from_stage_to_stage_stays_narrow():
    """Report 21, axlearn#572. Messages and what is kept are bfloat16, and no array has room for all microbatches."""
    examples, count = 3, 29  # that are in no other shape
    made = schedule("1f1b", 2, count)
    params = models.weights_of(made, dtype=jnp.bfloat16)
    x, targets = (a.astype(jnp.bfloat16) for a in models.vectors(examples * count))

    def loss(y, targets):
        return models.squares(y.astype(jnp.float32), targets.astype(jnp.float32))

    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2), "remat": False}
    step = value_and_grad(models.stage, loss, **options)
    lowered = jax.jit(step).trace(params, x, targets).lower(lowering_platforms=("tpu",)).as_text()
    permuted = re.findall(r'"?stablehlo\.collective_permute"?\(.*-> tensor<(\S+)>', lowered)
    assert set(permuted) == {"3x8xbf16"}
    text = compiled(step, params, x, targets)
    of_activations = {match for match in re.findall(r"\w+\[[\d,]*\b3,[68]\]", text) if match.count(",") == 2}
    sizes = [int(match.partition("[")[2].partition(",")[0]) for match in of_activations]
    assert sizes and max(sizes) <= made.ranks + 1 + 1  # a trash slot, and one that arrives
    grads = step(params, x, targets)[1]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(grads)} == {"bfloat16"}


def test_gradients_do_not_depend_on_the_number_of_microbatches():
    """Report 27, DeepSpeed#7773."""
    results = []
    for count in (2, 8):
        made = schedule("1f1b", 2, count)
        params, (x, targets) = models.weights_of(made), models.vectors(8)
        results.append(models.quick(models.of_vectors(made), params, x, targets))
    models.assert_close(*results)


def test_memory_of_backwards_in_halves():
    """Report 33, pytorch#136766. Bounded however many microbatches there are, and less of it with remat."""

    def size(count, remat):
        made = schedule("zb-h1", 2, count)
        step = jax.jit(models.of_vectors(made, remat=remat), compiler_options=models.QUICK)
        lowered = step.lower(models.weights_of(made), *models.vectors(256 * count))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many, kept = size(8, True), size(32, True), size(8, False)
    row = 4 * 40 * 2 * 4  # of the table, for all that a rank does with a microbatch
    assert few <= many < few + row * (32 + 4)
    assert few < kept


def test_sharded_weights_are_gathered_once():
    """Report 35, pytorch#164756. One gather for each array, in front of the loop over all microbatches."""
    made = schedule("1f1b", 2, 4)
    mesh = models.mesh(2, 2, names=("stage", "data"))
    params, (x, targets) = models.weights_of(made), models.vectors(8)
    wanted = models.quick(models.of_vectors(made), params, x, targets)
    gradients = models.of_vectors(made, mesh=None, data_axes="data")

    def train(shards, x, targets):
        whole = jax.tree.map(lambda w: jax.lax.all_gather(w, "data", axis=1, tiled=True), shards)
        loss, grads = gradients(whole, x, targets)
        mine = jax.lax.axis_index("data")
        own = jax.tree.map(
            lambda g, w: jax.lax.dynamic_slice_in_dim(g, mine * w.shape[1], w.shape[1], 1), grads, shards
        )
        return loss, own

    of_weights = P("stage", "data")
    step = jax.shard_map(
        train, mesh=mesh, in_specs=(of_weights, P("data"), P("data")), out_specs=(P(), of_weights), check_vma=False
    )
    models.assert_close(models.quick(step, params, x, targets), wanted)
    text = compiled(step, params, x, targets)
    gathers = re.findall(r" all-gather(?:-start)?\(", text)
    entry = re.findall(r" all-gather(?:-start)?\(", text[text.index("ENTRY") :])
    assert len(gathers) == len(entry) == len(params)


EDGES = [[(0, 1)], [(2, 3)], [(1, 2)]]


def test_edges_after_each_other(run_python):
    """Report 9, openxla/xla#40505 and #44530. Each of them is no business of the other ranks."""
    code = f"""
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
import peerax

def ours(x, perm):
    return peerax.precv(peerax.psend(x, "x", perm), x, "x", perm)

def of_jax(x, perm):
    return lax.ppermute(x, "x", perm)

def run(move):
    def body(x):
        for perm in {EDGES!r}:
            x = x + move(x, perm)
        return x

    return jax.jit(jax.shard_map(body, mesh=Mesh(jax.devices(), ("x",)), in_specs=P("x"), out_specs=P("x")))

x = jnp.arange(8.0)
for _ in range(20):
    x = x / 3 + 1
    np.testing.assert_array_equal(run(ours)(x), run(of_jax)(x))
"""
    done = run_python(code, timeout_s=120)
    assert done.returncode == 0, done.stderr


PASSES = [
    {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"},
    {"xla_disable_hlo_passes": "collective-permute-motion"},
    {"xla_cpu_multi_thread_eigen": False},
]


@pytest.mark.parametrize("options", PASSES, ids=lambda options: "-".join(map(str, options.values())))
def test_passes_of_xla_that_are_on_or_off(options):
    """Report 43, jax#31398 and openxla/xla#10394."""
    made = schedule("1f1b", 2, 4)
    arguments = models.weights_of(made), *models.vectors(8)
    step = models.of_vectors(made)
    got = jax.jit(step, compiler_options={**models.QUICK, **options})(*arguments)
    models.assert_close(got, models.quick(step, *arguments))
