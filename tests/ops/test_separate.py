"""Separate sends and receives: order on a channel, tags, buffering, and what pairs do not see of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import chain, on_ranks, pair, ring


def receive(x, perm, tag=0):
    """Receive separately: the token comes from no send."""
    return peerax.precv(peerax.create_token(), jax.tree.map(jax.typeof, x), "x", perm, tag=tag)


def numbered(x, number):
    """An array that tells its message from all others, on every rank."""
    return x * 0 + number + 100 * lax.axis_index("x").astype(x.dtype)


X = jnp.arange(8.0)


def test_there_and_back_on_two_ranks():
    def body(x):
        token = peerax.psend(x, "x", [(0, 1)])
        at_1 = peerax.precv(token, x, "x", [(0, 1)])
        token = peerax.psend(at_1 + 1, "x", [(1, 0)])
        return peerax.precv(token, x, "x", [(1, 0)])

    def separately(x):
        peerax.psend(x, "x", [(0, 1)])
        at_1 = receive(x, [(0, 1)])
        peerax.psend(at_1 + 1, "x", [(1, 0)])
        return receive(x, [(1, 0)])

    for program in (body, separately):
        np.testing.assert_array_equal(on_ranks(program, 2)(X[:4]), [1, 2, 0, 0])


@pytest.mark.parametrize("separately", [False, True])
def test_chain_of_eight_with_a_back_edge(separately):
    """Rank 7 passes on what came down the chain, so rank 0 gets what all eight have added."""

    def send_and_receive(x, perm):
        if not separately:
            return pair(x, "x", perm)
        peerax.psend(x, "x", perm)
        return receive(x, perm)

    def body(x):
        rank = lax.axis_index("x")
        value = x
        for source in range(7):
            arrived = send_and_receive(value, [(source, source + 1)])
            value = jnp.where(rank == source + 1, arrived + x, value)
        return send_and_receive(value, [(7, 0)])

    np.testing.assert_array_equal(on_ranks(body, 8)(jnp.arange(1.0, 9)), [36] + [0] * 7)


def test_chain_and_back_edge_in_flight_together():
    """All edges at once, as in a circular pipeline: the whole is a ring, in two perms."""

    def body(x):
        forward = peerax.psend(x, "x", chain(8))
        back = peerax.psend(x, "x", [(7, 0)])
        return peerax.precv(forward, x, "x", chain(8)) + peerax.precv(back, x, "x", [(7, 0)])

    np.testing.assert_array_equal(on_ranks(body, 8)(X), np.roll(X, 1))


def test_a_receive_before_its_send_in_program_order():
    def body(x):
        y = receive(x, [(0, 1)])
        peerax.psend(x + 1, "x", [(0, 1)])
        return y

    np.testing.assert_array_equal(on_ranks(body)(X), [0, 0, 1, 2, 0, 0, 0, 0])


def test_a_receive_before_its_send_down_a_chain():
    def body(x):
        y = receive(x, chain(4))
        peerax.psend(y + 1, "x", chain(4))
        return y

    np.testing.assert_array_equal(on_ranks(body)(X), [0, 0, 1, 1, 2, 2, 3, 3])


def test_prologue_loop_and_epilogue():
    """The receive of a step meets the send of the step before."""

    def body(x):
        def step(carry, _):
            result, arrived = carry
            peerax.psend(result, "x", chain(4))
            return (arrived + x, receive(x, chain(4))), result

        first = receive(x, chain(4))
        (last, arrived), results = lax.scan(step, (x, first), None, length=6)
        peerax.psend(last, "x", chain(4))
        return results

    def by_ppermute(x):
        def step(carry, _):
            result, arrived = carry
            came = lax.ppermute(result, "x", chain(4))
            return (came + x, came), result

        _, results = lax.scan(step, (x, x * 0), None, length=6)
        return results

    actual, expected = (np.asarray(on_ranks(f, out_specs=P(None, "x"))(X)) for f in (body, by_ppermute))
    np.testing.assert_array_equal(actual, expected)


def test_a_sum_after_the_loop_that_depends_on_none_of_it():
    """XLA:CPU likes to sum before the last send; the ranks that still receive would never come to the sum."""

    def body(x):
        def step(carry, _):
            peerax.psend(carry, "x", chain(4))
            return receive(x, chain(4)) + x, None

        first = receive(x, chain(4))
        last, _ = lax.scan(step, x, None, length=3)
        peerax.psend(last, "x", chain(4))
        return lax.psum(x, "x") + 0 * first

    np.testing.assert_array_equal(on_ranks(body)(X), [12, 16] * 4)


@pytest.mark.parametrize("count", [2, 7])
def test_the_kth_send_meets_the_kth_receive(count):
    def body(x):
        for k in range(count):
            peerax.psend(numbered(x, k), "x", ring(4))
        return jnp.stack([receive(x, ring(4)) for k in range(count)])

    actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
    np.testing.assert_array_equal(actual, np.arange(count)[:, None] + 100 * np.roll([0, 0, 1, 1, 2, 2, 3, 3], 2))


def test_leaves_travel_one_by_one():
    """A pytree of three is three messages in a row, which three receives may take."""

    def body(x):
        peerax.psend({"a": numbered(x, 1), "b": [numbered(x, 2), None, numbered(x, 3)]}, "x", ring(4))
        return jnp.stack([*jax.tree.leaves(receive((x, x), ring(4))), receive(x, ring(4))])

    actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
    np.testing.assert_array_equal(actual[:, 2], [1, 2, 3])


def test_tags_are_channels_of_their_own():
    def body(x):
        for tag in (0, 3, -5):
            peerax.psend(numbered(x, tag), "x", ring(4), tag=tag)
        return jnp.stack([receive(x, ring(4), tag=tag) for tag in (-5, 0, 3)])

    actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
    np.testing.assert_array_equal(actual[:, 2], [-5, 0, 3])


def test_a_send_may_have_other_perms_than_its_receives():
    """A channel is a source, a destination and a tag, not a perm."""

    def body(x):
        peerax.psend(x, "x", ring(4))
        return sum(receive(x, [edge]) for edge in ring(4))

    np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 2))


RING = """
import jax, jax.numpy as jnp, numpy as np, peerax
from jax.sharding import PartitionSpec as P

ring = [(rank, (rank + 1) % 4) for rank in range(4)]

def separately(x):
    peerax.psend(x, "x", ring)
    return peerax.precv(peerax.create_token(), x, "x", ring)

def pair(x):
    return peerax.precv(peerax.psend(x, "x", ring), x, "x", ring)

def chain(x):
    peerax.psend(x, "x", ring[:3])
    return peerax.precv(peerax.create_token(), x, "x", ring[:3])

x = jnp.arange(8.0)
def run(body):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    return np.asarray(jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x))

np.testing.assert_array_equal(run(pair), np.roll(x, 2))
try:
    np.testing.assert_array_equal(run(separately), np.roll(x, 2))
    print("ring works")
except jax.errors.JaxRuntimeError as error:
    print(error)
np.testing.assert_array_equal(run(pair), np.roll(x, 2))
np.testing.assert_array_equal(run(chain), [0, 0, 0, 1, 2, 3, 4, 5])
print("the next program works")
"""


@pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
def test_a_separate_ring_needs_buffers(run_python, mode):
    result = run_python(RING, env={"PEERAX_SEND": mode, "PEERAX_TIMEOUT_S": "20"})
    assert result.returncode == 0, result.stderr
    assert "the next program works" in result.stdout
    if mode == "buffered":
        assert "ring works" in result.stdout
    else:
        assert "PX302: deadlock" in result.stdout
        send = 1 + RING[: RING.index('peerax.psend(x, "x", ring)')].count("\n")
        assert f"program_1.py:{send}\n" in result.stdout
        for rank in range(4):
            assert f"rank {rank} waits in psend" in result.stdout


@pytest.fixture
def rendezvous():
    peerax.runtime.extension().set_rendezvous(True)
    yield
    peerax.runtime.extension().set_rendezvous(peerax.runtime.read_settings().rendezvous)


@pytest.mark.usefixtures("rendezvous")
class TestWhatIsAPair:
    """By rendezvous a ring of separate operations is a deadlock, and a pair is not."""

    @pytest.mark.parametrize("axis, perm", [("x", ring(4)[::-1]), (("x",), ring(4)), (["x"], tuple(ring(4)))], ids=str)
    def test_whichever_way_axis_and_perm_are_written(self, axis, perm):
        def body(x):
            return peerax.precv(peerax.psend(x, "x", ring(4)), x, axis, perm)

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 2))

    def test_through_ordering(self):
        def body(x):
            token, _ = peerax.order(peerax.psend(x, "x", ring(4)), jnp.sin(x))
            token, _ = lax.optimization_barrier((token, x))
            return peerax.precv(token, x, "x", ring(4))

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 2))

    def test_in_a_loop_a_branch_and_a_call(self):
        def body(x):
            y = lax.scan(lambda c, _: (jax.jit(lambda c: pair(c, "x", ring(4)))(c), None), x, None, length=3)[0]
            return lax.cond(x.sum() >= 0, lambda: pair(y, "x", ring(4)), lambda: y)

        np.testing.assert_array_equal(on_ranks(body)(X), X)

    @pytest.mark.parametrize("other", ["new token", "tag", "perm"])
    def test_not_with(self, other):
        def body(x):
            token = peerax.psend(x, "x", ring(4))
            token = peerax.create_token() if other == "new token" else token
            perm = ring(4)[:3] if other == "perm" else ring(4)
            return peerax.precv(token, x, "x", perm, tag=int(other == "tag"))

        with pytest.raises(jax.errors.JaxRuntimeError, match="PX(201|202|205|302)"):
            np.asarray(on_ranks(body)(X))


class TestPairsSeeNoOtherMessages:
    def test_a_pair_between_a_separate_send_and_its_receive(self):
        def body(x):
            peerax.psend(numbered(x, 1), "x", ring(4))
            y = pair(numbered(x, 2), "x", ring(4))
            return jnp.stack([y, receive(x, ring(4))])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, 2], [2, 1])

    def test_a_separate_exchange_inside_a_pair(self):
        def body(x):
            token = peerax.psend(numbered(x, 1), "x", ring(4))
            peerax.psend(numbered(x, 2), "x", ring(4))
            z = receive(x, ring(4))
            return jnp.stack([peerax.precv(token, x, "x", ring(4)), z])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, 2], [1, 2])

    def test_two_pairs_received_in_swapped_order(self):
        def body(x):
            first, second = (peerax.psend(numbered(x, k), "x", ring(4)) for k in (1, 2))
            y = peerax.precv(second, x, "x", ring(4))
            return jnp.stack([y, peerax.precv(first, x, "x", ring(4))])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, 2], [2, 1])

    def test_a_token_belongs_to_the_last_send_of_a_chain(self):
        """The second receive finds no send of its own, and takes what is left on the channel."""

        def body(x):
            token = peerax.psend(numbered(x, 1), "x", ring(4))
            token = peerax.psend(numbered(x, 2), "x", ring(4), token=token)
            return jnp.stack([peerax.precv(token, x, "x", ring(4)) for _ in range(2)])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, 2], [2, 1])

    def test_a_token_of_another_perm_makes_no_pair(self):
        """The token's send has another perm, so the receive takes the message on its own channel."""

        def body(x):
            peerax.psend(numbered(x, 1), "x", [(0, 1)])
            other = peerax.psend(numbered(x, 2), "x", [(0, 2)])
            y = peerax.precv(other, x, "x", [(0, 1)])
            return jnp.stack([y, peerax.precv(other, x, "x", [(0, 2)])])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, [2, 4]], [[1, 0], [0, 2]])

    def test_a_token_of_another_tag_makes_no_pair(self):
        def body(x):
            peerax.psend(numbered(x, 1), "x", ring(4), tag=1)
            other = peerax.psend(numbered(x, 2), "x", ring(4), tag=2)
            y = peerax.precv(other, x, "x", ring(4), tag=1)
            return jnp.stack([y, peerax.precv(other, x, "x", ring(4), tag=2)])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:, 2], [1, 2])

    def test_a_token_that_was_ordered_still_links_the_pair(self):
        """A pair that is a ring cannot hang even if every rank must have computed first."""

        def body(x):
            token = peerax.psend(numbered(x, 1), "x", ring(4))
            token, y = peerax.order(token, jnp.sin(x))
            token, y = lax.optimization_barrier((token, y))
            peerax.psend(numbered(x, 2), "x", ring(4))
            return jnp.stack([peerax.precv(token, x, "x", ring(4)), receive(x, ring(4)), y])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual[:2, 2], [1, 2])

    def test_a_pair_is_awaited_at_its_receive(self):
        """Rank 1 posts its part of the pair, then sends rank 0 what rank 0 needs before it can post its own."""
        swap = [(0, 1), (1, 0)]

        def body(x):
            rank = lax.axis_index("x")
            helped = lax.cond(rank == 0, lambda: receive(x, [(1, 0)], tag=1) + 0 * x, lambda: x)
            token = peerax.psend(x, "x", swap)
            sent = lax.cond(rank == 1, lambda: x + 0 * peerax.psend(x, "x", [(1, 0)], tag=1), lambda: x)
            return jnp.stack([peerax.precv(token, x, "x", swap), helped + 0 * sent])

        actual = np.asarray(on_ranks(body, out_specs=P(None, "x"))(X))
        np.testing.assert_array_equal(actual, [[2, 3, 0, 1, 0, 0, 0, 0], [2, 3, 2, 3, 4, 5, 6, 7]])
