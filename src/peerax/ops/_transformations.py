"""Clear errors for transformations and platforms that an operation does not support, instead of a wrong answer."""

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location


def tangent_path(path: str) -> str:
    """The path of the tangents of messages with this path. A path tells kinds of messages on one channel apart."""
    return path + "t"


def cotangent_path(path: str) -> str:
    """The path of the cotangents of messages with this path. Transposing twice leads back."""
    return path[:-1] if path.endswith("c") else path + "c"


def refuse_platforms(primitive: _jax.Primitive, name: str) -> None:
    """Make lowering for a platform without transport raise PX402. On CPU the lowering of shard_map takes precedence."""

    def rule(ctx, *operands, **params):
        platforms = ctx.platforms or ctx.module_context.platforms
        raise PeeraxError.of(
            "PX402",
            f"{name} cannot be compiled for {', '.join(platforms)}",
            locations=(location(params["site"]),),
        )

    _jax.mlir.register_lowering(primitive, rule)
