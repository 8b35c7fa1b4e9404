"""Tokens: plain float32[1] arrays, so that they can be carried, branched on and differentiated like any other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._site import location
from peerax.ops._vmapped_axis import keep_sent

TOKEN_SHAPE = (1,)
TOKEN_DTYPE = jnp.float32


def create_token(_: Any = None) -> jax.Array:
    """Make a token that does not come from any send.

    A precv that is given it is a separate receive: it takes the next message on its channel, whoever sent it.

    Args:
      _: ignored, as in jax.lax.create_token.

    Returns:
      A float32[1] array of zeros. To JAX it differs along all manual axes.

    Transformations: jit yes · vmap yes · grad yes · scan yes

    Example:
      >>> y = peerax.precv(peerax.create_token(), jax.typeof(x), "stage", [(0, 1)])
    """
    # What a separate receive brings may differ along all axes: nothing is known of who sent it.
    return _jax.make_varying(fresh_token(), tuple(_jax.manual_axes()))


def fresh_token() -> jax.Array:
    """Make a token that does not come from any send."""
    if _jax.evaluates_eagerly():
        return link(np.zeros(TOKEN_SHAPE, TOKEN_DTYPE))  # nothing is computed before all is compiled
    return link(jax.lax.full(TOKEN_SHAPE, 0, TOKEN_DTYPE))  # no constant, which JAX would make an operand of branches


def first_token(axes: tuple) -> jax.Array:
    """The token of a psend that was given none, different along axes: the same for all in one function."""
    return _jax.once_here(("token", frozenset(axes)), lambda: _jax.make_varying(fresh_token(), axes))


def first_token_of(aval: Any) -> jax.Array:
    """Such a token of a given type, which may be that of a batch."""
    return _jax.once_here(("token", aval), lambda: link(ad.instantiate_zeros(ad.Zero(aval))))


def link(token: jax.Array) -> jax.Array:
    """Make a token that was not made here a function of what the function being traced was called with.

    To JAX, a receive whose token is constant is a constant: it is not differentiated when the messages it receives are
    (E11 of the design), not batched, and moved out of the loop it stands in. The value stays what it is.
    """
    return link_p.bind(token, *_jax.operands_here(link_p), complete=_jax.rule_here() is not None)


link_p = _jax.AlwaysDifferentiated("peerax_link")


def _link_abstract_eval(token, *operands, complete):
    return token


def _link_jvp(primals, tangents, *, complete):
    return link_p.bind(*primals, complete=complete), link_p.bind(
        ad.instantiate_zeros(tangents[0]), *(t for t in tangents[1:] if type(t) is not ad.Zero), complete=complete
    )


def _link_transpose(token_bar, token, *operands, complete):
    zeros = [ad.Zero(x.aval.to_ct_aval()) if ad.is_undefined_primal(x) else None for x in operands]
    return [token_bar if ad.is_undefined_primal(token) else None, *zeros]


def _link_batching(axis_data, operands, dims, *, complete):
    if all(dim is None for dim in dims):
        return link_p.bind(*operands, complete=complete), None
    token = batching.bdim_at_front(operands[0], dims[0], axis_data.size)
    linked = link_p.bind(token, *operands[1:], complete=complete)
    keep_sent(operands[0], linked)
    return linked, 0


link_p.def_abstract_eval(_link_abstract_eval)
link_p.def_impl(lambda token, *operands, complete: jnp.asarray(token))
ad.primitive_jvps[link_p] = _link_jvp
ad.primitive_transposes[link_p] = _link_transpose
batching.fancy_primitive_batchers[link_p] = _link_batching
_jax.mlir.register_lowering(link_p, lambda ctx, token, *operands, complete: [token])
_jax.enter_if(_jax.communicates_here, link_p)


def is_token(x: Any) -> bool:
    """Return whether x has the type of a token."""
    return getattr(x, "shape", None) == TOKEN_SHAPE and getattr(x, "dtype", None) == TOKEN_DTYPE


_LINKED = ("peerax_link", "peerax_psend")  # whose results are linked already


def check_token(token: Any, name: str, site: str) -> jax.Array:
    """Return token, linked if it may come from outside, or raise PX108."""
    if is_token(token):
        return token if _jax.made_by(token) in _LINKED else link(token)
    shown = (
        f"{token.dtype.name}[{','.join(map(str, token.shape))}]" if hasattr(token, "dtype") else type(token).__name__
    )
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
