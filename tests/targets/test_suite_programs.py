"""Every step of the table of transformations, and its gradient, compiled for GPUs and TPUs with XLA's own compilers.

A program that hangs there is refused with its code. XLA:GPU's own check of sends and receives must not refuse others.
"""

import os
from pathlib import Path

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import peerax
from peerax.targets import missing_package, parse_target
from tests.transformations.programs import STEPS, loss, rows, weights

SIZE = 8
# Steps with separate operations, which a TPU does not have.
SEPARATE = {"separate", "two-tags", "pipeline"}


def compile_step(name, target, transform):
    command = missing_package(parse_target(target))
    if command is not None:
        pytest.skip(f"compiling for {target} needs: {command}")
    mesh = AbstractMesh((SIZE,), ("x",))
    specs = (PartitionSpec(), PartitionSpec("x"))
    body = jax.shard_map(loss(STEPS[name][0]), mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    args = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
        for x, spec in zip((weights(), rows(SIZE)), specs, strict=True)
    ]
    return peerax.compile_for(jax.jit(transform(body)), *args, target=target)


@pytest.mark.parametrize("transform", [lambda f: f, jax.value_and_grad], ids=["value", "gradient"])
@pytest.mark.parametrize("name", STEPS)
class TestEachStep:
    def test_gpu(self, name, transform):
        if name == "two-tags":  # its first send is received last, which hangs without buffers (see below)
            with pytest.raises(peerax.PeeraxError, match="PX208"):
                compile_step(name, "h100:8", transform)
            return
        hlo = compile_step(name, "h100:8", transform).hlo
        assert (" send(" in hlo and " recv(" in hlo) == (name in SEPARATE)
        assert "collective-permute" in hlo or name in SEPARATE

    def test_tpu(self, name, transform):
        if name in SEPARATE:
            with pytest.raises(peerax.PeeraxError, match="PX213"):
                compile_step(name, "v5e:2x4", transform)
        else:
            assert "collective-permute" in compile_step(name, "v5e:2x4", transform).hlo


@pytest.mark.parametrize("name", STEPS)
def test_what_is_refused_hangs_without_buffers_and_nothing_else_does(name, run_python):
    """The same steps on CPU, where a send waits for its receive as on a GPU."""
    code = f"""
import jax
from tests.transformations.programs import STEPS, loss, on_ranks, rows, weights

jax.block_until_ready(on_ranks(loss(STEPS[{name!r}][0]), 8, True)(weights(), rows(8)))
"""
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    env = {"PEERAX_SEND": "rendezvous", "PYTHONPATH": os.pathsep.join(filter(None, path))}
    result = run_python(code, devices=8, env=env)
    assert (result.returncode == 0) == (name != "two-tags"), result.stderr
    assert "PX302" in result.stderr or name != "two-tags"
