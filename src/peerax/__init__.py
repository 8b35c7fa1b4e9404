"""Point-to-point communication for JAX: psend and precv on CPU, GPU and TPU.

Importing peerax does not import JAX; its names are resolved when they are used. Once JAX is imported, peerax hooks into
shard_map: a shard_map must be known before it is called, not only when its body reaches psend.
"""

import importlib
from typing import TYPE_CHECKING

from peerax._on_import import when_imported

if TYPE_CHECKING:
    from peerax.backends import backend_is, require_backend
    from peerax.diagnostics import PeeraxError, explain
    from peerax.extract import check, program
    from peerax.install import install
    from peerax.ops import create_token, order, precv, psend
    from peerax.patterns import permute_shards, shift
    from peerax.runtime import trace
    from peerax.targets import compile_for
    from peerax.timeline import Timeline
    from peerax.verifier import Cost, Program, Report, simulate

__all__ = [
    "Cost",
    "PeeraxError",
    "Program",
    "Report",
    "Timeline",
    "backend_is",
    "check",
    "compile_for",
    "create_token",
    "explain",
    "install",
    "order",
    "permute_shards",
    "precv",
    "program",
    "psend",
    "require_backend",
    "shift",
    "trace",
    "simulate",
]

_HOMES = {
    "backend_is": "peerax.backends",
    "require_backend": "peerax.backends",
    "PeeraxError": "peerax.diagnostics",
    "explain": "peerax.diagnostics",
    "check": "peerax.extract",
    "program": "peerax.extract",
    "install": "peerax.install",
    "create_token": "peerax.ops",
    "order": "peerax.ops",
    "precv": "peerax.ops",
    "psend": "peerax.ops",
    "permute_shards": "peerax.patterns",
    "trace": "peerax.runtime",
    "shift": "peerax.patterns",
    "compile_for": "peerax.targets",
    "Timeline": "peerax.timeline",
    "Cost": "peerax.verifier",
    "Program": "peerax.verifier",
    "Report": "peerax.verifier",
    "simulate": "peerax.verifier",
}


def __getattr__(name: str):
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("peerax")
    if name not in _HOMES:
        raise AttributeError(f"module 'peerax' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


when_imported("jax", lambda: importlib.import_module("peerax.extract"))
