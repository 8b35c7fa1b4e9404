"""Programs drawn at random, without any data that would order their operations, against a model of what they mean.

The model runs every rank through the operations in program order. It says what each rank gets, or that the program
cannot end; then the run must end with an error, and neither hang nor give values.
"""

import collections
import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from peerax import runtime
from tests.ops.ranks import on_ranks, pair
from tests.ops.test_pairs_equal_ppermute import perms


@pytest.fixture(autouse=True, scope="module")
def sends_are_buffered_again():
    yield
    runtime.extension().set_rendezvous(runtime.read_settings().rendezvous)


@dataclasses.dataclass(frozen=True)
class Operation:
    kind: str
    perm: tuple = ()
    tag: int = 0
    ranks: tuple | None = None  # those that take the branch with the operation; None: no branch
    count: int = 1  # of elements
    halves: int | None = None  # of a pair whose ends stand apart, "first half" and "second half": what they share

    def value(self, number, rank):
        return 100.0 + 10 * number + rank


@st.composite
def programs(draw, size):
    operations = []
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from([*["pair", "send and receive", "ppermute", "psum"] * 4, "send", "receive"]))
        perm, tag = tuple(draw(perms(size))), draw(st.integers(0, 1))
        some = st.none() if draw(st.integers(0, 5)) else st.sets(st.integers(0, size - 1)).map(sorted).map(tuple)
        count = draw(st.sampled_from([1, 20_000]))
        kinds = ("send", "receive") if kind == "send and receive" else (kind,)
        operations += [Operation(k, perm, tag, draw(some), count) for k in kinds]
    operations = draw(st.permutations(operations)) if draw(st.booleans()) else operations
    for halves, whole in enumerate([o for o in operations if o.kind == "pair" and o.ranks is None]):
        first, second = (dataclasses.replace(whole, kind=k, halves=halves) for k in ("first half", "second half"))
        at = operations.index(whole)
        operations = [*operations[:at], first, *operations[at + 1 :]]
        operations.insert(draw(st.integers(at + 1, len(operations))), second)
    return operations


def body(operations, times):
    """Return what every rank does, times times."""

    tokens = {}

    def perform(number, operation):
        value = jnp.full(operation.count, operation.value(number, lax.axis_index("x").astype(jnp.float32)))
        if operation.kind == "pair":
            return pair(value, "x", operation.perm, tag=operation.tag)
        if operation.kind == "first half":
            tokens[operation.halves] = peerax.psend(value, "x", operation.perm, tag=operation.tag)
            return jnp.zeros_like(value)
        if operation.kind == "second half":
            return peerax.precv(tokens[operation.halves], value, "x", operation.perm, tag=operation.tag)
        if operation.kind == "ppermute":
            return lax.ppermute(value, "x", operation.perm)
        if operation.kind == "psum":
            return lax.psum(value, "x")
        if operation.kind == "send":
            peerax.psend(value, "x", operation.perm, tag=operation.tag)
            return jnp.zeros_like(value)
        return peerax.precv(peerax.create_token(), value, "x", operation.perm, tag=operation.tag)

    def once(_):
        peerax.psend((), "x", [])  # a body without peerax's operations is left to XLA, which may abort
        results = []
        for number, operation in enumerate(operations):
            if operation.ranks is None:
                result = perform(number, operation)
            else:
                inside = jnp.isin(lax.axis_index("x"), jnp.array(operation.ranks, jnp.int32))
                result = lax.cond(
                    inside,
                    lambda number=number, operation=operation: perform(number, operation),
                    lambda operation=operation: jnp.zeros(operation.count),
                )
            results.append(result[0])
            results.append(result[-1])
        return jnp.stack(results)

    return lambda: lax.map(once, jnp.arange(times)) if times > 1 else once(0)[None]


def model(operations, times, size, rendezvous):
    """Return the results by time, operation and rank, or None if the program cannot end."""
    results = np.zeros((times, len(operations), size))
    messages, joined, taken = collections.defaultdict(collections.deque), collections.Counter(), set()
    at, started, disagree = [0] * size, [False] * size, [False]

    def finish(rank, time, number, operation):
        """Start the operation if it is not, and return whether it is complete on this rank."""
        if operation.ranks is not None and rank not in operation.ranks:
            return True
        to, origin = dict(operation.perm), {d: s for s, d in operation.perm}
        if operation.kind == "psum":
            joined[time, number] += not started[rank]
            started[rank] = True
            results[time, number, rank] = sum(operation.value(number, r) for r in range(size))
            return joined[time, number] == size
        own = (number,) if operation.kind in ("pair", "ppermute") else (None, operation.tag)
        own = own if operation.halves is None else ("halves", operation.halves)
        sends = operation.kind not in ("receive", "second half")
        if sends and rank in to and not started[rank]:
            messages[own, rank, to[rank]].append((operation.value(number, rank), operation.count, (time, number, rank)))
        started[rank] = True
        if operation.kind == "send" and rendezvous and rank in to:
            return (time, number, rank) in taken
        if operation.kind in ("send", "first half") or rank not in origin:
            return True
        queue = messages[own, origin[rank], rank]
        if not queue:
            return False
        results[time, number, rank], count, message = queue.popleft()
        taken.add(message)
        disagree[0] |= count != operation.count  # another shape is an error
        return True

    progress = True
    while progress:
        progress = False
        for rank in range(size):
            while at[rank] < times * len(operations):
                time, number = divmod(at[rank], len(operations))
                if not finish(rank, time, number, operations[number]):
                    break
                at[rank], started[rank], progress = at[rank] + 1, False, True
    complete = all(a == times * len(operations) for a in at) and not any(messages.values())
    return results if complete and not disagree[0] else None


def check(size, operations, times, rendezvous=False):
    expected = model(operations, times, size, rendezvous)
    program = on_ranks(body(operations, times), size, in_specs=(), out_specs=P(None, "x"), check_vma=False)
    runtime.extension().set_rendezvous(rendezvous)
    if expected is None:
        with pytest.raises(jax.errors.JaxRuntimeError, match="PX(201|202|205|209|302|304)"):
            np.asarray(program())
    else:
        # First and last element of each result; ranks one after another.
        actual = np.asarray(program()).reshape(times, size, len(operations), 2)
        np.testing.assert_array_equal(actual[..., 0], expected.transpose(0, 2, 1))
        np.testing.assert_array_equal(actual[..., 1], expected.transpose(0, 2, 1))
    return expected is not None


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.data())
def test_any_program(data):
    size = data.draw(st.sampled_from([2, 3, 4]), "size")
    operations, times = data.draw(programs(size), "operations"), data.draw(st.sampled_from([1, 1, 3]), "times")
    check(size, operations, times, data.draw(st.booleans(), "rendezvous"))


EDGE, BACK = ((0, 1),), ((1, 0),)
SEND, RECEIVE = Operation("send", EDGE), Operation("receive", EDGE)


@pytest.mark.parametrize(
    "operations, ends, ends_by_rendezvous",
    [
        ([RECEIVE, SEND], True, True),
        ([SEND, RECEIVE], True, True),
        ([Operation("receive", EDGE + BACK), Operation("send", EDGE + BACK)], False, False),
        ([Operation("send", EDGE + BACK), Operation("receive", EDGE + BACK)], True, False),
        ([Operation("pair", EDGE + BACK)], True, True),
        ([SEND, Operation("psum"), RECEIVE], True, False),
        ([RECEIVE, Operation("psum"), SEND], False, False),
        ([Operation("send", EDGE, 1), RECEIVE], False, False),
        ([Operation("psum", ranks=(0, 1))], False, False),
        ([Operation("pair", EDGE, ranks=(0, 1)), Operation("psum")], True, True),
        ([Operation("pair", EDGE, ranks=(0,))], False, False),
        ([Operation("send", EDGE, count=20_000), RECEIVE], False, False),
        ([SEND, Operation("send", EDGE, count=20_000), Operation("receive", EDGE, count=20_000)], False, False),
    ],
)
def test_the_model_itself(operations, ends, ends_by_rendezvous):
    assert check(3, operations, 1) is ends
    assert check(3, operations, 1, rendezvous=True) is ends_by_rendezvous
