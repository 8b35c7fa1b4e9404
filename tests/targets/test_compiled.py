"""Programs compiled for GPUs and TPUs that are not there. Needs peerax[tpu] and peerax[cuda13]."""

import functools
import time

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import peerax
from peerax.targets import missing_package, parse_target

ROWS = 128


def needs(target):
    command = missing_package(parse_target(target))
    if command is not None:
        pytest.skip(f"compiling for {target} needs: {command}")


@functools.cache
def mesh_of(size):
    return AbstractMesh((size,), ("x",))


def compile_body(body, target, *, rows=ROWS):
    needs(target)
    size = parse_target(target).size
    spec = PartitionSpec("x")
    program = jax.jit(jax.shard_map(body, mesh=mesh_of(size), in_specs=spec, out_specs=spec))
    return peerax.compile_for(program, argument(size, rows), target=target)


def argument(size, rows=ROWS):
    sharding = NamedSharding(mesh_of(size), PartitionSpec("x"))
    return jax.ShapeDtypeStruct((size * rows, rows), jnp.float32, sharding=sharding)


def ring_of(size):
    return [(i, (i + 1) % size) for i in range(size)]


def ring_pair(x, size):
    return peerax.precv(peerax.psend(x, "x", ring_of(size)), x, "x", ring_of(size))


def separate_chain(x, size):
    chain = ring_of(size)[:-1]
    peerax.psend(x, "x", chain)
    return peerax.precv(peerax.create_token(), x, "x", chain) @ x


def pipeline(x, size):
    """One receive before the loop and one send after it: all separate."""
    chain = ring_of(size)[:-1]
    first = peerax.precv(peerax.create_token(), x, "x", chain)

    def tick(carry, _):
        result, arrived = carry
        peerax.psend(result, "x", chain)
        new = jnp.tanh(arrived @ x)
        return (new, peerax.precv(peerax.create_token(), x, "x", chain)), None

    (result, _), _ = lax.scan(tick, (x, first), None, length=5)
    peerax.psend(result, "x", chain)
    return result


@pytest.mark.parametrize("target", ["h100:8", "a100:8", "h100:4x8", "v5e:2x4", "v5p:4x4x4"])
def test_a_ring_pair_is_a_collective_permute(target):
    size = parse_target(target).size
    compiled = compile_body(lambda x: ring_pair(x, size), target)
    assert "collective-permute" in compiled.hlo
    assert " send(" not in compiled.hlo and " recv(" not in compiled.hlo
    assert compiled.memory["arguments"] == compiled.memory["outputs"] == ROWS * ROWS * 4


@pytest.mark.parametrize("target", ["h100:8", "h100:4x8"])
@pytest.mark.parametrize("body", [separate_chain, pipeline])
def test_separate_operations_are_send_and_recv_and_xlas_verifier_accepts_them(target, body):
    size = parse_target(target).size
    hlo = compile_body(lambda x: body(x, size), target).hlo
    assert " send(" in hlo and " recv(" in hlo
    assert "collective-permute" not in hlo


@pytest.mark.parametrize("body", [separate_chain, pipeline])
def test_a_separate_operation_on_a_tpu_is_refused_with_its_line(body):
    needs("v5e:2x4")
    with pytest.raises(peerax.PeeraxError) as error:
        compile_body(lambda x: body(x, 8), "v5e:2x4")
    assert error.value.code == "PX213"
    ((file, line),) = error.value.locations
    assert file.endswith("test_compiled.py")
    first = body.__code__.co_firstlineno
    assert first < line < first + 16


def test_a_pair_overlaps_an_independent_matmul_on_a_tpu():
    ring = ring_of(8)

    def body(x):
        token = peerax.psend(x, "x", ring)
        y = jnp.tanh(x @ x) @ x
        return peerax.precv(token, x, "x", ring) + y

    lines = compile_body(body, "v5e:2x4", rows=2048).hlo.splitlines()
    entry = next(i for i, line in enumerate(lines) if line.startswith("ENTRY"))
    places = {}
    for i, line in enumerate(lines[entry:]):
        for name in ("collective-permute-start(", "collective-permute-done(", "convolution", "fusion("):
            if name in line:
                places.setdefault(name, []).append(i)
    (start,), (done,) = places["collective-permute-start("], places["collective-permute-done("]
    computing = places.get("convolution", []) + places.get("fusion(", [])
    assert any(start < i < done for i in computing), "\n".join(lines[entry:])


@pytest.mark.parametrize("target", ["v5p:4x4x4", "h100:4x8", "h100:8", "v5p:16x16x16"])
def test_forward_and_backward_of_a_pipeline_of_pairs_compile(target):
    needs(target)
    size = parse_target(target).size

    def stages(w):
        def tick(x, _):
            x = jnp.tanh(x @ w)
            return ring_pair(x, size), None

        return (lax.scan(tick, w, None, length=4)[0] ** 2).sum()[None]

    spec = PartitionSpec("x")
    loss = jax.shard_map(stages, mesh=mesh_of(size), in_specs=spec, out_specs=spec)
    start = time.perf_counter()
    compiled = peerax.compile_for(jax.jit(jax.grad(lambda w: loss(w).sum())), argument(size), target=target)
    assert time.perf_counter() - start < 30
    assert compiled.hlo.count("collective-permute-start(") + compiled.hlo.count("collective-permute(") >= 2


@pytest.mark.parametrize("target", ["h100:8", "v5e:2x4"])
def test_all_ranks_come_by_the_sums_of_their_branches(target):
    """The gradient in weights that all ranks share and only the first one uses."""
    needs(target)

    def loss(w, x):
        first = lax.axis_index("x") == 0
        y = lax.cond(first, lambda came: jnp.sin(x @ w), lambda came: came + 1, ring_pair(x, 8))
        return lax.psum((y * y).sum(), "x")

    specs = PartitionSpec(), PartitionSpec("x")
    gradient = jax.grad(jax.shard_map(loss, mesh=mesh_of(8), in_specs=specs, out_specs=PartitionSpec()))
    x = argument(8)
    w = jax.ShapeDtypeStruct((ROWS, ROWS), jnp.float32, sharding=NamedSharding(mesh_of(8), PartitionSpec()))
    hlo = peerax.compile_for(jax.jit(gradient), w, x, target=target).hlo
    branches, entry = hlo[: hlo.index("\nENTRY")], hlo[hlo.index("\nENTRY") :]
    assert " conditional(" in entry
    assert " all-reduce(" in entry and " all-reduce(" not in branches
