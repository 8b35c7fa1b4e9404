"""psend: post one message per leaf."""

from typing import Any

import jax

from peerax import _jax
from peerax.ops._axes import check_axes
from peerax.ops._leaves import to_leaf
from peerax.ops._site import location, user_site
from peerax.ops._token import TOKEN_DTYPE, TOKEN_SHAPE, check_tag, check_token, create_token
from peerax.ops._transformations import refuse_platforms, refuse_transformations
from peerax.perm import check_perm

psend_p = _jax.Primitive("peerax_psend")


def psend(x: Any, axis_name: Any, perm: Any, *, token: Any = None, tag: int = 0) -> jax.Array:
    """Send x from each source in perm to its destination.

    On a rank that is a source, one message per leaf of x is posted; other ranks do nothing. The messages of a pair,
    which is a precv whose token comes from this psend with the same perm and tag, are awaited at that precv. All other
    messages go into a buffer (or, with PEERAX_SEND=rendezvous, wait until they are received).

    Args:
      x: pytree of arrays of any shape; any dtype that JAX has, and PRNG keys.
      axis_name: name of a manual mesh axis, or a tuple of names in the mesh's order.
      perm: (source, destination) pairs of ranks along axis_name; sources distinct, destinations distinct.
      token: optional token that this psend comes after.
      tag: int; a message is only received under the tag it was sent with.

    Returns:
      A token, float32[1], different on every rank along axis_name.

    Raises:
      PeeraxError: PX101, PX102, PX103, PX104, PX105, PX106, PX107, PX108, PX212; when it is compiled: PX203, PX204.
        At run time (jax.errors.JaxRuntimeError): PX201, PX205, PX301, PX302, PX304, PX307.

    Transformations: jit yes · vmap no · grad no · scan yes

    Example:
      >>> token = peerax.psend(x, "stage", [(0, 1)])
      >>> y = peerax.precv(token, jax.typeof(x), "stage", [(0, 1)])
    """
    site = user_site()
    axes, size = check_axes(axis_name, "psend", site)
    pairs = check_perm(perm, size, location(site))
    tag = check_tag(tag, "psend", site)
    token = create_token() if token is None else check_token(token, "psend", site)
    leaves = [to_leaf(leaf, site) for leaf in jax.tree.leaves(x)]
    operands = [_jax.make_varying(operand, axes) for operand in (token, *(array for array, _ in leaves))]
    return psend_p.bind(
        *operands, axes=axes, perm=pairs, tag=tag, types=tuple(name for _, name in leaves), site=site
    )


def _psend_abstract_eval(token, *leaves, axes, perm, tag, types, site):
    varying = frozenset(axes).union(*(_jax.varying(aval) for aval in (token, *leaves)))
    return _jax.local_aval(TOKEN_SHAPE, TOKEN_DTYPE, varying), {_jax.communication}


psend_p.def_effectful_abstract_eval(_psend_abstract_eval)
refuse_transformations(psend_p, "psend")
refuse_platforms(psend_p, "psend")
