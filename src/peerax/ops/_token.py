"""Tokens: plain float32[1] arrays, so that they can be carried, branched on and differentiated like any other."""

from typing import Any

import jax
import jax.numpy as jnp

from peerax.diagnostics import PeeraxError
from peerax.ops._site import location

TOKEN_SHAPE = (1,)
TOKEN_DTYPE = jnp.float32


def create_token(_: Any = None) -> jax.Array:
    """Make a token that does not come from any send.

    A precv that is given it is a separate receive: it takes the next message on its channel, whoever sent it.

    Args:
      _: ignored, as in jax.lax.create_token.

    Returns:
      A float32[1] array of zeros.

    Transformations: jit yes · vmap no · grad no · scan yes
    """
    return jnp.zeros(TOKEN_SHAPE, TOKEN_DTYPE)


def is_token(x: Any) -> bool:
    """Return whether x has the type of a token."""
    return getattr(x, "shape", None) == TOKEN_SHAPE and getattr(x, "dtype", None) == TOKEN_DTYPE


def check_token(token: Any, name: str, site: str) -> jax.Array:
    """Return token, or raise PX105's sibling for operands: PX106."""
    if is_token(token):
        return token
    shown = f"{token.dtype.name}[{','.join(map(str, token.shape))}]" if hasattr(token, "dtype") else type(token).__name__
    raise PeeraxError.of(
        "PX108",
        f"{name} was given {shown} where it expects a token, a float32[1] array",
        locations=(location(site),),
    )


def check_tag(tag: Any, name: str, site: str) -> int:
    """Return tag as an int, or raise PX108."""
    if isinstance(tag, int) and not isinstance(tag, bool) and -(2**31) <= tag < 2**31:
        return tag
    raise PeeraxError.of(
        "PX108",
        f"{name} was given the tag {tag!r}; a tag is a Python int of at most 32 bits, known when the program is traced",
        locations=(location(site),),
        help="give an int, for example tag=1",
    )
