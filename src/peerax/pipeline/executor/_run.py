"""One call of a pipeline, within shard_map: from its arguments to the loop, and from what is left to the results."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops import location
from peerax.pipeline.executor._engine import Engine, Functions, OwnTimeEngine, State
from peerax.pipeline.executor._own_time import in_rows
from peerax.pipeline.executor._rng import Rng
from peerax.pipeline.executor._stages import Stage, stage
from peerax.pipeline.executor._tables import own_time_table, table
from peerax.pipeline.executor._ticks import in_ticks
from peerax.pipeline.executor._trees import is_floating, varying_like
from peerax.pipeline.schedules import Schedule


class Aux(NamedTuple):
    """What the functions of a pipeline returned besides.

    With data axes, each microbatch is there once for each shard of the data.

    Args:
        stages: of stage_fn, with (stages, microbatches) in front; stages in the order of the parameters.
        loss: of loss_fn, with (microbatches,) in front.
    """

    stages: Any
    loss: Any


class Plan:
    """All that is given before the arguments; see value_and_grad."""

    fill = 0.0  # what is in slots before something is written there; tests take NaN

    def __init__(
        self,
        stage_fn: Callable[..., Any],
        loss_fn: Callable[..., Any],
        schedule: Schedule,
        axis_name: Any,
        embed_fn: Callable[..., Any] | None,
        head_fn: Callable[..., Any] | None,
        data_axes: Sequence[Any] | str,
        remat: bool | Callable[..., Any],
        has_aux: bool,
        reduction: str,
        ticks: str,
        strategy: str,
    ) -> None:
        if reduction not in ("mean", "sum", "weighted"):
            raise ValueError(f"reduction is mean, sum or weighted, not {reduction!r}")
        if strategy not in ("exchange", "p2p"):
            raise ValueError(f"strategy is exchange or p2p, not {strategy!r}")
        if strategy == "p2p" and ticks != "shortest":
            raise ValueError(
                f"ticks={ticks!r} is for strategy='exchange': with p2p there are none\n  help: leave it out"
            )
        if not isinstance(remat, bool) and not callable(remat):
            raise TypeError(
                f"remat is True, False or a policy such as jax.checkpoint_policies.dots_saveable, not {remat!r}"
            )
        self.data_axes = (data_axes,) if isinstance(data_axes, str) else tuple(data_axes)
        if axis_name in self.data_axes:
            raise ValueError(f"{axis_name!r} is the axis of the stages, and no axis of the data")
        counts = [schedule.placement.count(rank) for rank in range(schedule.ranks)]
        if len(set(counts)) > 1:
            raise ValueError(f"{schedule.name}: ranks have {counts} stages, but each must have as many as the others")
        self.stage_fn, self.loss_fn, self.embed_fn, self.head_fn = stage_fn, loss_fn, embed_fn, head_fn
        self.schedule, self.axis_name, self.remat, self.has_aux = schedule, axis_name, remat, has_aux
        self.reduction = reduction
        self.axes = (axis_name, *self.data_axes)
        self.has_shared = embed_fn is not None or head_fn is not None
        self.strategy = strategy
        self.ticks = in_ticks(schedule, ticks) if strategy == "exchange" else ()
        if strategy == "p2p":
            in_rows(schedule)  # raises where the function is made, not where it is called

    def parts(self, params: Any) -> tuple[Any, Any]:
        """Return the parameters of stages, and the shared ones."""
        if not self.has_shared:
            return params, ()
        return _pair(params, "params are (those of stages, shared ones), since there is embed_fn or head_fn")


def _scalar(value: Any, what: str) -> Any:
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"the {what} of a microbatch is a scalar, not {type(value).__name__}") from None
    if value.shape != ():
        raise ValueError(
            f"the {what} of a microbatch is a scalar, but loss_fn returned one of {value.shape}\n"
            "  help: take the mean or the sum over examples"
        )
    return value


def _pair(made: Any, wanted: str) -> tuple[Any, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError(f"{wanted}; not {'an array' if hasattr(made, 'shape') else type(made).__name__}")
    return made


class Run:
    """A plan and its arguments, which are those of one rank."""

    def __init__(self, plan: Plan, params: Any, batch: Any, targets: Any, rng: Any, site: str) -> None:
        self.plan, self.rng = plan, rng
        self._check_axis(site)
        self.chunks, self.microbatches = plan.schedule.chunks, plan.schedule.microbatches
        self.like = plan.parts(params)
        weights, shared = self.like
        for leaf in jax.tree.leaves(weights):
            if leaf.ndim < 1 or leaf.shape[0] != self.chunks:
                raise ValueError(
                    f"{plan.schedule.name}: each rank has {self.chunks} stages, so parameters have {self.chunks} in "
                    f"front there, not {leaf.shape}\n  help: make them by peerax.pipeline.stack_stages"
                )
        if not all(map(is_floating, jax.tree.leaves(self.like))):
            raise TypeError("parameters are of floating types: others have no gradient")
        self.weights, self.shared = self._everywhere(weights), self._everywhere(shared)
        self.batch, self.size = self._split(batch, "batch")
        self.targets, size = self._split(targets, "targets")
        if jax.tree.leaves(batch) and jax.tree.leaves(targets) and size != self.size:
            raise ValueError(
                f"batch has {self.size * self.microbatches} examples, but targets have {size * self.microbatches}"
            )

    def value_and_grad(self) -> Any:
        """Return (loss, grads), or ((loss, aux), grads)."""
        state = self._loop(self._traced())
        loss, scale = self._reduced(state)

        def finished(sums, like, axes):
            total = lax.psum(sums, axes) if axes else sums
            return (total * scale.astype(total.dtype)).astype(like.dtype)

        d_weights = jax.tree.map(lambda s, w: finished(s, w, self.plan.data_axes), state["stages"], self.like[0])
        d_shared = jax.tree.map(lambda s, w: finished(s, w, self.plan.axes), state["shared"], self.like[1])
        grads = (d_weights, d_shared) if self.plan.has_shared else d_weights
        return self._with_aux(loss, state), grads

    def evaluate(self) -> Any:
        """Return the loss, or (loss, aux)."""
        state = self._loop(self._forward_only())
        return self._with_aux(self._reduced(state)[0], state)

    def _check_axis(self, site: str) -> None:
        plan, size = self.plan, _jax.axis_sizes().get(self.plan.axis_name)
        if size is None:
            raise PeeraxError.of(
                "PX104",
                f"a pipeline along {plan.axis_name!r}, which is no manual axis here",
                locations=(location(site),),
                help="give value_and_grad the mesh, or call what it returns in a shard_map over that axis",
            )
        if size != plan.schedule.ranks:
            raise ValueError(
                f"the schedule {plan.schedule.name} is for {plan.schedule.ranks} ranks, but the axis "
                f"{plan.axis_name!r} has {size}\n  help: make it for {size} ranks"
            )

    def _everywhere(self, tree: Any) -> Any:
        """Nothing is summed over ranks before the end: everything counts as different from rank to rank."""
        return jax.tree.map(lambda leaf: _jax.make_varying(leaf, self.plan.axes), tree)

    def _split(self, tree: Any, name: str) -> tuple[Any, int]:
        """Example e is in microbatch e mod microbatches: so examples that are sharded stay where they are."""
        leaves = jax.tree.leaves(tree)
        sizes = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
        if leaves and (len(sizes) > 1 or None in sizes):
            raise ValueError(f"{name}: all arrays have the examples in front, as many of them, not {sizes}")
        size, count = sizes.pop() if leaves else 0, self.microbatches
        if size % count:
            shards = self._shards()
            in_each = f" in each of {shards} shards" if shards > 1 else ""
            raise ValueError(
                f"{name}: {size} examples{in_each} cannot be shared out among {count} microbatches\n  help: add "
                f"{-size % count * shards} that do not count, of weight 0 with reduction='weighted'"
            )
        split = jax.tree.map(lambda x: x.reshape(size // count, count, *x.shape[1:]), tree)
        return self._everywhere(split), size // count

    def _shards(self) -> int:
        """Among how many ranks the data are shared out."""
        return math.prod(_jax.axis_sizes()[axis] for axis in self.plan.data_axes)

    def _of(self, tree: Any, microbatch: Any) -> Any:
        return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, microbatch, 1, keepdims=False), tree)

    def _context(self, stage_number: Any, microbatch: Any) -> tuple[Rng, ...]:
        if self.rng is None:
            return ()
        shard = lax.axis_index(self.plan.data_axes) if self.plan.data_axes else 0
        first = shard * self.size * self.microbatches
        examples = first + jnp.arange(self.size, dtype=jnp.int32) * self.microbatches + microbatch
        return self._everywhere((Rng(self.rng, jnp.asarray(stage_number, jnp.int32), examples),))

    def _embed(self, shared: Any, microbatch: Any) -> Any:
        raw = self._of(self.batch, microbatch)
        if self.plan.embed_fn is None:
            return raw
        return self.plan.embed_fn(shared, raw, *self._context(-1, microbatch))

    def _stage(self, weights: Any, x: Any, context: tuple[Rng, ...]) -> tuple[Any, Any]:
        made = self.plan.stage_fn(weights, x, *context)
        y, aux = _pair(made, "stage_fn returns (y, aux), since has_aux=True") if self.plan.has_aux else (made, None)
        y = jax.tree.map(jnp.asarray, y)
        got, wanted = (jax.tree.map(lambda a: f"{a.dtype.name}{[*a.shape]}", tree) for tree in (y, x))
        if got != wanted:
            raise ValueError(f"a stage returns what the next one takes: it took {wanted}, but returned {got}")
        return varying_like(y, x), aux

    def _loss(self, shared: Any, y: Any, microbatch: Any) -> Any:
        plan = self.plan
        made = y if plan.head_fn is None else plan.head_fn(shared, y)
        made = plan.loss_fn(made, self._of(self.targets, microbatch))
        made, aux = _pair(made, "loss_fn returns (loss, aux), since has_aux=True") if plan.has_aux else (made, None)
        loss, weight = made, jnp.float32(1)
        if plan.reduction == "weighted":
            loss, weight = _pair(made, "loss_fn returns (sum, weight), since reduction='weighted'")
        loss, weight = _scalar(loss, "loss"), _scalar(weight, "weight")
        if not jnp.issubdtype(loss.dtype, jnp.floating):
            raise ValueError(f"a loss is of a floating type, and not {loss.dtype}")
        # One that is the same on all shards of the data is a part of the whole loss on each of them.
        loss = self._everywhere(loss)
        return (loss, lax.stop_gradient(weight)), aux

    def _examples(self) -> tuple[Any, Any, Any]:
        """Return a microbatch of the first stage: only types matter."""
        weights, zero = jax.tree.map(lambda leaf: leaf[0], self.weights), jnp.int32(0)
        context = self._context(zero, zero)
        x = self._everywhere(self._embed(self.shared, zero))
        if _jax.tracks_varying():
            # What arrives differs along all axes that what a stage returns differs along.
            made, shapes = jax.make_jaxpr(self._stage, return_shape=True)(weights, x, context)
            y, _ = jax.tree.unflatten(jax.tree.structure(shapes), made.out_avals)
            x = varying_like(x, y)
        return weights, x, context

    def _traced(self) -> Stage:
        fn, remat = self._stage, self.plan.remat
        if remat is not False:
            fn = jax.checkpoint(fn, policy=None if remat is True else remat)
        schedule = self.plan.schedule
        halves = any(leaf.kind == "W" for rank in range(schedule.ranks) for leaf in schedule.leaves(rank))
        return stage(fn, *self._examples(), split=halves)

    def _forward_only(self) -> Stage:
        made, shapes = jax.make_jaxpr(self._stage, return_shape=True)(*self._examples())
        y, aux = jax.tree.unflatten(jax.tree.structure(shapes), made.out_avals)

        def forward(*operands):
            return *self._stage(*operands), [], []

        return Stage(forward, y=y, aux=aux)

    def _loop(self, traced: Stage) -> State:
        plan = self.plan
        functions = Functions(traced, self._embed, self._loss, self._context, self.weights, self.shared)
        engine = Engine
        if plan.strategy == "p2p":
            engine, made = OwnTimeEngine, own_time_table(plan.schedule, traced.keeps)
        else:
            made = table(plan.schedule, plan.ticks, traced.keeps)
        return engine(made, functions, plan.axis_name, self.microbatches, self.chunks, plan.fill).run()

    def _reduced(self, state: State) -> tuple[Any, Any]:
        """Return the loss, and what gradients are multiplied by."""
        plan = self.plan
        if plan.reduction == "weighted":
            scale = 1 / lax.psum(state["weight"], plan.axes)
        elif plan.reduction == "mean":
            scale = jnp.float32(1 / (self.microbatches * self._shards()))
        else:
            scale = jnp.float32(1)
        return lax.psum(state["loss"], plan.axes) * scale, scale

    def _with_aux(self, loss: Any, state: State) -> Any:
        if not self.plan.has_aux:
            return loss

        def of_last(x):
            # All other ranks have zeros.
            summed = x.astype(jnp.int32) if x.dtype == bool else x
            return lax.psum(summed, self.plan.axis_name).astype(x.dtype)

        return loss, Aux(state["aux"], jax.tree.map(of_last, state["loss_aux"]))
