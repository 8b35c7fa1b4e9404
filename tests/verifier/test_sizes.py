"""The sizes of types, as ops write them."""

import jax
import jax.numpy as jnp
import pytest

from peerax.ops._leaves import type_name
from peerax.verifier._sizes import size_bytes

SCALARS = sorted({value for value in vars(jnp).values() if isinstance(value, type(jnp.float32))}, key=str)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("float32[8,3]", 96),
        ("bfloat16[4]", 8),
        ("bool[2]", 2),
        ("float32[]", 4),
        ("complex64[2,0]", 0),
        ("int4[8]", 4),
        ("int4[3]", 2),
        ("uint1[9]", 2),
        ("float8_e4m3fn[5]", 5),
        ("key<fry>[2]", 16),
    ],
)
def test_size(name, size):
    assert size_bytes(name) == size


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
def test_every_dtype_of_jax(scalar):
    dtype = jnp.dtype(scalar)
    bits = 8 if dtype == jnp.bool_ else jnp.iinfo(dtype).bits if jnp.issubdtype(dtype, jnp.integer) else None
    if bits is None:
        bits = jnp.finfo(dtype).bits * (2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1)
    assert size_bytes(type_name((8,), dtype)) == bits


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_every_key_of_jax(name):
    keys = jax.random.split(jax.random.key(0, impl=name), 3)
    assert size_bytes(type_name(keys.shape, keys.dtype)) == jax.random.key_data(keys).nbytes


@pytest.mark.parametrize("name", ["float7[4]", "key<mine>[2]", "int5[1]"])
def test_another_dtype_is_an_error(name):
    with pytest.raises(ValueError, match="known are bool, int1"):
        size_bytes(name)


@pytest.mark.parametrize("name", ["float32", "float32[a]", "float32[2,]", "[2]", ""])
def test_no_type_is_an_error(name):
    with pytest.raises(ValueError, match="is not the name of a type"):
        size_bytes(name)
