"""Names of targets, and clear errors for those that are not there."""

import jax
import jax.numpy as jnp
import pytest

import peerax
from peerax.targets import missing_package, parse_target


@pytest.mark.parametrize(
    ("name", "platform", "shape", "size"),
    [
        ("h100:8", "cuda", (8,), 8),
        ("a100:8", "cuda", (8,), 8),
        ("h100:4x8", "cuda", (4, 8), 32),
        ("v5e:2x4", "tpu", (2, 4), 8),
        ("v5p:4x4x4", "tpu", (4, 4, 4), 64),
        ("v5p:16x16x16", "tpu", (16, 16, 16), 4096),
    ],
)
def test_names(name, platform, shape, size):
    target = parse_target(name)
    assert (target.platform, target.shape, target.size) == (platform, shape, size)


@pytest.mark.parametrize(
    "name", ["", "h100", "h100:0", "h100:2x2x2", "v5e:8", "v9:2x4", "h100:8:8", "h100: 8", "cpu:4"]
)
def test_other_names_are_refused_with_the_valid_ones(name):
    with pytest.raises(peerax.PeeraxError, match=r"a100, h100, h200[\s\S]*v5e") as error:
        parse_target(name)
    assert error.value.code == "PX403"


@pytest.mark.parametrize("name", ["h100:1", "v5e:2x4"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(name, monkeypatch):
    monkeypatch.setattr("peerax.targets._found", lambda module: False)
    command = missing_package(parse_target(name))
    assert command.startswith("pip install") and "peerax[" in command
    with pytest.raises(peerax.PeeraxError) as error:
        peerax.compile_for(jnp.sin, jnp.arange(4.0), target=name)
    assert error.value.code == "PX403"
    assert command in str(error.value)


def test_a_program_for_another_number_of_devices_is_refused():
    mesh = jax.sharding.Mesh(jax.devices()[:4], ("x",))
    spec = jax.sharding.PartitionSpec("x")
    double = jax.jit(jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=spec, out_specs=spec))
    with pytest.raises(peerax.PeeraxError, match="the program is for 4 devices, and h100:8 has 8"):
        peerax.compile_for(double, jnp.arange(4.0), target="h100:8")
