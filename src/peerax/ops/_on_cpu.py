"""What communicating equations become on CPU: operations of the transport, which pass on the handle of the session.

JAX's own collectives are joined by all members together, or by none.
"""

from typing import Any

from peerax import _jax
from peerax.ops._body import Body
from peerax.ops._communication import axes_of
from peerax.ops._leaves import carrier_dtype, from_carrier, is_plain, to_carrier, type_name
from peerax.ops._order import order_p
from peerax.ops._per_device import bind_around_others, bind_per_device
from peerax.ops._site import site_of
from peerax.ops._transport import Operation, after_p, exchange_p, gather_p, receive_p, send_p

# Smaller arrays are in the cache: copying them costs less than waiting for all ranks of the cycle.
_IN_PLACE_BYTES = 2**20


class OnCpu(Body):
    """The handle is the session's, two uint32."""

    splits_pairs = True

    def send(self, eqn, handle, token, values, pair=-1):
        operation = self._operation("send", "psend", eqn.params, pair=pair)
        (handle,) = bind_per_device(send_p, handle, *map(to_carrier, values), token, operation=operation)
        return handle

    def receive(self, eqn, handle, token, pair=-1):
        operation = self._operation("receive", "precv", eqn.params, pair=pair)
        shapes = eqn.params["shapes"]
        carried = tuple((shape, carrier_dtype(dtype) or dtype) for shape, dtype in shapes)
        handle, *results = bind_per_device(
            receive_p, handle, token, operation=operation, shapes=carried, varying=_varying(eqn)
        )
        return handle, [from_carrier(y, dtype) for y, (_, dtype) in zip(results, shapes, strict=True)]

    def exchange(self, send, receive, handle, token, values, is_spent):
        # Where ranks may differ in what they come by, none is in place: all along a path or cycle wait for each other.
        in_place = [x.size * x.dtype.itemsize >= _IN_PLACE_BYTES and is_spent(i) for i, x in enumerate(values)]
        operation = self._operation(
            "exchange", "psend", send.params, receive_site=receive.params["site"], in_place=in_place
        )
        return self._exchange(operation, receive, handle, values, token)

    def collective(self, eqn, handle, values):
        if eqn.primitive.name == "ppermute" and is_plain(values[0]):
            return self._ppermute(eqn, handle, values)
        # All members gather first: XLA's rendezvous aborts the process if one of them never comes.
        group = self.ranks.groups(axes_of(eqn), eqn.params.get("axis_index_groups"))
        name = eqn.primitive.name.removesuffix("_invariant")  # as the user knows it
        types = tuple(type_name(v.aval.shape, v.aval.dtype) for v in eqn.invars)
        operation = Operation("gather", name, site_of(eqn), types=types, group=group)
        handle, *values = bind_around_others(gather_p, handle, values, operation=operation)
        results = _jax.rebind(eqn, values)
        if all(map(is_plain, results)):
            (handle,) = bind_per_device(after_p, handle, *results)
        else:
            handle, *results = self.order(handle, *results)
        return handle, results

    def order(self, *values):
        return bind_per_device(order_p, *values)

    def _ppermute(self, eqn, handle, values):
        """A ppermute is an exchange. XLA's own may be moved into branches that not all ranks take (E9)."""
        axes = self.ranks.in_mesh_order(axes_of(eqn))  # that is how JAX numbers them, whatever the order of the tuple
        size = self.ranks.length(axes)
        site = site_of(eqn)
        params = {
            "axes": axes,
            "perm": tuple((s % size, d % size) for s, d in eqn.params["perm"]),
            "site": site,
            "types": tuple(type_name(x.shape, x.dtype) for x in values),
        }
        operation = self._operation("exchange", "ppermute", params, receive_site=site, in_place=[False] * len(values))
        return self._exchange(operation, eqn, handle, values)

    def _operation(
        self, kind: str, name: str, params: dict[str, Any], receive_site: str = "", pair: int = -1, in_place=()
    ):
        destination, source = self.ranks.ends(params["axes"], params["perm"])
        return Operation(
            kind,
            name,
            params["site"],
            receive_site=receive_site,
            tag=params.get("tag", 0),
            pair=pair,
            path=params.get("path", ""),
            types=params["types"],
            destination=destination,
            source=source,
            in_place=tuple(in_place),
        )

    def _exchange(self, operation, receive, handle, values, *after):
        handle, *results = bind_per_device(
            exchange_p, handle, *map(to_carrier, values), *after, operation=operation, varying=_varying(receive)
        )
        return handle, [from_carrier(y, x.dtype) for y, x in zip(results, values, strict=True)]


def _varying(eqn) -> tuple[frozenset, ...]:
    return tuple(_jax.varying(v.aval) for v in eqn.outvars)
