"""Clear errors for transformations and platforms that an operation does not support, instead of a wrong answer."""

from jax.interpreters import ad, batching

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location


def refuse_transformations(primitive: _jax.Primitive, name: str) -> None:
    """Make vmap, jvp and transposition of primitive raise PX107, naming the user's line."""

    def refuse(transformation):
        def rule(*args, **params):
            raise PeeraxError.of(
                "PX107", f"{transformation} of {name} is not supported", locations=(location(params["site"]),)
            )

        return rule

    batching.primitive_batchers[primitive] = refuse("vmap")
    ad.primitive_jvps[primitive] = refuse("differentiation (grad, jvp, vjp)")
    ad.primitive_transposes[primitive] = refuse("transposition")


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
