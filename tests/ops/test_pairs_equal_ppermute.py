"""precv(psend(x)) equals lax.ppermute bit for bit: perms, dtypes, shapes, meshes and pytrees drawn at random."""

import contextlib

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, bits, line, on_ranks, pair, ring

SIZES = (3, 4, 8)
INTEGERS = ["int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64"]
FLOATS = [
    *("float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32", "float64"),
]
COMPLEX = ["complex64", "complex128"]
DTYPES = [name for name in ("bool_", *INTEGERS, *FLOATS, *COMPLEX) if hasattr(jnp, name)]
KEY_IMPLEMENTATIONS = ["threefry2x32", "rbg", "unsafe_rbg"]
X64 = {"int64", "uint64", "float64", "complex128"}


@st.composite
def perms(draw, size):
    """Any pairs with distinct sources and distinct destinations, in any order."""
    pairs = list(zip(draw(st.permutations(range(size))), draw(st.permutations(range(size))), strict=True))
    return draw(st.permutations(pairs))[: draw(st.integers(0, size))]


def width(dtype):
    name = dtype.name.split("_")[0].lstrip("bfloatuicmpexn")
    return int(name) if name else 8


def random_array(dtype, shape, seed):
    """Return an array with random bits: NaNs with payloads, infinities, denormals and negative zeros included."""
    generator, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if width(dtype) < 8:
        low = -(2 ** (width(dtype) - 1)) if dtype.name.startswith("int") else 0
        values = generator.integers(low, low + 2 ** width(dtype), shape)
        return values.astype(np.uint8).view(dtype) if dtype.name.startswith("float") else values.astype(dtype)
    data = generator.integers(0, 256, int(np.prod(shape)) * dtype.itemsize).astype(np.uint8)
    special = np.array([0x80] + [0] * (dtype.itemsize - 1), np.uint8)[::-1]  # negative zero, and ever smaller
    data[: dtype.itemsize * min(1, np.prod(shape, dtype=int))] = special[: data.size]
    return data.view(dtype).reshape(shape)


def exchanged(x, perm, size, check_vma=True):
    """Return the results of the pair, and of ppermute for the same bits. XLA's may quieten a NaN; integers are safe.

    x has the ranks as its first axis.
    """
    options = {"mesh": line(size), "in_specs": P("x"), "out_specs": P("x"), "check_vma": check_vma}

    def by_pair(x):
        return pair(x[0], "x", perm)[None]

    def by_ppermute(x):
        return lax.ppermute(x[0], "x", perm)[None]

    def both(x, raw):
        return jax.shard_map(by_pair, **options)(x), jax.shard_map(by_ppermute, **options)(raw)

    return jax.jit(both)(x, bits(x))


def x64(dtype_name):
    return jax.enable_x64(True) if dtype_name in X64 else contextlib.nullcontext()


def dimensions():
    return st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4).map(tuple)


@hypothesis.settings(max_examples=100)
@hypothesis.given(st.data())
def test_any_perm_dtype_shape_and_mesh(data):
    size = data.draw(st.sampled_from(SIZES), "size")
    name = data.draw(st.sampled_from(DTYPES), "dtype")
    shape, perm = data.draw(dimensions(), "shape"), data.draw(perms(size), "perm")
    check_vma, seed = data.draw(st.booleans(), "check_vma"), data.draw(st.integers(0, 2**16), "seed")
    with x64(name):
        x = random_array(getattr(jnp, name), (size, *shape), seed)
        actual, expected = exchanged(x, perm, size, check_vma)
        assert (actual.shape, actual.dtype) == (x.shape, x.dtype)
        received = [d for _, d in perm]
        np.testing.assert_array_equal(bits(actual)[received], np.asarray(expected)[received])
        others = [rank for rank in range(size) if rank not in received]
        zeros = bits(jnp.zeros((len(others), *shape), x.dtype))
        np.testing.assert_array_equal(bits(actual)[others], zeros)


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype(name):
    perm = [(3, 0), (0, 2), (2, 2)][:2] + [(1, 1)]
    """The values of ppermute itself, where they are numbers."""
    with x64(name):
        x = random_array(getattr(jnp, name), (4, 2, 3), seed=len(name))
        x = np.where(np.isfinite(x), x, np.ones((), x.dtype)) if name in FLOATS else x

        def both(x):
            by_ppermute = jax.shard_map(
                lambda x: lax.ppermute(x, "x", perm), mesh=line(4), in_specs=P("x"), out_specs=P("x")
            )
            return on_ranks(lambda x: pair(x, "x", perm))(x), by_ppermute(x)

        actual, expected = jax.jit(both)(x)
        assert actual.dtype == np.dtype(getattr(jnp, name))
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn"])
def test_floats_of_six_bits_arrive_or_are_refused(name):
    """XLA:CPU of some versions has them, FFI has not: PX106 is right, other values are not."""
    dtype = getattr(jnp, name)
    x = np.arange(12, dtype=np.uint8).view(dtype).reshape(4, 3)
    try:
        expected = on_ranks(lambda x: lax.ppermute(x, "x", ring(4)))(x)
    except jax.errors.JaxRuntimeError as error:
        pytest.skip(f"not on this CPU: {error}")
    try:
        actual = on_ranks(lambda x: pair(x, "x", ring(4)))(x)
    except peerax.PeeraxError as error:
        assert error.code == "PX106"
    else:
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("implementation", KEY_IMPLEMENTATIONS)
def test_keys(implementation):
    keys = jax.random.split(jax.random.key(7, impl=implementation), (8, 3))
    perm = [(2, 0), (1, 1), (0, 3)]

    def both(keys):
        by_ppermute = jax.shard_map(
            lambda x: lax.ppermute(x, "x", perm), mesh=line(4), in_specs=P("x"), out_specs=P("x")
        )
        return on_ranks(lambda x: pair(x, "x", perm))(keys), by_ppermute(keys)

    actual, expected = jax.jit(both)(keys)
    assert actual.dtype == keys.dtype
    assert_same_bits(actual, expected)
    np.testing.assert_array_equal(bits(actual)[6:], bits(keys)[:2])  # and ppermute is right, too


LEAVES = st.sampled_from(["float32", "bfloat16", "int4", "uint8", "bool_", "complex64", "int32", "key", "none"])
TREES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.tuples(parts, parts),
        st.dictionaries(st.sampled_from(["w", "b", "n"]), parts, max_size=3),
    ),
    max_leaves=5,
)


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.data())
def test_pytrees_of_mixed_dtypes(data):
    size = data.draw(st.sampled_from(SIZES), "size")
    kinds, perm = data.draw(TREES, "tree"), data.draw(perms(size), "perm")
    hypothesis.assume(set(jax.tree.leaves(kinds)) - {"none"})  # JAX runs a program without arrays on one device
    shapes = [(), (2,), (0, 3), (1, 2, 2)]

    def make(kind):
        shape = (size, *shapes[len(kind) % len(shapes)])
        if kind == "none":
            return None
        if kind == "key":
            return jax.random.split(jax.random.key(3), shape)
        return jnp.asarray(random_array(getattr(jnp, kind), shape, len(kind)))

    tree = jax.tree.map(make, kinds)

    def ranked(function):
        def body(tree):
            result = function(jax.tree.map(lambda leaf: leaf[0], tree))
            return jax.tree.map(lambda leaf: leaf[None], result)

        return jax.shard_map(body, mesh=line(size), in_specs=P("x"), out_specs=P("x"))

    def both(tree):
        return ranked(lambda x: pair(x, "x", perm))(tree), ranked(lambda x: lax.ppermute(x, "x", perm))(tree)

    actual, expected = jax.jit(both)(tree)
    assert jax.tree.structure(actual) == jax.tree.structure(tree)
    quiet = jax.tree.map(lambda x: None if x.dtype == jnp.bfloat16 else x, (actual, expected))
    assert_same_bits(*quiet)


@pytest.mark.parametrize("x", [2.5, 3, True, 1j, np.float32(2), np.arange(3), [1.0, (2, None)]], ids=repr)
def test_numbers_and_numpy_arrays_can_be_sent(x):
    def body():
        shape = jax.tree.map(lambda leaf: jax.typeof(jnp.asarray(leaf)), x)
        received = peerax.precv(peerax.psend(x, "x", ring(4)), shape, "x", ring(4))
        return jax.tree.map(lambda leaf: leaf[None], received)

    received = jax.tree.map(lambda leaf: leaf[2], on_ranks(body, in_specs=())())
    assert_same_bits(received, jax.tree.map(jnp.asarray, x))


def test_large_messages_are_lent_and_right():
    """Beyond the size that is copied eagerly, at the sizes around it, and many at once."""
    sizes = (16_383, 16_384, 16_385, 100_000, 1_000_000)

    def body(rank):
        xs = [jnp.arange(n, dtype=jnp.float32) * (rank[0] + 1) for n in sizes]
        tokens = [peerax.psend(x, "x", ring(4)) for x in xs]
        ys = [peerax.precv(t, x, "x", ring(4)) for t, x in zip(tokens, xs, strict=True)]
        expected = [jnp.arange(n, dtype=jnp.float32) * ((rank[0] - 1) % 4 + 1) for n in sizes]
        return jnp.stack([jnp.array_equal(y, e) for y, e in zip(ys, expected, strict=True)])[None]

    assert np.asarray(on_ranks(body)(jnp.arange(4.0))).all()
