"""psend: post one message per leaf."""

from typing import Any

import jax
from jax.interpreters import ad, batching

from peerax import _jax
from peerax.ops._axes import check_axes
from peerax.ops._in_rules import note_sent
from peerax.ops._leaves import batched_type, is_differentiable, to_leaf
from peerax.ops._paths import cotangent_path, tangent_path
from peerax.ops._platforms import refuse_platforms
from peerax.ops._precv import precv_p
from peerax.ops._site import location, user_site
from peerax.ops._token import check_tag, check_token, first_token, first_token_of
from peerax.ops._vmapped_axis import send_along_batch
from peerax.perm import check_perm, inverse

psend_p = _jax.Primitive("peerax_psend")


def psend(x: Any, axis_name: Any, perm: Any, *, token: Any = None, tag: int = 0) -> jax.Array:
    """Send x from each source in perm to its destination.

    On a rank that is a source, one message per leaf of x is posted; other ranks do nothing. The messages of a pair,
    which is a precv whose token comes from this psend with the same perm and tag, are awaited at that precv. All other
    messages go into a buffer (or, with PEERAX_SEND=rendezvous, wait until they are received).

    Args:
      x: pytree of arrays of any shape: numbers, booleans and PRNG keys, but no float6_e2m3fn and float6_e3m2fn (PX106),
        which XLA cannot compute with.
      axis_name: name of a manual mesh axis, or a tuple of names in the mesh's order.
      perm: (source, destination) pairs of ranks along axis_name; sources distinct, destinations distinct.
      token: optional token that this psend comes after.
      tag: int; a message is only received under the tag it was sent with.

    Returns:
      A token, float32[1], different on every rank along axis_name.

    Raises:
      PeeraxError: PX101, PX102, PX103, PX104, PX105, PX106, PX107, PX108, PX212, PX214; when it is compiled: PX203,
        PX204, PX213, PX401, PX402, PX404. At run time (jax.errors.JaxRuntimeError): PX201, PX205, PX214, PX301, PX302,
        PX303, PX304, PX307.

    Transformations: jit yes · vmap yes (one message for the batch) · grad yes · scan yes

    Example:
      >>> token = peerax.psend(x, "stage", [(0, 1)])
      >>> y = peerax.precv(token, jax.typeof(x), "stage", [(0, 1)])
    """
    site = user_site()
    axes, size = check_axes(axis_name, "psend", site)
    pairs = check_perm(perm, size, location(site))
    tag = check_tag(tag, "psend", site)
    operands = [] if token is None else [check_token(token, "psend", site)]
    leaves = [to_leaf(leaf, site) for leaf in jax.tree.leaves(x)]
    operands += (array for array, _ in leaves)
    # All operands vary along the same axes, so that each cotangent has the type of its operand.
    varying = tuple(_jax.manual(axes).union(*(_jax.varying(jax.typeof(operand)) for operand in operands)))
    operands = [_jax.make_varying(operand, varying) for operand in operands]
    if token is None:
        operands = [first_token(varying), *operands]
    types = tuple(name for _, name in leaves)
    token = psend_p.bind(*operands, axes=axes, perm=pairs, tag=tag, path="", types=types, site=site)
    note_sent(token, operands, axes=axes, perm=pairs, tag=tag, site=site)
    return token


def _psend_abstract_eval(token, *leaves, axes, **params):
    varying = _jax.manual(axes).union(*(_jax.varying(aval) for aval in (token, *leaves)))
    return _jax.local_aval(token.shape, token.dtype, varying), {_jax.communication}


def _psend_jvp(primals, tangents, **params):
    token = psend_p.bind(*primals, **params)
    return token, _psend_tangents(_travels(primals), tangents, **params)


def _psend_linearize(nonzero, *primals, **params):
    token, travels = psend_p.bind(*primals, **params), _travels(primals)
    if not nonzero[0] and not any(travels):
        return token, False, lambda token_dot, *leaves_dot: token_dot
    return token, True, lambda *tangents: _psend_tangents(travels, tangents, **params)


def _travels(primals) -> list[bool]:
    return [is_differentiable(x.dtype) for x in primals[1:]]


def _psend_tangents(travels, tangents, *, types, path, **params):
    """The tangents follow the primals, on a channel of their own."""
    operands = [ad.instantiate_zeros(t) for t, yes in zip(tangents, (True, *travels), strict=True) if yes]
    if len(operands) == 1:
        return operands[0]
    types = tuple(name for name, yes in zip(types, travels, strict=True) if yes)
    return psend_p.bind(*operands, types=types, path=tangent_path(path), **params)


def _psend_transpose(token_bar, token, *leaves, axes, perm, path, types, **params):
    """The cotangent of what was sent comes back along the inverted perm."""
    avals = [x.aval.to_ct_aval() if ad.is_undefined_primal(x) else jax.typeof(x) for x in leaves]
    if type(token_bar) is ad.Zero:
        token_bar = first_token_of(token_bar.aval)
    leaves_bar = precv_p.bind(
        token_bar,
        axes=axes,
        perm=inverse(perm),
        path=cotangent_path(path),
        shapes=tuple((aval.shape, aval.dtype) for aval in avals),
        specs=tuple(_jax.explicit_spec(aval, aval.ndim) for aval in avals),
        types=types,
        **params,
    )
    wanted = [ad.is_undefined_primal(x) for x in (token, *leaves)]
    # The token that it came after has no part in the link between the two ends.
    before_bar = ad.Zero(token.aval.to_ct_aval()) if wanted[0] else None
    return [before_bar, *(x if yes else None for x, yes in zip(leaves_bar, wanted[1:], strict=True))]


def _psend_batching(axis_data, operands, dims, *, types, **params):
    """One message carries the whole batch, of every leaf: the receiver cannot know which leaves were batched."""
    if axis_data.name in params["axes"]:
        return send_along_batch(axis_data, operands, dims, {**params, "types": types}), 0
    if all(dim is None for dim in dims):
        return psend_p.bind(*operands, types=types, **params), None
    operands = [batching.bdim_at_front(x, dim, axis_data.size) for x, dim in zip(operands, dims, strict=True)]
    types = tuple(batched_type(name, axis_data.size) for name in types)
    return psend_p.bind(*operands, types=types, **params), 0


psend_p.def_effectful_abstract_eval(_psend_abstract_eval)
ad.primitive_jvps[psend_p] = _psend_jvp
_jax.linearize_by(psend_p, _psend_linearize)
ad.primitive_transposes[psend_p] = _psend_transpose
batching.fancy_primitive_batchers[psend_p] = _psend_batching
refuse_platforms(psend_p, "psend")
