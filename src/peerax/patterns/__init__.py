"""Movements of whole shards, usable inside and outside of shard_map."""

from peerax.patterns._shards import permute_shards, shift

__all__ = ["permute_shards", "shift"]
