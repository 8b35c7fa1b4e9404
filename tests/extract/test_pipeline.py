"""A pipeline as one scan, in which tables say what each rank receives and sends in each tick."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import peerax
from peerax import create_token, precv, psend
from tests.ranks import chain, line

RANKS, MICROBATCHES = 8, 64


def one_forward_one_backward(ranks, microbatches):
    """Return by rank and tick whether it sends an activation on, and whether it sends a gradient back."""
    ticks = 2 * (microbatches + ranks - 1)
    activations, gradients = np.zeros((2, ranks, ticks), np.int32)
    for rank in range(ranks):
        for microbatch in range(microbatches):
            warm_up = microbatch < ranks - 1 - rank
            activations[rank, rank + microbatch if warm_up else rank + 2 * microbatch] = rank < ranks - 1
            gradients[rank, 2 * ranks - 1 - rank + 2 * microbatch] = rank > 0
    return activations, gradients


def pipeline(sends, receives, mesh=None):
    """Return the program of a table of sends and one of receives, each of activations and of gradients."""
    forward = chain(RANKS)
    backward = [(b, a) for a, b in forward]
    tables = sends[0], receives[0], sends[1], receives[1]

    def tick(x, now):
        def receive(perm, tag):
            return lambda: precv(create_token(), x, "x", perm, tag=tag)

        lax.cond(now[0] == 1, lambda: psend(x, "x", forward, tag=0), create_token)
        came = lax.cond(now[1] == 1, receive(forward, 0), lambda: jnp.zeros_like(x))
        lax.cond(now[2] == 1, lambda: psend(x, "x", backward, tag=1), create_token)
        back = lax.cond(now[3] == 1, receive(backward, 1), lambda: jnp.zeros_like(x))
        return jnp.sin(x) * (came + back), None

    def body(x):
        rows = jnp.stack([jnp.asarray(table)[lax.axis_index("x")] for table in tables], 1)
        return lax.scan(tick, x, rows)[0]

    return jax.shard_map(body, mesh=mesh or line(RANKS), in_specs=P("x"), out_specs=P("x"), check_vma=False)


def receives_of(activations, gradients):
    return np.roll(activations, 1, 0), np.roll(gradients, -1, 0)


SENDS = one_forward_one_backward(RANKS, MICROBATCHES)
RECEIVES = receives_of(*SENDS)
X = jax.ShapeDtypeStruct((RANKS * 8,), jnp.float32)


@pytest.mark.parametrize(
    "mesh", [line(RANKS), AbstractMesh((RANKS,), ("x",), axis_types=(AxisType.Auto,))], ids=["devices", "no devices"]
)
def test_it_is_safe(mesh):
    program = pipeline(SENDS, RECEIVES, mesh)
    assert peerax.check(program, X).ok
    assert peerax.check(jax.grad(lambda x: program(x).sum()), X).ok
    # No rank does more than is in its table, and nothing is told apart more than by its tables.
    bodies = peerax.program(program, X).bodies()
    assert len(set(bodies)) == RANKS and all(len(body) == 1 for body in bodies)


@pytest.mark.parametrize("kind, rank", [(0, 3), (1, 3), (0, 0), (1, RANKS - 1)])
def test_a_send_that_is_missing(kind, rank):
    sends = [table.copy() for table in SENDS]
    sends[kind][rank, np.flatnonzero(sends[kind][rank])[10]] = 0
    (found,) = peerax.check(pipeline(sends, RECEIVES), X).diagnostics
    assert found.code == "PX202" and set(found.ranks) == {rank, rank + 1 - 2 * kind}


def test_sends_that_are_late():
    sends = SENDS[0].copy(), SENDS[1]
    sends[0][2] = np.roll(sends[0][2], 3)  # as many, but gradients come back only afterwards
    report = peerax.check(pipeline(sends, RECEIVES), X)
    assert {found.code for found in report.diagnostics} == {"PX207"}
