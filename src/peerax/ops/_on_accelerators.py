"""What communicating equations become on GPU and TPU, where XLA runs one schedule on all devices.

A pair is one of XLA's collectives, collective-permute, and needs no order of ours: a tie would only cost overlap. A
separate operation is a StableHLO send or recv on GPUs. In a body that has one, all communication is ordered, by
optimization barriers. TPUs have nothing for a separate operation.
"""

import jax.numpy as jnp
from jax import lax

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._body import Body
from peerax.ops._order import order_p
from peerax.ops._site import location


class OnAccelerator(Body):
    """The handle is (), or a float32 scalar in a body with separate operations."""

    def exchange(self, send, receive, handle, token, values, is_spent):
        axes, perm = send.params["axes"], send.params["perm"]

        def permute(handle, *values):
            return handle, [lax.ppermute(x, axes, perm) for x in values]

        return self._in_order(permute, handle, values)

    def collective(self, eqn, handle, values):
        return self._in_order(lambda handle, *values: (handle, _jax.rebind(eqn, values)), handle, values)

    def order(self, *values):
        return order_p.bind(*values)  # an optimization_barrier, which gives each value its own type

    def _in_order(self, operation, handle, values):
        if isinstance(handle, tuple):
            return operation(handle, *values)
        handle, *values = self.order(handle, *values)
        handle, results = operation(handle, *values)
        handle, *results = self.order(handle, *results)
        return handle, results


class OnGpu(OnAccelerator):
    """Separate operations are send and recv."""

    def send(self, eqn, handle, token, values, pair=-1):
        handle, _ = self.order(handle, token)
        pairs = self._pairs(eqn)
        for x in values if pairs else ():  # XLA:GPU aborts the process if there are none
            handle = accelerator_send_p.bind(handle, x, pairs=pairs)
        return handle

    def receive(self, eqn, handle, token, pair=-1):
        handle, _ = self.order(handle, token)
        results = []
        pairs = self._pairs(eqn)
        for (shape, dtype), v in zip(eqn.params["shapes"], eqn.outvars, strict=True):
            varying = _jax.varying(v.aval)
            if pairs:
                handle, y = accelerator_receive_p.bind(handle, shape=shape, dtype=dtype, varying=varying, pairs=pairs)
            else:
                y = _jax.make_varying(jnp.zeros(shape, dtype), tuple(varying))
            results.append(y)
        return handle, results

    def _pairs(self, eqn) -> tuple[tuple[int, int], ...]:
        destination, _ = self.ranks.ends(eqn.params["axes"], eqn.params["perm"])
        return tuple((s, d) for s, d in enumerate(destination) if d >= 0)


class OnTpu(OnAccelerator):
    """There are no separate operations."""

    def send(self, eqn, handle, token, values, pair=-1):
        raise self._refused("psend", eqn)

    def receive(self, eqn, handle, token, pair=-1):
        raise self._refused("precv", eqn)

    def _refused(self, name: str, eqn) -> PeeraxError:
        return PeeraxError.of(
            "PX213",
            f"this {name} is separate, and a TPU has pairs only",
            locations=(location(eqn.params["site"]),),
        )


def order_handle():
    """The first handle of a body whose communication is ordered."""
    return lax.full((), 0, jnp.float32)


# The separate operations of GPUs.


def _accelerator_handle_aval(handle):
    return _jax.local_aval(handle.shape, handle.dtype, frozenset())


accelerator_send_p = _jax.Primitive("peerax_accelerator_send")
accelerator_send_p.def_effectful_abstract_eval(
    lambda handle, x, *, pairs: (_accelerator_handle_aval(handle), {_jax.communication})
)
accelerator_receive_p = _jax.Primitive("peerax_accelerator_receive")
accelerator_receive_p.multiple_results = True
accelerator_receive_p.def_effectful_abstract_eval(
    lambda handle, *, shape, dtype, varying, pairs: (
        [_accelerator_handle_aval(handle), _jax.local_aval(shape, dtype, varying)],
        {_jax.communication},
    )
)


def _accelerator_send_lowering(ctx, handle, x, *, pairs):
    return [_jax.emit_send(handle, x, pairs)]


def _accelerator_receive_lowering(ctx, handle, *, pairs, **type_):
    return _jax.emit_receive(ctx, handle, ctx.avals_out[1], pairs)


_jax.mlir.register_lowering(accelerator_send_p, _accelerator_send_lowering)
_jax.mlir.register_lowering(accelerator_receive_p, _accelerator_receive_lowering)
