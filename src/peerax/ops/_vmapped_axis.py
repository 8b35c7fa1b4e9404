"""psend and precv over an axis of vmap: no rank is a device there, and a pair is a movement along the batch.

A precv must find what the psend before it sent. Both are known while the function is batched, and the token that goes
from one to the other is the same object; so what was sent is kept beside the token.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.interpreters import batching

from peerax.diagnostics import PeeraxError
from peerax.ops._site import location

# By the id of a token: a reference that ends with the token, the parameters of its psend, what arrives.
_sent: dict[int, tuple[weakref.ref, dict[str, Any], list[Any]]] = {}


def send_along_batch(axis_data, operands: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any]) -> Any:
    """Move the leaves along the batch; return a batched token that stands for what arrives."""
    _check_alone(axis_data, "psend", params)
    _, *leaves = [batching.bdim_at_front(x, dim, axis_data.size) for x, dim in zip(operands, dims, strict=True)]
    sources = np.array([s for s, _ in params["perm"]], np.int32)
    destinations = np.array([d for _, d in params["perm"]], np.int32)
    arrived = [jnp.zeros_like(x).at[destinations].set(x[sources]) for x in leaves]
    token = jnp.zeros((axis_data.size, *operands[0].shape[(dims[0] is not None) :]), operands[0].dtype)
    key = id(token)
    _sent[key] = (weakref.ref(token, lambda _: _sent.pop(key, None)), params, arrived)
    return token


def receive_along_batch(axis_data, token: Any, params: dict[str, Any]) -> list[Any]:
    """Return what the psend sent that the token comes from.

    Raises:
      PeeraxError: PX107, if there is none with the same perm and tag in the same function.
    """
    _check_alone(axis_data, "precv", params)
    found = _sent.get(id(token))
    same = ("axes", "perm", "tag", "path", "types")
    if found is None or any(found[1][name] != params[name] for name in same):
        raise PeeraxError.of(
            "PX107",
            f"this precv over {axis_data.name!r}, which is an axis of vmap, is separate, and only pairs work there",
            locations=(location(params["site"]),),
            help="give it the token of the psend with the same perm and tag, or use shard_map",
        )
    return found[2]


def keep_sent(before: Any, after: Any) -> None:
    """Let one token stand for what another stands for."""
    found = _sent.get(id(before))
    if found is not None and before is not after:
        key = id(after)
        _sent[key] = (weakref.ref(after, lambda _: _sent.pop(key, None)), *found[1:])


def _check_alone(axis_data, name: str, params: dict[str, Any]) -> None:
    if params["axes"] != (axis_data.name,):
        raise PeeraxError.of(
            "PX107",
            f"{name} over {params['axes']}, of which {axis_data.name!r} is an axis of vmap and others are not",
            locations=(location(params["site"]),),
        )
