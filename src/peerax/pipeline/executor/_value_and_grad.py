"""value_and_grad and evaluate: a pipeline under shard_map, or over a mesh."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.ops import user_site
from peerax.pipeline.executor._run import Aux, Plan, Run
from peerax.pipeline.executor._ticks import forwards_only
from peerax.pipeline.schedules import Schedule


def value_and_grad(
    stage_fn: Callable[..., Any],
    loss_fn: Callable[..., Any],
    *,
    schedule: Schedule,
    axis_name: str,
    mesh: Any = None,
    embed_fn: Callable[..., Any] | None = None,
    head_fn: Callable[..., Any] | None = None,
    data_axes: Sequence[str] | str = (),
    remat: bool | Callable[..., Any] = True,
    has_aux: bool = False,
    reduction: Literal["mean", "sum", "weighted"] = "mean",
    ticks: Literal["shortest", "one", "all"] = "shortest",
    strategy: Literal["exchange", "p2p"] = "exchange",
) -> Callable[..., Any]:
    """Return a function that computes the loss of a pipeline and its gradients, in the order of a schedule.

    The numbers are those of `jax.value_and_grad` of embed_fn, all stages after each other, head_fn and loss_fn. What is
    kept does not grow with the number of microbatches, unless the schedule says so.

    Args:
      stage_fn: (parameters of a stage, x) -> y. x may be any pytree of arrays, and y is of the same types, since the
        next stage takes it. An auxiliary loss, of experts for example, may be a part of x that stages add to.
      loss_fn: (y of the last stage, targets) -> loss of a microbatch, a scalar.
      schedule: says what is done when; see peerax.pipeline.schedule.
      axis_name: mesh axis along which the stages are.
      mesh: the function may then be called outside of shard_map, with whole arrays; without it, inside of a shard_map
        that is manual over axis_name, and with the shards of a rank.
      embed_fn: (shared parameters, batch) -> x of the first stage; by default the batch is x itself.
      head_fn: (shared parameters, y) -> what loss_fn is given; by default y itself.
      data_axes: mesh axes along which examples are sharded. Gradients are summed over them once, at the end. Other axes
        may be automatic.
      remat: True keeps only what stages were given, and computes them again for the backward. False keeps what the
        backward needs of each forward, but no weights. A policy of jax.checkpoint_policies says what else is kept.
      has_aux: stage_fn returns (y, aux), and loss_fn (loss, aux).
      reduction: "mean" of the losses of microbatches, their "sum", or "weighted": loss_fn returns (sum, weight), and
        the loss is the sum of all sums over that of all weights. Weights have no derivative.
      ticks: how ranks are kept in step: with "one" action in each tick, with "all" that are ready, or whichever is
        shorter.
      strategy: "exchange" keeps ranks in step, with an exchange of messages at the end of each tick, on every backend.
        "p2p" lets each rank go through its list at its own pace, by sends and receives of two ranks only, so that a
        slow one delays only those that need something of it. It sends at once and receives as late as possible, unless
        sends and receives are written in the schedule; where sends wait (on GPUs, or with PEERAX_SEND=rendezvous) write
        them by `schedule.with_messages()`, which cannot hang. A TPU has no separate sends and receives (PX213).

    Returns:
      (params, batch, targets, rng=None) -> (loss, grads), or ((loss, Aux), grads).

      - params have the stages of a rank in front (see stack_stages); with embed_fn or head_fn they are a pair of these
        and shared parameters, which all ranks have, and which may be used in both: their gradient is summed.
      - batch and targets have the examples in front; example e is in microbatch e mod the number of microbatches.
      - rng is a key; stage_fn and embed_fn then get an Rng as their last argument.
      - loss is float32. grads have the types of params, and are summed up in float32 at least.

    Raises:
      ValueError: the schedule is for another number of ranks, or has faults (ScheduleError); examples cannot be shared
        out equally, or batch and targets have not as many; a stage does not return what it takes, or loss_fn no scalar;
        messages that are written in the schedule are in an order that strategy="p2p" cannot take.
      TypeError: params, or what a function returns, lack a part.
      PeeraxError: PX104 (no mesh is given, and axis_name is no manual axis here), PX213 (strategy="p2p" on a TPU).

    Transformations: jit yes · vmap no · grad no (it has computed the gradients) · scan yes

    Example:
      >>> step = peerax.pipeline.value_and_grad(stage, loss, schedule=made, axis_name="stage", mesh=mesh)
      >>> loss, grads = jax.jit(step)(params, batch, targets)
    """
    _check(schedule)
    plan = Plan(
        stage_fn, loss_fn, schedule, axis_name, embed_fn, head_fn, data_axes, remat, has_aux, reduction, ticks, strategy
    )
    return _callable(plan, mesh, gradients=True)


def evaluate(
    stage_fn: Callable[..., Any],
    loss_fn: Callable[..., Any],
    *,
    schedule: Schedule,
    axis_name: str,
    microbatches: int | None = None,
    mesh: Any = None,
    embed_fn: Callable[..., Any] | None = None,
    head_fn: Callable[..., Any] | None = None,
    data_axes: Sequence[str] | str = (),
    has_aux: bool = False,
    reduction: Literal["mean", "sum", "weighted"] = "mean",
    strategy: Literal["exchange", "p2p"] = "exchange",
) -> Callable[..., Any]:
    """Return a function that computes the loss of a pipeline, by forwards only.

    Args:
      stage_fn, loss_fn, axis_name, mesh, embed_fn, head_fn, data_axes, has_aux, reduction, strategy: as for
        value_and_grad.
      schedule: says on which rank each stage is.
      microbatches: how many there are; by default as many as in the schedule.

    Returns:
      (params, batch, targets, rng=None) -> loss, or (loss, Aux).

    Raises:
      ValueError, PeeraxError: as value_and_grad.

    Transformations: jit yes · vmap no · grad no (see value_and_grad) · scan yes

    Example:
      >>> loss = peerax.pipeline.evaluate(stage, loss, schedule=made, axis_name="stage", mesh=mesh)(params, x, targets)
    """
    _check(schedule)
    forwards = forwards_only(schedule, schedule.microbatches if microbatches is None else microbatches)
    plan = Plan(
        stage_fn,
        loss_fn,
        forwards,
        axis_name,
        embed_fn,
        head_fn,
        data_axes,
        False,
        has_aux,
        reduction,
        "shortest",
        strategy,
    )
    return _callable(plan, mesh, gradients=False)


def _check(schedule: Schedule) -> None:
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"schedule is a Schedule, not {schedule!r}\n  help: make one, such as "
            "peerax.pipeline.schedule('1f1b', ranks=4, microbatches=8)"
        )
    schedule.validate()


def _callable(plan: Plan, mesh: Any, gradients: bool) -> Callable[..., Any]:
    site = user_site()

    @jax.custom_vjp
    def run(params, batch, targets, rng):
        made = Run(plan, params, batch, targets, rng, site)
        return made.value_and_grad() if gradients else made.evaluate()

    def differentiated(*_):
        what = "value_and_grad has computed the gradients already" if gradients else "evaluate has no derivative"
        raise TypeError(f"{what}: it cannot be differentiated\n  help: use the gradients that value_and_grad returns")

    run.defvjp(differentiated, differentiated)

    def specs(stages, data):
        """Those of the operands, and of the results."""
        everywhere = PartitionSpec()
        of_params = (stages, everywhere) if plan.has_shared else stages
        result = (everywhere, Aux(PartitionSpec(*stages, *data), data)) if plan.has_aux else everywhere
        return (of_params, data, data, everywhere), (result, of_params) if gradients else result

    def inside(params, batch, targets, rng=None):
        # Summed over an automatic axis gradients would be in each tick, by XLA.
        automatic = tuple(axis for axis in plan.data_axes if axis not in _jax.axis_sizes())
        if not automatic or plan.axis_name not in _jax.axis_sizes():  # that is PX104
            return run(params, batch, targets, rng)
        in_specs, out_specs = specs(PartitionSpec(None), PartitionSpec(automatic))
        over = jax.shard_map(run, in_specs=in_specs, out_specs=out_specs, axis_names=set(automatic))
        return over(params, batch, targets, rng)

    if mesh is None:
        return inside
    if missing := [axis for axis in plan.axes if axis not in mesh.axis_names]:
        raise ValueError(f"the mesh has the axes {mesh.axis_names}, but not {', '.join(map(repr, missing))}")
    in_specs, out_specs = specs(PartitionSpec(plan.axis_name), PartitionSpec(plan.data_axes or None))
    whole = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=set(plan.axes)))

    def outside(params, batch, targets, rng=None):
        plan.parts(params)  # or it would be the specs of shard_map that do not fit
        return whole(params, batch, targets, rng)

    return outside
