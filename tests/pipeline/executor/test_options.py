"""What a pipeline is given besides: aux, keys, data axes, other precisions, other numbers of microbatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from peerax.pipeline import Schedule, evaluate, schedule, stack_stages, unstack_stages, value_and_grad
from peerax.pipeline.executor._run import Plan
from tests.pipeline.executor import models


@pytest.mark.parametrize(("name", "remat"), [("1f1b", True), ("zb-h1", False), ("zbv", True), ("dualpipev", False)])
def test_what_idle_ranks_have_reaches_nothing(name, remat, monkeypatch):
    made = schedule(name, 3, 7)
    params, (x, targets) = models.weights_of(made), models.vectors(7)
    wanted = models.quick(models.of_vectors(made, remat=remat), params, x, targets)
    monkeypatch.setattr(Plan, "fill", np.nan)
    models.assert_close(models.quick(models.of_vectors(made, remat=remat), params, x, targets), wanted, 0)


def test_aux_of_every_stage_and_of_the_loss():
    made = schedule("interleaved-1f1b", 2, 4)
    params, (x, targets) = models.weights_of(made), models.vectors(8)

    def stage(weights, x):
        y = models.stage(weights, x)
        return y, {"mean": y.mean(), "large": (y > 1).sum(-1)}

    def loss(y, targets):
        return models.squares(y, targets), (y.sum(-1), y.mean() > 0)

    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2), "has_aux": True}
    (value, aux), grads = models.quick(value_and_grad(stage, loss, **options), params, x, targets)
    again, same = models.quick(evaluate(stage, loss, **options), params, x, targets)
    models.assert_close((value, grads), models.quick(models.of_vectors(made), params, x, targets))
    models.assert_close((again, same), (value, aux))

    y, means, large = x, [], []
    for weights in unstack_stages(params, made):
        y = models.stage(weights, y)
        means.append(y.reshape(2, 4, -1).mean((0, 2)))
        large.append((y > 1).sum(-1).reshape(2, 4).T)
    models.assert_close(aux.stages["mean"], stack_stages(means, made))
    assert (aux.stages["large"] == stack_stages(large, made)).all() and aux.stages["large"].dtype == jnp.int32
    models.assert_close(aux.loss[0], y.sum(-1).reshape(2, 4).T)
    assert aux.loss[1].dtype == bool and (aux.loss[1] == (y.reshape(2, 4, -1).mean((0, 2)) > 0)).all()


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_constants_of_stages(name):
    """A mask is the same on all ranks, and is not kept for each microbatch; so is what a stage counts."""
    made = schedule(name, 2, 3)
    params, (x, targets) = models.weights_of(made), models.vectors(6)

    def masked(weights, x):
        return models.stage(weights, x) * jnp.where(jnp.arange(models.WIDTH) > 2, 0.5, 1.0)

    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2), "has_aux": True, "remat": False}
    step = value_and_grad(
        lambda w, x: (masked(w, x), jnp.int32(2)), lambda y, t: (models.squares(y, t), jnp.float32(3)), **options
    )
    (value, aux), grads = models.quick(step, params, x, targets)
    wanted = models.unpipelined(made, masked, lambda _, y: models.squares(y, targets), params, x)
    models.assert_close((value, grads), wanted)
    assert (aux.stages == np.full((2, 3), 2, np.int32)).all() and (aux.loss == np.full(3, 3.0, np.float32)).all()


def test_keys_are_those_of_layers_and_examples():
    """The same dropout for any number of ranks, stages and microbatches, and of shards of the data."""
    layers = 2
    random = np.random.default_rng(5)
    weights = random.normal(size=(layers, models.WIDTH, models.WIDTH)).astype(np.float32)
    x, targets = models.vectors(8)
    key = jax.random.key(7)

    def layer(weights, x, keys):
        keep = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (models.WIDTH,)))(keys)
        return jnp.where(keep, jnp.tanh(x @ weights), 0) + x

    def embed(shared, x, rng):
        return x * jax.vmap(lambda key: jax.random.uniform(key, ()))(rng.examples_of())[:, None] * shared

    def keys(number):
        return jax.vmap(lambda example: jax.random.fold_in(jax.random.fold_in(key, number), example))(jnp.arange(8))

    def whole(weights):
        y = x * jax.vmap(lambda key: jax.random.uniform(key, ()))(keys(0))[:, None]
        for number in range(layers):
            y = layer(weights[number], y, keys(number + 1))
        return models.squares(y, targets)

    wanted = jax.jit(jax.value_and_grad(whole))(weights)
    for name, ranks, microbatches, shards in (("1f1b", 1, 2, 1), ("zb-h1", 2, 4, 2)):
        made = schedule(name, ranks, microbatches)
        each = layers // made.stages

        def stage(weights, x, rng, each=each):
            for number in range(each):
                x = layer(weights[number], x, rng.examples_of(number, of=each))
            return x

        params = stack_stages([*weights.reshape(made.stages, each, *weights.shape[1:])], made)
        mesh = models.mesh(ranks, shards, names=("stage", "data"))
        step = value_and_grad(
            stage, models.squares, schedule=made, axis_name="stage", mesh=mesh, embed_fn=embed, data_axes="data"
        )
        loss, (grads, _) = models.quick(step, (params, jnp.float32(1)), x, targets, key)
        grads = np.stack(unstack_stages(grads, made)).reshape(weights.shape)
        models.assert_close((loss, grads), wanted)


def dp_by_mesh(made, mesh):
    return models.of_vectors(made, mesh=mesh, data_axes="data")


def dp_by_hand(made, mesh):
    """In a shard_map over the stages only: the data is sharded automatically until the pipeline begins."""
    step = models.of_vectors(made, mesh=None, data_axes="data")
    specs = (P("stage"), P(), P())
    return jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(P(), P("stage")), axis_names={"stage"})


@pytest.mark.parametrize("form", [dp_by_mesh, dp_by_hand])
def test_gradients_are_summed_over_the_data_once(form):
    made = schedule("1f1b", 2, 4)
    mesh = models.mesh(2, 2, names=("stage", "data"))
    params, (x, targets) = models.weights_of(made), models.vectors(8)
    wanted = models.quick(models.of_vectors(made), params, x, targets)
    x, targets = jax.device_put((x, targets), NamedSharding(mesh, P("data")))
    step = jax.jit(form(made, mesh))
    models.assert_close(step(params, x, targets), wanted)
    text = step.lower(params, x, targets).compile().as_text()
    assert in_loops(text, "all-reduce") == 0 and text.count(" all-gather") == 0


def in_loops(text, name):
    """How often an instruction is in a computation that is not the entry."""
    entry = text[text.index("ENTRY") :]
    return text.count(f" {name}(") - entry.count(f" {name}(")


def test_tensors_may_be_sharded_automatically():
    made = schedule("1f1b", 2, 3)
    mesh = models.mesh(2, 2, names=("stage", "tensor"))
    params, (x, targets) = models.weights_of(made), models.vectors(6)
    wanted = models.quick(models.of_vectors(made), params, x, targets)
    where = {"up": P("stage", None, "tensor"), "bias": P("stage", "tensor"), "mix": P("stage"), "down": P("stage")}
    sharded = {name: jax.device_put(leaf, NamedSharding(mesh, where[name])) for name, leaf in params.items()}
    got = jax.jit(models.of_vectors(made, mesh=mesh))(sharded, x, targets)
    models.assert_close(got, wanted)


def test_sums_are_in_float32_for_narrow_weights():
    """256 microbatches of gradients that are all 1: in bfloat16 their sum would stop at 256."""
    count = 512
    made = schedule("1f1b", 1, count)
    params = jnp.ones((1, 1), jnp.bfloat16)
    x = jnp.ones((count, 1), jnp.bfloat16)
    step = value_and_grad(
        lambda w, x: x * w,
        lambda y, t: y.sum().astype(jnp.float32),
        schedule=made,
        axis_name="stage",
        mesh=models.mesh(1),
        reduction="sum",
    )
    loss, grads = models.quick(step, params, x, x)
    assert grads.dtype == jnp.bfloat16 and grads[0, 0] == count and loss == count


def test_any_pytree_goes_from_stage_to_stage():
    """With whole numbers and a loss that stages add to, as experts do."""
    made = schedule("zbv", 2, 3)
    params, (x, targets) = models.weights_of(made), models.vectors(6)
    places = np.arange(6, dtype=np.int32)

    def stage(weights, carried):
        x, place, extra = carried
        y = models.stage(weights, x) * jnp.where(place % 2 == 0, 1.0, 0.5)[:, None]
        return y, place, extra + (y**2).mean(-1)

    def loss(y, targets):
        return models.squares(y[0], targets) + 0.1 * y[2].mean()

    batch = (x, places, np.zeros(6, np.float32))
    step = value_and_grad(stage, loss, schedule=made, axis_name="stage", mesh=models.mesh(2), remat=False)
    wanted = models.unpipelined(made, stage, lambda _, y: loss(y, targets), params, batch)
    models.assert_close(models.quick(step, params, batch, targets), wanted)


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zbv"])
def test_evaluation_with_other_microbatches(name):
    made = schedule(name, 2, 4)
    params, (x, targets) = models.weights_of(made), models.vectors(14)
    wanted = models.of_squares(made, params, x, targets)[0]
    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2)}
    got = models.quick(evaluate(models.stage, models.squares, microbatches=7, **options), params, x, targets)
    models.assert_close(got, wanted)


def test_another_length_is_traced_again():
    made = schedule("1f1b", 2, 2)
    params = models.weights_of(made)
    step = jax.jit(models.of_vectors(made))
    for examples in (4, 8):
        x, targets = models.vectors(examples)
        models.assert_close(step(params, x, targets), models.quick(models.of_vectors(made), params, x, targets))
    assert step._cache_size() == 2


def test_meshes_of_make_mesh():
    made = schedule("1f1b", 4, 4)
    params, (x, targets) = models.weights_of(made), models.vectors(4)
    wanted = models.quick(models.of_vectors(made), params, x, targets)
    mesh = jax.make_mesh((4,), ("stage",), axis_types=(jax.sharding.AxisType.Explicit,))
    params = jax.device_put(params, NamedSharding(mesh, P("stage")))
    models.assert_close(models.quick(models.of_vectors(made, mesh=mesh), params, x, targets), wanted)


LOSSES_OF_ALL_DATA = {
    "mean": lambda y, t: lax.pmean(models.squares(y, t), "data"),
    "weighted": lambda y, t: (lax.psum(jnp.sum((y - t) ** 2), "data"), lax.psum(jnp.float32(y.size), "data")),
}


@pytest.mark.parametrize("reduction", LOSSES_OF_ALL_DATA)
def test_losses_that_all_shards_of_the_data_have(reduction):
    made = schedule("1f1b", 2, 2)
    params, (x, targets) = models.weights_of(made), models.vectors(8)
    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2, 2, names=("stage", "data"))}
    loss = LOSSES_OF_ALL_DATA[reduction]
    step = value_and_grad(models.stage, loss, data_axes="data", reduction=reduction, **options)
    models.assert_close(
        models.quick(step, params, x, targets), models.quick(models.of_vectors(made), params, x, targets)
    )


def test_a_leaf_that_stages_make_the_same_on_all_shards_of_the_data():
    made = schedule("zb-h1", 2, 2)
    params, (x, targets) = models.weights_of(made), models.vectors(8)

    def run(mean, mesh, data_axes):
        def stage(weights, x):
            y = models.stage(weights, x["x"])
            return {"x": y, "square": jnp.broadcast_to(mean(jnp.mean(y**2)), x["square"].shape)}

        def loss(y, targets):
            return models.squares(y["x"], targets) + jnp.mean(y["square"])

        options = {"schedule": made, "axis_name": "stage", "mesh": mesh, "data_axes": data_axes, "remat": False}
        return models.quick(value_and_grad(stage, loss, **options), params, {"x": x, "square": jnp.zeros(8)}, targets)

    got = run(lambda s: lax.pmean(s, "data"), models.mesh(2, 2, names=("stage", "data")), "data")
    models.assert_close(got, run(lambda s: s, models.mesh(2), ()))


def test_errors():
    made = schedule("1f1b", 2, 4)
    params, (x, targets) = models.weights_of(made), models.vectors(8)
    step = models.of_vectors(made)
    with pytest.raises(TypeError, match="computed the gradients already"):
        jax.grad(lambda w: step(w, x, targets)[0])(params)
    with pytest.raises(ValueError, match="6 examples cannot be shared out among 4 microbatches(.|\n)*add 2"):
        step(params, x[:6], targets[:6])
    with pytest.raises(ValueError, match="for 2 ranks, but the axis 'stage' has 4(.|\n)*make it for 4"):
        models.of_vectors(made, mesh=models.mesh(4))(models.weights_of(schedule("1f1b", 4, 4)), x, targets)
    with pytest.raises(ValueError, match="each rank has 2 stages"):
        models.of_vectors(schedule("zbv", 2, 4))(params, x, targets)
    with pytest.raises(ValueError, match=r"it took float32\[2, 8\], but returned float32\[2\]"):
        options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2)}
        value_and_grad(lambda w, x: x[:, 0], models.squares, **options)(params, x, targets)
    with pytest.raises(TypeError, match="such as peerax.pipeline.schedule"):
        models.of_vectors(made, mesh=None, schedule="1f1b")
    with pytest.raises(ValueError, match="mean, sum or weighted"):
        models.of_vectors(made, reduction="average")
    with pytest.raises(ValueError, match="shortest, one, all"):
        models.of_vectors(made, ticks="two")
    with pytest.raises(ValueError, match="ranks have"):
        models.of_vectors(Schedule.from_csv("0F0,0B0\n1F0,2F0,2B0,1B0\n"))
    for data_axes in ((), "data"):
        with pytest.raises(peerax.PeeraxError) as info:
            models.of_vectors(made, mesh=None, data_axes=data_axes)(params, x, targets)
        assert info.value.code == "PX104"


def test_errors_of_what_functions_return_and_are_given():
    made = schedule("1f1b", 2, 4)
    params, (x, targets) = models.weights_of(made), models.vectors(8)
    options = {"schedule": made, "axis_name": "stage", "mesh": models.mesh(2)}

    def call(loss=models.squares, targets=targets, batch=x, **more):
        return value_and_grad(models.stage, loss, **{**options, **more})(params, batch, targets)

    with pytest.raises(ValueError, match="batch has 8 examples, but targets have 4"):
        call(targets=targets[:4])
    with pytest.raises(ValueError, match=r"the loss of a microbatch is a scalar, but .* \(2, 8\)"):
        call(lambda y, targets: (y - targets) ** 2)
    with pytest.raises(TypeError, match="the loss of a microbatch is a scalar, not NoneType"):
        call(lambda y, targets: None)
    with pytest.raises(TypeError, match="remat is True, False or a policy such as .*, not 'all'"):
        call(remat="all")
    with pytest.raises(ValueError, match="'stage' is the axis of the stages, and no axis of the data"):
        call(data_axes="stage")
    with pytest.raises(ValueError, match="a loss is of a floating type, and not int32"):
        call(lambda y, targets: jnp.int32(1))
    with pytest.raises(ValueError, match="the weight of a microbatch is a scalar"):
        call(lambda y, targets: (jnp.sum(y - targets), jnp.ones(2)), reduction="weighted")
    with pytest.raises(TypeError, match="params are .*, since there is embed_fn or head_fn; not dict"):
        call(embed_fn=lambda shared, batch: batch)
    with pytest.raises(TypeError, match=r"loss_fn returns \(sum, weight\), since reduction='weighted'; not an array"):
        call(reduction="weighted")
    with pytest.raises(TypeError, match=r"stage_fn returns \(y, aux\), since has_aux=True; not an array"):
        call(has_aux=True)
    with pytest.raises(ValueError, match=r"the mesh has the axes \('stage',\), but not 'data'"):
        call(data_axes="data")
    mesh = jax.make_mesh((2, 2), ("stage", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with pytest.raises(ValueError, match="3 examples in each of 2 shards cannot .* 4 microbatches(.|\n)*add 2 that"):
        call(batch=x[:6], targets=targets[:6], mesh=mesh, data_axes="data")
