"""Small programs that send and receive, each with its ppermute version, and ways to run and to compare them.

A program is a step: from weights, the same on all ranks, and this rank's rows it makes new rows. So steps can be
iterated, branched on and solved for; `loss` makes a number of one. Data are small integers and all functions piecewise
polynomial, so that no result is rounded: what is right is right to the last bit, however XLA fuses and sums.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests import ranks
from tests.ranks import line, pair

ROWS, WIDTH = 2, 3
bounded = functools.partial(jnp.clip, min=-3.0, max=3.0)


def ring():
    return ranks.ring(lax.axis_size("x"))


def chain():
    return ranks.chain(lax.axis_size("x"))


def partial():
    """Some ranks send, some receive, one does both with itself, and one does nothing."""
    return [(2, 0), (1, 1)]


def separate(x, axis_name, perm, **options):
    """Send and receive as operations that know nothing of each other."""
    peerax.psend(x, axis_name, perm, **options)
    return peerax.precv(peerax.create_token(), jax.tree.map(jax.typeof, x), axis_name, perm, **options)


def varying(x):
    """Mark what is the same on all ranks as different, where types track that."""
    return lax.pcast(x, "x", to="varying") if "x" not in jax.typeof(x).manual_axis_type.varying else x


# Steps that need an exchange: pair, separate or ppermute.


def around(exchange, w, x):
    return exchange(bounded(x @ w), "x", ring()) + x


def along(exchange, w, x):
    return exchange(bounded(x @ w), "x", chain()) * 2 + x @ w


def in_part(exchange, w, x):
    return exchange(bounded(x @ w), "x", partial()) - x


def with_ints_and_keys(exchange, w, x):
    rank = lax.axis_index("x")
    sent = {"n": rank + 1, "x": bounded(x @ w), "key": jax.random.key(rank), "w": w * 2, "none": None}
    came = exchange(sent, "x", ring())
    noise = jax.random.key_data(came["key"])[-1] + 1  # the seed; drawing numbers would take long to compile
    return came["x"] * noise.astype(x.dtype) + bounded(x) @ came["w"] * came["n"].astype(x.dtype)


def ordered(w, x):
    """The token goes through order, together with what it is ordered after."""
    token = peerax.psend(bounded(x @ w), "x", ring())
    token, y = peerax.order(token, x @ w)
    return peerax.precv(token, x, "x", ring()) * y


def ordered_permuted(w, x):
    return lax.ppermute(bounded(x @ w), "x", ring()) * (x @ w)


# Steps of separate operations, and what they are with ppermute.


def two_tags(w, x):
    """The first message is received last: tags tell them apart."""
    peerax.psend(bounded(x @ w), "x", chain(), tag=1)
    peerax.psend(bounded(x), "x", chain(), tag=2)
    second = peerax.precv(peerax.create_token(), x, "x", chain(), tag=2)
    first = peerax.precv(peerax.create_token(), x, "x", chain(), tag=1)
    return first * second + x


def two_tags_permuted(w, x):
    return lax.ppermute(bounded(x @ w), "x", chain()) * lax.ppermute(bounded(x), "x", chain()) + x


def one_token(w, x):
    """Two sends, one after the other by their tokens, each received by its own."""
    of_first = peerax.psend(bounded(x @ w), "x", ring())
    of_second = peerax.psend(bounded(x) * 2, "x", ring(), token=of_first)
    first = peerax.precv(of_first, x, "x", ring())
    second = peerax.precv(of_second, x, "x", ring())
    return first * second + x


def one_token_permuted(w, x):
    return lax.ppermute(bounded(x @ w), "x", ring()) * lax.ppermute(bounded(x) * 2, "x", ring()) + x


def _stage(w, x, tick, came):
    fresh = x * (tick + 1).astype(x.dtype)
    return bounded(jnp.where(lax.axis_index("x") == 0, fresh, came) @ w)


def pipeline(w, x):
    """A receive before the loop and a send after it: the receive of an iteration meets the send of the next."""
    first = peerax.precv(peerax.create_token(), x, "x", chain())

    def tick(carry, t):
        result, came, total = carry
        peerax.psend(result, "x", chain())
        result = _stage(w, x, t, came)
        came = peerax.precv(peerax.create_token(), x, "x", chain())
        return (result, came, total + result), None

    zeros = jnp.zeros_like(x)
    (result, _, total), _ = lax.scan(tick, (zeros, first, zeros), jnp.arange(4))
    peerax.psend(result, "x", chain())
    return total


def pipeline_permuted(w, x):
    def tick(carry, t):
        result, total = carry
        came = lax.ppermute(result, "x", chain())
        result = _stage(w, x, t, came)
        return (result, total + result), None

    zeros = jnp.zeros_like(x)
    return lax.scan(tick, (zeros, zeros), jnp.arange(4))[0][1]


def _with(exchange, step):
    return functools.partial(step, exchange), functools.partial(step, lax.ppermute)


def _mapped(x, axis_name, perm):
    """ppermute of a pytree, with keys as their data."""
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, axis_name, perm), x)


# Name: the step with peerax, and the same with ppermute.
STEPS = {
    "ring-pair": _with(pair, around),
    "chain-pair": _with(pair, along),
    "partial-pair": _with(pair, in_part),
    "pytree-pair": (functools.partial(with_ints_and_keys, pair), functools.partial(with_ints_and_keys, _mapped)),
    "ordered-pair": (ordered, ordered_permuted),
    "token-chain": (one_token, one_token_permuted),
    "separate": _with(separate, along),
    "two-tags": (two_tags, two_tags_permuted),
    "pipeline": (pipeline, pipeline_permuted),
}


def loss(step):
    """Return the loss of a step: one number, the same on all ranks."""

    def body(w, x):
        y = step(w, x)
        return lax.psum((y * (y + x)).sum(), "x")

    return body


WHOLE, SPLIT = P(), P("x")


def on_ranks(body, size, check_vma, in_specs=(WHOLE, SPLIT), out_specs=WHOLE):
    """Return the program that runs body on every rank of a line."""
    return jax.shard_map(body, mesh=line(size), in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)


def weights():
    return jnp.asarray(np.random.default_rng(0).integers(-1, 2, (WIDTH, WIDTH)), jnp.float32)


def rows(size):
    return jnp.asarray(np.random.default_rng(1).integers(-2, 3, (size * ROWS, WIDTH)), jnp.float32)


def assert_same(actual, expected):
    """Compare pytrees of arrays, which must be equal."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.abs(b).max(initial=0) < 2**24, "so large a number may have been rounded"
        np.testing.assert_array_equal(a, b)
