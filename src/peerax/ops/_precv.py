"""precv: receive one message per leaf."""

from typing import Any

import jax
from jax.interpreters import ad, batching

from peerax import _jax
from peerax.ops._axes import check_axes
from peerax.ops._in_rules import linked_to_sent
from peerax.ops._leaves import batched_type, from_leaf, is_differentiable, plain_shape
from peerax.ops._paths import cotangent_path, tangent_path
from peerax.ops._platforms import refuse_platforms
from peerax.ops._site import location, user_site
from peerax.ops._token import check_tag, check_token, first_token_of
from peerax.ops._vmapped_axis import receive_along_batch
from peerax.perm import check_perm, inverse

precv_p = _jax.Primitive("peerax_precv")
precv_p.multiple_results = True


def precv(token: Any, out_shape: Any, axis_name: Any, perm: Any, *, tag: int = 0) -> Any:
    """Receive on each destination in perm what its source sent.

    If token comes from a psend with the same perm and tag, the two are a pair: one exchange, which cannot hang and
    may be a ring. Otherwise it takes the next message on the channel (source, destination, tag) and waits until there
    is one. On a rank that is no destination the result is zeros.

    Args:
      token: what this precv comes after: the result of a psend, of create_token or of order.
      out_shape: pytree of arrays or jax.ShapeDtypeStruct: shape and dtype of each leaf that is received, and its
        sharding along explicit axes of the mesh.
      axis_name: name of a manual mesh axis, or a tuple of names in the mesh's order.
      perm: (source, destination) pairs of ranks along axis_name; sources distinct, destinations distinct.
      tag: int; a message is only received under the tag it was sent with.

    Returns:
      A pytree like out_shape of arrays, different on every rank along axis_name.

    Raises:
      PeeraxError: PX101, PX102, PX103, PX104, PX105, PX106, PX107, PX108, PX212; when it is compiled: PX203, PX204,
        PX213, PX401, PX402, PX404. At run time (jax.errors.JaxRuntimeError): PX202, PX205, PX214, PX301, PX302, PX304.

    Transformations: jit yes · vmap yes (one message for the batch) · grad yes · scan yes

    Example:
      >>> token = peerax.psend(x, "stage", [(0, 1)])
      >>> y = peerax.precv(token, jax.typeof(x), "stage", [(0, 1)])
    """
    site = user_site()
    axes, size = check_axes(axis_name, "precv", site)
    pairs = check_perm(perm, size, location(site))
    tag = check_tag(tag, "precv", site)
    token = _jax.make_varying(check_token(token, "precv", site), tuple(_jax.manual(axes)))
    wanted, tree = jax.tree.flatten(out_shape)
    plain = [plain_shape(leaf, site) for leaf in wanted]
    token = linked_to_sent(token, axes=axes, perm=pairs, tag=tag, site=site)
    received = precv_p.bind(
        token,
        axes=axes,
        perm=pairs,
        tag=tag,
        path="",
        shapes=tuple((shape, dtype) for shape, dtype, _ in plain),
        specs=tuple(_jax.explicit_spec(leaf, len(shape)) for leaf, (shape, _, _) in zip(wanted, plain, strict=True)),
        types=tuple(name for _, _, name in plain),
        site=site,
    )
    return jax.tree.unflatten(tree, [from_leaf(y, leaf) for y, leaf in zip(received, wanted, strict=True)])


def _precv_abstract_eval(token, *, axes, shapes, specs, **params):
    varying = _jax.manual(axes) | _jax.varying(token)
    avals = [_jax.local_aval(*shape, varying, spec) for shape, spec in zip(shapes, specs, strict=True)]
    return avals, {_jax.communication}


def _precv_jvp(primals, tangents, **params):
    received = precv_p.bind(*primals, **params)
    return received, _precv_tangents(map(_jax.zero_tangent, received), tangents, **params)


def _precv_linearize(nonzero, *primals, shapes, **params):
    received = precv_p.bind(*primals, shapes=shapes, **params)
    nonzero_out = [is_differentiable(dtype) for _, dtype in shapes]
    zeros = [_jax.zero_tangent(y) for y in received]
    return received, nonzero_out, lambda *tangents: _precv_tangents(zeros, tangents, shapes=shapes, **params)


def _precv_tangents(zeros, tangents, *, shapes, specs, types, path, **params):
    """The tangents follow the primals, on a channel of their own."""
    chosen = [i for i, (_, dtype) in enumerate(shapes) if is_differentiable(dtype)]
    tangents_out = [*zeros]
    if chosen:
        received_dot = precv_p.bind(
            ad.instantiate_zeros(tangents[0]),
            shapes=tuple(shapes[i] for i in chosen),
            specs=tuple(specs[i] for i in chosen),
            types=tuple(types[i] for i in chosen),
            path=tangent_path(path),
            **params,
        )
        for i, y_dot in zip(chosen, received_dot, strict=True):
            tangents_out[i] = y_dot
    return tangents_out


def _precv_transpose(received_bar, token, *, axes, perm, path, shapes, specs, types, **params):
    """The cotangent of what was received goes back along the inverted perm, also where it is zero."""
    from peerax.ops._psend import psend_p

    leaves_bar = [ad.instantiate_zeros(y_bar) for y_bar in received_bar]
    token_bar = first_token_of(token.aval.to_ct_aval())
    return [
        psend_p.bind(
            token_bar,
            *leaves_bar,
            axes=axes,
            perm=inverse(perm),
            path=cotangent_path(path),
            types=types,
            **params,
        )
    ]


def _precv_batching(axis_data, operands, dims, *, shapes, specs, types, **params):
    """One message carries the whole batch; see psend."""
    size, (token,), (dim,) = axis_data.size, operands, dims
    if axis_data.name in params["axes"]:
        received = receive_along_batch(axis_data, token, {**params, "types": types})
        return received, [0] * len(received)
    if dim is None:
        received = precv_p.bind(token, shapes=shapes, specs=specs, types=types, **params)
        return received, [None] * len(received)
    shapes = tuple(((size, *shape), dtype) for shape, dtype in shapes)
    specs = tuple(spec and (None, *spec) for spec in specs)
    types = tuple(batched_type(name, size) for name in types)
    token = batching.bdim_at_front(token, dim, size)
    received = precv_p.bind(token, shapes=shapes, specs=specs, types=types, **params)
    return received, [0] * len(received)


precv_p.def_effectful_abstract_eval(_precv_abstract_eval)
ad.primitive_jvps[precv_p] = _precv_jvp
_jax.linearize_by(precv_p, _precv_linearize)
ad.primitive_transposes[precv_p] = _precv_transpose
batching.fancy_primitive_batchers[precv_p] = _precv_batching
refuse_platforms(precv_p, "precv")
