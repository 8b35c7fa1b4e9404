"""A clear error where an operation is compiled for a platform without transport."""

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location


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
