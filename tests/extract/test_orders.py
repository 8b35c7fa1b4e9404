"""Programs judged as jax.lax would run them: no pairs, and any order that the data allow.

What is expected comes from trying all orders by hand: a rendezvous of two ranks is easily followed.
"""

import itertools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from peerax.extract._orders import Order, between, orders
from peerax.verifier import Send
from tests.ranks import chain, line, ring

pytestmark = pytest.mark.filterwarnings("ignore:.*psend|.*precv|.*create_token:DeprecationWarning")
THERE, BACK = [(0, 1)], [(1, 0)]


def send(x, perm=THERE):
    return lax.psend(x, "x", perm)


def receive(token, like, perm=THERE):
    return lax.precv(token, jax.ShapeDtypeStruct(like.shape, like.dtype), "x", perm)


def check(body, size=2, **options):
    f = jax.shard_map(body, mesh=line(size), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return peerax.check(f, jax.ShapeDtypeStruct((8 * size,), jnp.float32), as_written_for="jax.lax", **options)


def there_and_back(x):
    there = receive(send(x), x)
    return there + receive(send(x, BACK), x, BACK)


def back_depends_on_there(x):
    there = receive(send(x), x)
    return receive(send(there, BACK), x, BACK)


def two_shapes(x):
    whole, part = receive(send(x), x), receive(send(x[:4]), x[:4])
    return whole.at[:4].add(part)


def with_an_independent_psum(x):
    return receive(send(x), x) + lax.psum(x, "x")


def with_a_psum_of_the_result(x):
    return lax.psum(receive(send(x), x), "x")


def tokens_crossed(x):
    first, second = send(x), send(x[:4])
    part, whole = receive(first, x[:4]), receive(second, x)
    return whole.at[:4].add(part)


def in_a_loop(x):
    return lax.scan(lambda x, _: (there_and_back(x), None), x, None, length=3)[0]


def in_a_branch(x):
    return lax.cond(lax.psum(x.sum(), "x") > 0, there_and_back, lambda x: x, x)


def in_calls(x):
    return jax.jit(there_and_back)(x)


class TestOrderMatters:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (there_and_back, "PX208"),
            (two_shapes, "PX203"),
            (with_an_independent_psum, "PX208"),
            (tokens_crossed, "PX203"),
            (in_a_loop, "PX208"),
            (in_a_branch, "PX208"),
            (in_calls, "PX208"),
        ],
    )
    def test_is_unsafe(self, body, code):
        report = check(body)
        (found,) = report.diagnostics
        assert (report.verdict, found.code, found.severity) == ("unsafe", "PX206", "error")
        assert f"in another order: {code}" in found.evidence[0]
        assert all(file.endswith("test_orders.py") for file, _ in found.locations)

    def test_the_two_lines_are_those_that_must_not_change_places(self):
        def body(x):
            x = receive(send(x), x) * 2
            token = lax.psend(x, "x", THERE)
            total = lax.psum(x, "x")  # free
            return receive(token, x) + total

        (found,) = check(body).diagnostics
        first = body.__code__.co_firstlineno
        assert {line for _, line in found.locations} == {first + 2, first + 3}

    def test_buffers_help_against_hangs_only(self):
        assert check(there_and_back, semantics="buffered").verdict == "safe"
        assert check(two_shapes, semantics="buffered").verdict == "unsafe"


class TestOrderIsFixedOrDoesNotMatter:
    @pytest.mark.parametrize("body", [back_depends_on_there, with_a_psum_of_the_result])
    def test_fixed(self, body):
        report = check(body)
        assert (report.verdict, report.diagnostics) == ("safe", ())

    def test_all_orders_are_safe(self):
        def body(x):
            send(x, chain(4))
            return receive(lax.create_token(), x, chain(4))

        report = check(body, 4)
        (found,) = report.diagnostics
        assert (report.verdict, found.code, found.severity) == ("safe", "PX206", "warning")
        assert "all 2 orders are safe" in found.message

    def test_all_orders_are_wrong(self):
        def body(x):
            return receive(send(x), x, BACK)

        report = check(body)
        assert (report.verdict, report.codes) == ("unsafe", {"PX201", "PX202"})

    def test_too_many_orders(self):
        def body(x):
            return sum(lax.psum(x[i], "x") for i in range(8)) + x

        report = check(body)
        assert (report.verdict, report.codes) == ("undecided", {"PX211"})


def test_there_are_no_pairs():
    def body(x):
        return receive(send(x, ring(4)), x, ring(4))

    assert check(body, 4).codes == {"PX208"}
    f = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    assert peerax.check(f, jnp.zeros(8, jnp.float32)).ok


def test_bad_perms_of_jax_lax_are_reported():
    def body(perm):
        return lambda x: receive(send(x, perm), x, perm)

    assert check(body([(0, 7)])).codes == {"PX102"}
    assert check(body([(0, -1)])).codes == {"PX102"}
    assert check(body([(0, 1), (1, 1)])).codes == {"PX103"}


def _steps(number):
    return [Send(((0, 1),), ("float32[1]",), ("step.py", i)) for i in range(number)]


def _order(steps, edges):
    order = Order({id(step): 1 << i for i, step in enumerate(steps)})
    order.behind = {id(step): sum(1 << a for a, b in edges if b == i) for i, step in enumerate(steps)}
    return order


@pytest.mark.parametrize(
    "edges",
    [(), ((0, 1),), ((0, 1), (0, 2), (1, 3), (2, 3)), ((0, 4), (1, 4)), ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3))],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_orders_are_the_permutations_that_keep_every_edge(edges, backwards):
    steps = _steps(5)
    place = {id(step): i for i, step in enumerate(steps)}
    found = [tuple(place[id(step)] for step in arranged) for arranged in orders(steps, _order(steps, edges), backwards)]
    allowed = [p for p in itertools.permutations(range(5)) if all(p.index(a) < p.index(b) for a, b in edges)]
    assert sorted(found) == allowed
    assert found == (allowed[::-1] if backwards else allowed)


def test_a_way_between_orders_changes_neighbours():
    steps = _steps(5)
    for target in itertools.permutations(steps):
        current = list(steps)
        for arranged, first, second in between(steps, target):
            i = current.index(first)
            assert current[i + 1] is second
            current[i : i + 2] = [second, first]
            assert current == arranged
        assert current == list(target)
