"""What a shard_map body is rewritten to on CPU: operations that take the session's handle and give it on.

The handle, two uint32 and the same on all ranks, is made by begin and ends in end. It is a real data dependency from
each communicating operation to the next, which is what keeps them in program order on every rank.

A call that receives does not give the handle on itself: another one does, which waits for what is received. XLA
computes in place on the result of a call only if it is the only one; and compiles faster then. What has no elements is
no dependency to XLA, though: a call that receives nothing else gives the handle on.
"""

import functools
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


def _handle_aval():
    return _jax.local_aval(HANDLE_SHAPE, HANDLE_DTYPE, frozenset())


def _primitive(name: str, results) -> _jax.Primitive:
    """A primitive that keeps its place. results(*avals, **params) gives the avals after the handle's."""
    primitive = _jax.Primitive(f"peerax_{name}")
    primitive.multiple_results = True
    primitive.def_effectful_abstract_eval(
        lambda *avals, **params: ([_handle_aval(), *results(*avals, **params)], {_jax.communication})
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

# The handle when the other operands are there. Without an effect, as the next one: whoever uses its results keeps it.
after_p = _jax.Primitive("peerax_after")
after_p.multiple_results = True
after_p.def_abstract_eval(lambda handle, *xs: [_handle_aval()])

# Identity on its operands; see order.
order_plain_p = _jax.Primitive("peerax_order_plain")
order_plain_p.multiple_results = True
order_plain_p.def_abstract_eval(lambda *avals: list(avals))


def _lower(target: str, ctx, operands, aliases: dict[int, int] | None = None, side_effect: bool = True, **attributes):
    """Emit one FFI call; aliases has for each operand whose memory is taken the position of the result."""
    rule = jax.ffi.ffi_lowering(target, has_side_effect=side_effect, operand_output_aliases=aliases)
    return rule(ctx, *operands, **attributes)


def _all_in_place(operands) -> dict[int, int]:
    return {i: i for i in range(len(operands))}


def _begin_lowering(ctx, *operands, size, devices):
    ctx = ctx.replace(avals_in=[_jax.ShapedArray((), jnp.uint32), *ctx.avals_in])
    operands = [_jax.partition_id(), *operands]
    return _lower("peerax_begin", ctx, operands, size=np.int64(size), devices=np.int64(devices))


def _operation_lowering(target: str, ctx, handle, *operands, operation, **types):
    handle_aval, *avals = ctx.avals_out
    filled = [i for i, aval in enumerate(avals) if aval.size]
    if not filled:
        return _lower(target, ctx, [handle, *operands], {0: 0}, **operation.attributes())
    in_place = [i for i, is_taken in enumerate(operation.in_place) if is_taken]
    call = ctx.replace(avals_out=avals)
    results = [*_lower(target, call, [handle, *operands], {i + 1: i for i in in_place}, **operation.attributes())]
    after = ctx.replace(avals_in=[handle_aval, *(avals[i] for i in filled)])
    (handle,) = _after_lowering(after, handle, *(results[i] for i in filled))
    for i in in_place:  # any other use of it might come before that call, and XLA would copy what is in a loop's memory
        (results[i],) = _after_lowering(ctx.replace(avals_in=[avals[i], handle_aval]), results[i], handle)
    return [handle, *results]


def _after_lowering(ctx, *operands):
    """The first operand, in its memory, when all are there."""
    return _lower("peerax_after", ctx.replace(avals_out=ctx.avals_in[:1]), operands, {0: 0}, side_effect=False)


def _gather_lowering(ctx, *operands, operation):
    return _lower("peerax_gather", ctx, operands, _all_in_place(operands), **operation.attributes())


def _order_plain_lowering(ctx, *operands):
    load()
    return _lower("peerax_order", ctx, operands, _all_in_place(operands), side_effect=False)


def _register(primitive, rule) -> None:
    _jax.mlir.register_lowering(primitive, rule, platform="cpu")


_register(begin_p, _begin_lowering)
_register(end_p, lambda ctx, *operands: _lower("peerax_end", ctx, operands, _all_in_place(operands)))
_register(send_p, functools.partial(_operation_lowering, "peerax_send"))
_register(receive_p, functools.partial(_operation_lowering, "peerax_receive"))
_register(exchange_p, functools.partial(_operation_lowering, "peerax_exchange"))
_register(gather_p, _gather_lowering)
_register(after_p, _after_lowering)
_register(order_plain_p, _order_plain_lowering)
