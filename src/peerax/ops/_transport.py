"""What a shard_map body is rewritten to on CPU: operations that take the session's handle and give it on.

The handle, two uint32 and the same on all ranks, is made by begin and ends in end. It is a real data dependency from
each communicating operation to the next, which is what keeps them in program order on every rank.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from peerax import _jax
from peerax.runtime import load

HANDLE_SHAPE, HANDLE_DTYPE = (2,), jnp.uint32


class Operation(NamedTuple):
    """Static description of one operation; destination and source are indexed by rank, -1 for none."""

    kind: str
    name: str
    site: str
    receive_site: str = ""
    tag: int = 0
    pair: int = -1
    path: str = ""
    types: tuple[str, ...] = ()
    destination: tuple[int, ...] = ()
    source: tuple[int, ...] = ()
    in_place: tuple[bool, ...] = ()  # of an exchange, by leaf: whether the result takes the memory of the operand
    group: tuple[int, ...] = ()

    def attributes(self) -> dict:
        """Return the attributes of the FFI call."""
        fields = self._asdict()
        tables = {key: np.asarray(fields[key], np.int32) for key in ("destination", "source", "in_place", "group")}
        return {
            **fields,
            **tables,
            "tag": np.int64(self.tag),
            "pair": np.int64(self.pair),
            "types": ";".join(self.types),
        }


def _primitive(name: str, results) -> _jax.Primitive:
    """A primitive that keeps its place. results(*avals, **params) gives the avals after the handle's."""
    primitive = _jax.Primitive(f"peerax_{name}")
    primitive.multiple_results = True
    primitive.def_effectful_abstract_eval(
        lambda *avals, **params: (
            [_jax.local_aval(HANDLE_SHAPE, HANDLE_DTYPE, frozenset()), *results(*avals, **params)],
            {_jax.communication},
        )
    )
    return primitive


def _received(handle, token, *, operation, shapes, varying):
    return [_jax.local_aval(*shape, axes) for shape, axes in zip(shapes, varying, strict=True)]


def _exchanged(handle, *xs, operation, varying):
    return [_jax.local_aval(x.shape, x.dtype, axes) for x, axes in zip(xs, varying, strict=False)]


# begin waits for its operands, without touching them; send, receive and exchange wait for a token, their last operand
# (an exchange that was a ppermute has none); end passes its operands on. So whatever uses a result of one
# shard_map, another one in particular, starts after the end of the first.
begin_p = _primitive("begin", lambda *xs, size, devices: [])
end_p = _primitive("end", lambda handle, *xs: xs)
send_p = _primitive("send", lambda handle, *xs, operation: [])
receive_p = _primitive("receive", _received)
exchange_p = _primitive("exchange", _exchanged)
gather_p = _primitive("gather", lambda handle, *xs, operation: xs)

# Identity on its operands; see order. Without an effect: it is kept by whoever uses its results.
order_plain_p = _jax.Primitive("peerax_order_plain")
order_plain_p.multiple_results = True
order_plain_p.def_abstract_eval(lambda *avals: list(avals))


def _lower(target: str, ctx, operands, *, side_effect: bool = True, aliased: Iterable[int] = (), **attributes):
    """Emit one FFI call; results at the positions aliased take the memory of the operands there."""
    rule = jax.ffi.ffi_lowering(target, has_side_effect=side_effect, operand_output_aliases={i: i for i in aliased})
    return rule(ctx, *operands, **attributes)


def _begin_lowering(ctx, *operands, size, devices):
    ctx = ctx.replace(avals_in=[_jax.ShapedArray((), jnp.uint32), *ctx.avals_in])
    operands = [_jax.partition_id(), *operands]
    return _lower("peerax_begin", ctx, operands, size=np.int64(size), devices=np.int64(devices))


def _operation_lowering(target: str, passes_operands: bool, ctx, *operands, operation, **types):
    taken = [True] * (len(operands) - 1) if passes_operands else operation.in_place
    aliased = [0, *(i for i, is_taken in enumerate(taken, 1) if is_taken)]
    return _lower(target, ctx, operands, aliased=aliased, **operation.attributes())


def _order_plain_lowering(ctx, *operands):
    load()
    return _lower("peerax_order", ctx, operands, side_effect=False, aliased=range(len(operands)))


def _register(primitive, rule) -> None:
    _jax.mlir.register_lowering(primitive, rule, platform="cpu")


_register(begin_p, _begin_lowering)
_register(end_p, lambda ctx, *operands: _lower("peerax_end", ctx, operands, aliased=range(len(operands))))
_register(send_p, functools.partial(_operation_lowering, "peerax_send", False))
_register(receive_p, functools.partial(_operation_lowering, "peerax_receive", False))
_register(exchange_p, functools.partial(_operation_lowering, "peerax_exchange", False))
_register(gather_p, functools.partial(_operation_lowering, "peerax_gather", True))
_register(order_plain_p, _order_plain_lowering)
