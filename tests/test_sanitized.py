"""What .ci/sanitize runs under the address sanitizer: all operations, sizes around limits, failing runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from peerax.runtime import extension, load

RANKS = 4
RING = [(i, (i + 1) % RANKS) for i in range(RANKS)]
CHAIN = RING[:-1]


def on_ranks(body, **options):
    mesh = Mesh(np.array(jax.devices()[:RANKS]), ("r",))
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("r"), out_specs=P("r")), **options)


def receive(like, tag=0):
    return peerax.precv(peerax.create_token(), like, "r", CHAIN, tag=tag)


@pytest.fixture(params=[False, True], ids=["buffered", "rendezvous"])
def separate_sends(request):
    load()
    extension().set_rendezvous(request.param)
    yield
    extension().set_rendezvous(False)


def column(size):
    return jnp.arange(RANKS * size, dtype=jnp.uint8).reshape(RANKS, size)


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 131_071, 131_072, 1 << 20])
def test_pairs(size):
    run = on_ranks(lambda x: peerax.precv(peerax.psend((x, x[:, ::2]), "r", RING), (x, x[:, ::2]), "r", RING))
    x = column(size)
    for y, wanted in zip(run(x), (x, x[:, ::2]), strict=True):
        np.testing.assert_array_equal(y, np.roll(wanted, 1, axis=0))


@pytest.mark.parametrize("perm", [RING, CHAIN])
@pytest.mark.parametrize("size", [1 << 20, (3 << 20) + 5])
def test_pairs_in_place(size, perm):
    def body(exchange):
        return lambda x: lax.scan(lambda x, _: (exchange(x + 1), None), x, None, length=3)[0]

    def pair(x):
        return peerax.precv(peerax.psend(x, "r", perm), x, "r", perm)

    x = column(size)
    theirs = on_ranks(body(lambda x: lax.ppermute(x, "r", perm)))(x)
    np.testing.assert_array_equal(on_ranks(body(pair))(x), theirs)


@pytest.mark.parametrize("size", [0, 1, 131_072])
def test_separate_operations(size, separate_sends):
    def body(x):
        y = receive(x, tag=1)
        peerax.psend(x + 1, "r", CHAIN, tag=1)
        return y

    x = column(size)
    np.testing.assert_array_equal(on_ranks(body)(x), np.concatenate([x[:1] * 0, x[:-1] + 1]))


def test_loops_branches_and_collectives(separate_sends):
    def body(move):
        def step(x, t):
            x = lax.cond(t % 2 == 0, lambda x: x + lax.pmean(x, "r"), jnp.sin, move(x))
            return x, jnp.sum(x)

        return lambda x: lax.scan(step, x, jnp.arange(20))[0]

    def chained(x):
        peerax.psend(x, "r", CHAIN)
        return peerax.order(receive(x), x)[0]

    x = jnp.linspace(0, 1, RANKS * 100).reshape(RANKS, 100)
    theirs = on_ranks(body(lambda x: lax.ppermute(x, "r", CHAIN)))(x)
    np.testing.assert_array_equal(on_ranks(body(chained))(x), theirs)


def test_donated_arguments():
    run = on_ranks(lambda x: peerax.precv(peerax.psend(x, "r", RING), x, "r", RING) + 1, donate_argnums=0)
    x = run(jnp.zeros((RANKS, 100_000)))
    for _ in range(10):
        x = run(x)
    np.testing.assert_array_equal(x, np.full((RANKS, 100_000), 11))


def lone_receive(x):
    peerax.psend(x, "r", RING[1:], tag=1)
    return lax.cond(lax.axis_index("r") == 1, receive, lambda x: x, x)


def lone_send(x):
    peerax.psend(x, "r", CHAIN)
    return x


def mismatch(x):
    peerax.psend(x, "r", CHAIN)
    return receive(x[:, 1:])


def missed_collective(x):
    x = peerax.precv(peerax.psend(x, "r", RING), x, "r", RING)
    return lax.cond(lax.axis_index("r") == 1, lambda x: x, lambda x: x + lax.psum(x, "r"), x)


@pytest.mark.parametrize(
    ("body", "code"),
    [(lone_receive, "PX202"), (lone_send, "PX201"), (mismatch, "PX304"), (missed_collective, "PX209")],
)
def test_failing_runs(body, code):
    x = column(70_000)
    run = on_ranks(body)
    for _ in range(3):
        with pytest.raises(jax.errors.JaxRuntimeError, match=code):
            jax.block_until_ready(run(x))
    assert extension().buffered_bytes() == 0
