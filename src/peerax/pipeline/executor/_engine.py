"""One loop over the ticks of a table, the same on every rank.

What a rank does in a tick is read from its rows. Each step is a loop of one round or none, and not a branch: a loop
works on its operands where they are, while a branch copies what it passes on. So rings and sums go through steps at no
cost, and what is in the program once runs only on the ranks and in the ticks that need it. For that, what a step
computes must depend on what its loop counts, or XLA moves it out of the loop, and all ranks compute it in all ticks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from peerax import _jax, ops
from peerax.pipeline.executor._stages import Stage
from peerax.pipeline.executor._tables import Table, positions
from peerax.pipeline.executor._trees import add_to, is_floating, read, varying_like, with_floating, write, zeros

State = dict[str, Any]


@dataclass(frozen=True)
class Functions:
    """What the steps call, and with what.

    Args:
        stage: the traced stage; without a backward only its `forward` is called.
        embed: (shared, microbatch) -> x of the first stage.
        loss: (shared, y, microbatch) -> ((loss, weight), aux).
        context: (stage, microbatch) -> what a stage depends on besides.
        weights: parameters of the stages of this rank, with the chunk in front.
        shared: parameters that all ranks have.
    """

    stage: Stage
    embed: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any, Any], Any]
    context: Callable[[Any, Any], Any]
    weights: Any
    shared: Any


class Engine:
    """Run a table.

    Args:
        table: what each rank does.
        functions: what the steps call.
        axis_name: along which the ranks are.
        microbatches, chunks: how many there are.
        fill: what is in slots and buffers before something is written there; tests take NaN.
    """

    def __init__(
        self, table: Table, functions: Functions, axis_name: Any, microbatches: int, chunks: int, fill: float = 0.0
    ) -> None:
        self.table, self.f, self.axis_name = table, functions, axis_name
        self.microbatches, self.chunks, self.fill = microbatches, chunks, fill
        self.at = positions(table.columns)

    def run(self) -> State:
        """Return the sums and what else is left at the end."""
        rows = jnp.asarray(np.asarray(self.table.rows, np.int32))
        mine = lax.dynamic_index_in_dim(rows, lax.axis_index(self.axis_name), 1, keepdims=False)

        def tick(state, row):
            row = {name: row[number] for name, number in self.at.items()}
            return self._round(state, row), None

        return lax.scan(tick, self._begin(), mine)[0]

    def _round(self, state, row):
        for step in self._steps():
            state = step(state, row)
        return self._exchange(state, row)

    def _begin(self) -> State:
        stage, slots, y = self.f.stage, self.table.slots, self.f.stage.y

        def ring(types, name):
            return self._everywhere(jax.tree.map(lambda aval: zeros(aval, (slots[name] + 1,), fill=self.fill), types))

        scalar = self._everywhere(jnp.float32(0))
        state = {
            "out": [jax.tree.map(lambda aval: zeros(aval, fill=self.fill), y) for _ in range(self.table.buffers)],
            "message": ring(y, "message"),
            "left": _jax.make_varying(jnp.int32(0), (self.axis_name,)),
            "loss": scalar,
            "weight": scalar,
            "aux": self._everywhere(
                jax.tree.map(lambda aval: zeros(aval, (self.chunks, self.microbatches)), stage.aux)
            ),
            "loss_aux": self._everywhere(
                jax.tree.map(lambda aval: zeros(aval, (self.microbatches,)), self._loss_types()[1])
            ),
        }
        if self.table.has:
            state |= {
                "input": ring(stage.input, "input"),
                "both": ring(stage.both, "both"),
                "between": ring(stage.between, "between"),
                "stages": self._sums(self.f.weights),
                "shared": self._sums(self.f.shared),
            }
        return state

    def _sums(self, tree):
        return self._everywhere(jax.tree.map(lambda leaf: zeros(leaf, dtype=sum_dtype(leaf.dtype)), tree))

    def _everywhere(self, tree):
        """What each rank writes by itself differs from rank to rank, as the messages do."""
        varying = frozenset({self.axis_name})
        for leaf in jax.tree.leaves(self.f.stage.y):
            varying |= _jax.varying(leaf)
        return jax.tree.map(lambda leaf: _jax.make_varying(leaf, tuple(varying)), tree)

    def _loss_types(self):
        y = jax.tree.map(zeros, self.f.stage.y)
        made = jax.make_jaxpr(lambda shared, y: self.f.loss(shared, y, 0), return_shape=True)(self.f.shared, y)
        return jax.tree.unflatten(jax.tree.structure(made[1]), made[0].out_avals)

    def _steps(self):
        has = self.table.has
        yield self._embed
        yield self._forward
        yield self._loss
        if has & {"B"}:
            yield self._backward
        if has & {"I"}:
            yield self._input_half
        if has:
            yield self._embed_backward
        if has & {"W"}:
            yield self._weights_half

    def _embed(self, state, row):
        def step(carry, row):
            x = self.f.embed(self.f.shared, row["forward_microbatch"])
            return {"message": write(carry["message"], row["forward_x"], x)}

        return _run_if(row["embed"], step, state, row, "message")

    def _forward(self, state, row):
        def step(carry, row):
            chunk, microbatch = row["forward_chunk"], row["forward_microbatch"]
            x = read(carry["message"], row["forward_x"])
            context = self.f.context(row["forward_stage"], microbatch)
            y, aux, kept_input, kept_both = self.f.stage.forward(read(self.f.weights, chunk), x, context)
            made = {"out": [y, *carry["out"][1:]], "message": carry["message"]}
            made["aux"] = jax.tree.map(lambda all_, new: _put(all_, (chunk, microbatch), new), carry["aux"], aux)
            if self.table.has:
                made["input"] = write(carry["input"], row["forward_input"], kept_input)
                made["both"] = write(carry["both"], row["forward_both"], kept_both)
            if self.table.stays:
                made["message"] = write(carry["message"], row["forward_to"], y)
            return made

        names = ("out", "message", "aux", *(("input", "both") if self.table.has else ()))
        return _run_if(row["forward"], step, state, row, *names)

    def _loss(self, state, row):
        def step(carry, row):
            y, microbatch = carry["out"][0], row["forward_microbatch"]
            made = dict(carry)
            if not self.table.has:
                (loss, weight), aux = self.f.loss(self.f.shared, y, microbatch)
            else:

                def differentiated(shared, moving):
                    (loss, weight), aux = self.f.loss(shared, with_floating(y, moving), microbatch)
                    return loss, (weight, aux)

                moving = [leaf for leaf in jax.tree.leaves(y) if is_floating(leaf)]
                loss, pull, (weight, aux) = jax.vjp(differentiated, self.f.shared, moving, has_aux=True)
                d_shared, dy = pull(varying_like(jnp.ones_like(loss), loss))
                made["shared"] = _add(carry["shared"], d_shared)
                made["message"] = write(carry["message"], row["loss_dy"], with_floating(y, dy))
            made["loss"] = _add(carry["loss"], loss)
            made["weight"] = _add(carry["weight"], weight)
            made["loss_aux"] = jax.tree.map(lambda all_, new: _put(all_, (microbatch,), new), carry["loss_aux"], aux)
            return made

        names = ("loss", "weight", "loss_aux", *(("shared", "message") if self.table.has else ()))
        return _run_if(row["loss"], step, state, row, *names, reads=("out",))

    def _operands(self, carry, row, word):
        chunk = row[f"{word}_chunk"]
        x = read(carry["message"], row[f"{word}_x"])
        dy = read(carry["message"], row[f"{word}_dy"])
        context = self.f.context(row[f"{word}_stage"], row[f"{word}_microbatch"])
        return read(self.f.weights, chunk), x, context, dy

    def _kept(self, state, row):
        """What the forward has left for the backward."""
        return read(state["input"], row["backward_input"]), read(state["both"], row["backward_both"])

    def _returned(self, carry, row, dx):
        """What goes to the stage before."""
        made = {"out": [*carry["out"][:-1], dx], "message": carry["message"]}
        if self.table.stays:
            made["message"] = write(carry["message"], row["backward_to"], dx)
        return made

    def _backward(self, state, row):
        def step(carry, row):
            weights, x, context, dy = self._operands(carry, row, "backward")
            kept = self._kept(state, row)
            d_weights, dx = self.f.stage.backward(weights, x, context, *kept, dy)
            sums = add_to(carry["stages"], row["backward_chunk"], d_weights)
            return self._returned(carry, row, dx) | {"stages": sums}

        on = row["backward"] * (1 - row["half"])
        return _run_if(on, step, state, row, "out", "message", "stages")

    def _input_half(self, state, row):
        def step(carry, row):
            weights, x, context, dy = self._operands(carry, row, "backward")
            kept = self._kept(state, row)
            dx, between = self.f.stage.input_half(weights, x, context, *kept, dy)
            between = write(carry["between"], row["backward_between"], between)
            return self._returned(carry, row, dx) | {"between": between}

        return _run_if(row["backward"] * row["half"], step, state, row, "out", "message", "between")

    def _weights_half(self, state, row):
        def step(carry, row):
            weights, x, context, dy = self._operands(state, row, "weights")
            both = read(state["both"], row["weights_both"])
            between = read(state["between"], row["weights_between"])
            d_weights = self.f.stage.weights_half(weights, x, context, both, dy, between)
            return {"stages": add_to(carry["stages"], row["weights_chunk"], d_weights)}

        return _run_if(row["weights"], step, state, row, "stages")

    def _embed_backward(self, state, row):
        if not jax.tree.leaves(self.f.shared):
            return state

        def step(carry, row):
            dx = [leaf for leaf in jax.tree.leaves(carry["out"][-1]) if is_floating(leaf)]

            def embed(shared):
                x = varying_like(self.f.embed(shared, row["backward_microbatch"]), self.f.stage.y)
                return [leaf for leaf in jax.tree.leaves(x) if is_floating(leaf)]

            (d_shared,) = jax.vjp(embed, self.f.shared)[1](dx)
            return {"shared": _add(carry["shared"], d_shared)}

        return _run_if(row["embed_backward"], step, state, row, "shared", reads=("out",))

    def _exchange(self, state, row):
        """Send in all directions, then receive, so that messages are on their way at the same time."""
        channels = self.table.channels
        tokens = [ops.psend(state["out"][c.buffer], self.axis_name, c.perm, tag=n) for n, c in enumerate(channels)]
        message = state["message"]
        for number, (token, channel) in enumerate(zip(tokens, channels, strict=True)):
            sent = jax.tree.map(jax.typeof, state["out"][channel.buffer])
            arrived = ops.precv(token, sent, self.axis_name, channel.perm, tag=number)
            # What is left of the last step is 0. It says to the compiler that all slots have been read, or it would
            # copy the whole ring.
            message = write(message, row[f"arrival_{number}"] + state["left"], arrived)
        return state | {"message": message}


class OwnTimeEngine(Engine):
    """Run the table of ranks that are not in step: sends and receives are separate, and take place where rows say so.

    Nothing in the loop is done by all ranks together, so a rank waits for what it receives only.
    """

    def _begin(self):
        return super()._begin() | {"token": ops.create_token()}

    def _round(self, state, row):
        channels = [*enumerate(self.table.channels)]
        for number, channel in channels:
            state = self._receive(state, row, number, channel)
        for step in self._steps():
            state = step(state, row)
        for number, channel in channels:
            state = self._send(state, row, number, channel)
        return state

    def _receive(self, state, row, number, channel):
        def step(carry, row):
            types = jax.tree.map(jax.typeof, state["out"][channel.buffer])
            arrived = ops.precv(carry["token"], types, self.axis_name, channel.perm, tag=number)
            return carry | {"message": write(carry["message"], row[f"arrival_{number}"], arrived)}

        return _run_if(row[f"receive_{number}"], step, state, row, "message", "token")

    def _send(self, state, row, number, channel):
        def step(carry, row):
            out = carry["out"][channel.buffer]
            token = ops.psend(out, self.axis_name, channel.perm, token=carry["token"], tag=number)
            return {"token": token}

        return _run_if(row[f"send_{number}"], step, state, row, "token", reads=("out",))


def sum_dtype(dtype: Any) -> Any:
    """Return the type in which values of a type are summed up: float32 at least."""
    return dtype if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def _run_if(
    on: Any, step: Callable[[State, State], State], state: State, row: State, *names: str, reads: tuple[str, ...] = ()
) -> State:
    """Return the state after a step, which changes these names, if on is 1; if it is 0, the state itself.

    The step is given what it changes and reads, and the row; other slots it reads at places that are in the row.
    """
    fixed = {name: state[name] for name in reads}

    def round_(carry):
        left, changing = carry
        # The same values, but not for a compiler that moves out of a loop what is the same in each round.
        row_ = {name: value + (left - on) for name, value in row.items()}
        fixed_ = jax.tree.map(lambda leaf: _where(left > 0, leaf), fixed)
        made = step(fixed_ | changing, row_)
        return left - 1, {name: varying_like(made[name], changing[name]) for name in names}

    left, changed = lax.while_loop(lambda carry: carry[0] > 0, round_, (on, {name: state[name] for name in names}))
    return state | changed | {"left": left}


def _where(condition: Any, leaf: Any) -> Any:
    """Return a leaf, or zeros; only what is computed with, which is floating, matters."""
    return jnp.where(condition, leaf, jnp.zeros_like(leaf)) if is_floating(leaf) else leaf


def _add(sums: Any, more: Any) -> Any:
    return jax.tree.map(lambda old, new: old + new.astype(old.dtype), sums, more)


def _put(all_: Any, at: tuple[Any, ...], new: Any) -> Any:
    """Return an array with another value at a place along its first dimensions."""
    new = jnp.asarray(new)[(None,) * len(at)]
    start = (*at, *[0] * (new.ndim - len(at)))
    return lax.dynamic_update_slice(all_, new.astype(all_.dtype), [jnp.asarray(s, jnp.int32) for s in start])
