"""What a pipeline compiles to: its memory, its messages, its products, and that it cannot hang."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import peerax
from peerax.pipeline import SCHEDULES, schedule, value_and_grad
from peerax.pipeline.executor import _stages
from tests.pipeline.executor import models


def arguments(made, examples=None):
    return models.weights_of(made), *models.vectors(examples or made.microbatches)


def temporary_bytes(name, microbatches, **options):
    made = schedule(name, 4, microbatches)
    step = jax.jit(models.of_vectors(made, **options), compiler_options=models.QUICK)
    made = step.lower(*arguments(made, 256 * microbatches)).compile()
    return made.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("remat", [True, False])
def test_memory_does_not_grow_with_microbatches(remat):
    """But for the table, which has a row of a few dozen numbers for each tick and rank."""
    few, many = (temporary_bytes("1f1b", count, remat=remat) for count in (8, 64))
    everything = temporary_bytes("gpipe", 64, remat=remat)
    table = 4 * 40 * 4 * 2 * (64 + 4)
    assert few <= many < few + table
    assert everything > 2 * many


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_is_proved_and_has_two_exchanges_in_a_tick(name):
    made = schedule(name, 4, 8)
    step = models.of_vectors(made)
    shapes = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), a) for a in arguments(made)]
    report = peerax.check(step, *shapes)
    assert report.ok, report
    text = jax.jit(step).trace(*shapes).lower(lowering_platforms=("tpu",)).as_text()
    exchanges = len(re.findall(r'"?stablehlo\.collective_permute"?\(', text))
    assert exchanges == 2
    assert "all_gather" not in text
    # The loss; gradients of stages stay where they are.
    assert len(re.findall(r'"?stablehlo\.all_reduce"?\(', text)) == 1


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv"])
def test_the_loop_copies_no_ring_and_no_sums(name):
    made = schedule(name, 4, 8)
    step = jax.jit(models.of_vectors(made, remat=False), compiler_options=models.QUICK)
    text = step.lower(*arguments(made, 32)).compile().as_text()
    in_loop = [part for part in text.split("\n\n") if 'custom_call_target="peerax_exchange' in part]
    assert len(in_loop) == 1
    copied = re.findall(r"= \w+\[([\d,]*)\]\S* copy\(", in_loop[0])
    largest = max(np.prod([int(size) for size in dims.split(",") if size], initial=1) for dims in copied)
    assert largest <= 4 * models.WIDTH  # a message


@pytest.mark.parametrize(("name", "remat"), [("1f1b", True), ("zb-h1", False)])
def test_nothing_is_computed_that_is_not_due(name, remat):
    """XLA moves out of a loop what is the same in each round; all ranks would compute that in all ticks."""
    made = schedule(name, 2, 4)
    shared, (tokens, targets) = models.shared_of(head=True), models.texts(8)
    step = value_and_grad(
        models.stage,
        models.entropy,
        schedule=made,
        axis_name="stage",
        mesh=models.mesh(2),
        embed_fn=models.embed,
        head_fn=models.untied_head,
        remat=remat,
    )
    text = jax.jit(step).lower((models.weights_of(made), shared), tokens, targets).compile().as_text()
    products = [part.count(" dot(") for part in text.split("\n\n")]
    (in_tick,) = (part for part in text.split("\n\n") if 'custom_call_target="peerax_exchange' in part)
    # Of a forward, of the head and its two gradients, and of backwards.
    assert sum(products) >= 3 + 3 + 6
    assert in_tick.count(" dot(") == 0 and " exponential(" not in in_tick and " tanh(" not in in_tick
    called = re.findall(r"calls=%([\w.-]+)", in_tick)
    bodies = {part.split(" ", 1)[0].lstrip("%"): part for part in text.split("\n\n")}
    assert not [name for name in called if re.search(r" (tanh|exponential|dot|gather|scatter)\(", bodies[name])]


def products(function, *operands):
    text = jax.jit(function).lower(*operands).compile().as_text()
    return text.count(" dot(")


@pytest.mark.parametrize("scanned", [False, True])
def test_halves_of_a_backward_compute_nothing_twice(scanned):
    def layers(weights, x, _):
        def layer(x, w):
            return jnp.tanh(x @ w), None

        if scanned:
            return jax.lax.scan(layer, x, weights)[0], None
        for number in range(3):
            x, _ = layer(x, weights[number])
        return x, None

    weights, x = np.ones((3, 4, 4), np.float32), np.ones((2, 4), np.float32)
    traced = _stages.stage(layers, weights, x, (), split=True)
    _, _, kept_input, kept_both = traced.forward(weights, x, ())
    assert not {(3, 4, 4), (4, 4)} & {aval.shape for aval in (*traced.input, *traced.both, *traced.between)}
    _, between = traced.input_half(weights, x, (), kept_input, kept_both, x)
    forward = products(lambda w, x: traced.forward(w, x, ())[0], weights, x)
    whole = products(lambda *a: traced.backward(*a), weights, x, (), kept_input, kept_both, x)
    first = products(lambda *a: traced.input_half(*a)[0], weights, x, (), kept_input, kept_both, x)
    second = products(lambda *a: traced.weights_half(*a), weights, x, (), kept_both, x, between)
    assert (forward, whole, first, second) == ((1, 2, 1, 1) if scanned else (3, 6, 3, 3))


def test_what_is_kept_of_a_forward_are_no_weights():
    def layer(weights, x, _):
        return jnp.tanh(x @ weights["a"].T) @ weights["b"], None

    weights = {"a": np.ones((16, 4), np.float32), "b": np.ones((16, 4), np.float32)}
    traced = _stages.stage(layer, weights, np.ones((2, 4), np.float32), (), split=False)
    assert {aval.shape for aval in traced.input} == {(2, 16)}
    again = _stages.stage(jax.checkpoint(layer), weights, np.ones((2, 4), np.float32), (), split=False)
    assert not again.input and not again.both and again.keeps.x == "B"


@pytest.mark.parametrize(("target", "package"), [("v5e:2x2", "libtpu"), ("h100:4", "jax_cuda13_plugin")])
def test_it_compiles_for_devices_that_are_not_there(target, package):
    pytest.importorskip(package)
    sizes = []
    for name in ("1f1b", "gpipe"):
        made = schedule(name, 4, 32)
        step = models.of_vectors(made, remat=False)
        compiled = peerax.compile_for(step, *arguments(made, 128 * 32), target=target)
        assert "all-gather" not in compiled.hlo
        sizes.append(compiled.memory["temporaries"])
    # What is this small a TPU has in its vector memory, which is not counted.
    assert sizes[0] <= sizes[1] and (2 * sizes[0] < sizes[1] or target.startswith("v5"))
