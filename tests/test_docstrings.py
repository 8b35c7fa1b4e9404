"""What the docstrings of the public functions must say."""

import inspect
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, PartitionSpec

import peerax
from peerax.diagnostics import CODES

FUNCTIONS = [value for value in (getattr(peerax, name) for name in peerax.__all__) if inspect.isfunction(value)]
OF_ARRAYS = [f for f in FUNCTIONS if f not in (peerax.explain, peerax.install)]
# Raised by what is not a message: shift, JAX's own collectives, a run inside a callback, compile_for, the verifier.
OF_OTHERS = {"PX109", "PX209", "PX308", "PX403", "PX206", "PX207", "PX208", "PX210", "PX211"}


def codes(function):
    return set(re.findall(r"PX\d{3}", function.__doc__))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_sections(function):
    sections = re.findall(r"^(\w+):$", inspect.getdoc(function), re.MULTILINE)
    signature = inspect.signature(function)
    assert ("Args" in sections) == bool(signature.parameters)
    assert ("Returns" in sections) == (signature.return_annotation is not None)
    assert "Example" in sections or function not in OF_ARRAYS
    assert codes(function) <= set(CODES)


def test_the_codes_of_messages_are_those_of_psend_and_precv():
    assert codes(peerax.psend) | codes(peerax.precv) == set(CODES) - OF_OTHERS
    assert codes(peerax.psend) ^ codes(peerax.precv) == {"PX201", "PX202", "PX303", "PX307"}


@pytest.mark.parametrize("dtype", [jnp.float6_e2m3fn, jnp.float6_e3m2fn])
@pytest.mark.parametrize(
    ("function", "move"),
    [
        (peerax.psend, lambda x: peerax.psend(x, "x", [(0, 1)])),
        (peerax.precv, lambda x: peerax.precv(peerax.create_token(), x, "x", [(0, 1)])),
        (peerax.shift, lambda x: peerax.shift(x, "x", 1)),
        (peerax.permute_shards, lambda x: peerax.permute_shards(x, "x", [(0, 1)])),
    ],
)
def test_floats_of_six_bits_cannot_be_sent_as_they_say(function, move, dtype):
    spec = PartitionSpec("x")
    program = jax.shard_map(move, mesh=Mesh(jax.devices()[:2], ("x",)), in_specs=spec, out_specs=spec)
    with pytest.raises(peerax.PeeraxError) as info:
        jax.eval_shape(program, jax.ShapeDtypeStruct((2,), dtype))
    assert info.value.code == "PX106"
    assert "PX106" in codes(function) or "as permute_shards" in function.__doc__
