"""psend, precv, create_token and order: primitives, their rules, and their lowering."""

from peerax.ops import _shard_map as _shard_map  # registers the lowering of shard_map
from peerax.ops._order import order
from peerax.ops._precv import precv
from peerax.ops._psend import psend
from peerax.ops._site import location, user_site
from peerax.ops._token import create_token, is_token

__all__ = ["create_token", "is_token", "location", "order", "precv", "psend", "user_site"]
