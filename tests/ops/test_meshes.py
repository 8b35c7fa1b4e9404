"""Meshes and the ways in which a shard_map may sit in a program; everything equals ppermute."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, chain, grid, line, pair, ring

EDGES = [(3, 0), (0, 2), (2, 1)]


def assert_equals_ppermute(program, *args):
    """program(exchange) returns a function of args."""
    actual, expected = (jax.jit(program(exchange))(*args) for exchange in (pair, lax.ppermute))
    assert_same_bits(actual, expected)


def mapped(body, mesh, specs, **options):
    return jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=specs, **options)


X = np.arange(64.0, dtype=np.float32).reshape(8, 8)
both = pytest.mark.parametrize("check_vma", [False, True])


@both
class TestSeveralManualAxes:
    def test_each_axis(self, check_vma):
        def program(exchange):
            def body(x):
                return exchange(exchange(x, "b", EDGES), "a", [(1, 0)]) + exchange(x, "a", ring(2))

            return mapped(body, grid(2, 4), P("a", "b"), check_vma=check_vma)

        assert_equals_ppermute(program, X)

    @pytest.mark.parametrize("axes", [("a", "b"), ["a", "b"], ("a",), ("b",)], ids=str)
    def test_tuples(self, axes, check_vma):
        size = {"a": 2, "b": 4}
        size = int(np.prod([size[axis] for axis in axes]))

        def program(exchange):
            axis = tuple(axes) if exchange is lax.ppermute else axes
            perm = [(r, (r * 3 + 1) % size) for r in range(size) if r != 1]
            return mapped(lambda x: exchange(x, axis, perm), grid(2, 4), P("a", "b"), check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_a_tuple_of_the_first_and_last_of_three(self, check_vma):
        def program(exchange):
            def body(x):
                return exchange(x, ("a", "c"), EDGES) + exchange(x, ("a", "b", "c"), ring(8, 3))

            return mapped(body, grid(2, 2, 2), P("a", ("b", "c")), check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_a_pair_over_a_tuple_numbers_ranks_as_axis_index_does(self, check_vma):
        def body(x):
            here = lax.axis_index(("a", "b"))[None]
            return pair(here, ("a", "b"), ring(8)) * 10 + here

        got = jax.jit(jax.shard_map(body, mesh=grid(2, 4), in_specs=P(), out_specs=P(("a", "b")), check_vma=check_vma))
        np.testing.assert_array_equal(got(0), [(r - 1) % 8 * 10 + r for r in range(8)])

    def test_collectives_over_the_other_axis(self, check_vma):
        def program(exchange):
            def body(x):
                y = exchange(x, "b", EDGES)
                return exchange(y + lax.psum(y, "a") + lax.psum(y, ("a", "b")), "a", ring(2))

            return mapped(body, grid(2, 4), P("a", "b"), check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_an_axis_of_size_one(self, check_vma):
        def program(exchange):
            def body(x):
                return exchange(exchange(x, "a", [(0, 0)]), "b", EDGES) + exchange(x, "c", [])

            return mapped(body, grid(1, 4, 1), P("a", ("b", "c")), check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_one_device(self, check_vma):
        def program(exchange):
            def body(x):
                return exchange(x, "x", [(0, 0)]) + exchange(x, "x", [])

            return mapped(body, line(1), P("x"), check_vma=check_vma)

        assert_equals_ppermute(program, X)


@both
class TestPartiallyManual:
    @pytest.mark.parametrize("automatic", [P(), P("a"), P(None, "a"), P("b", "a")], ids=str)
    def test_one_of_two_axes(self, automatic, check_vma):
        """Also with arrays that are sharded along the axis that the body does not see."""
        x = jax.device_put(X, NamedSharding(grid(2, 4), automatic))

        def program(exchange):
            def body(x):
                return jnp.sin(exchange(x * 2, "b", EDGES)) + exchange(x, "b", ring(4))

            return mapped(body, grid(2, 4), P("b"), axis_names={"b"}, check_vma=check_vma)

        assert_equals_ppermute(program, x)

    def test_two_of_three_axes(self, check_vma):
        x = jax.device_put(X, NamedSharding(grid(2, 2, 2), P("a", "b")))

        def program(exchange):
            def body(x):
                return exchange(exchange(x, ("a", "c"), EDGES), "c", ring(2)) + 1

            return mapped(body, grid(2, 2, 2), P("a", "c"), axis_names={"a", "c"}, check_vma=check_vma)

        assert_equals_ppermute(program, x)

    def test_one_of_three_axes_in_a_scan_with_work_along_the_others(self, check_vma):
        x = jax.device_put(X, NamedSharding(grid(2, 2, 2), P(None, ("a", "c"))))

        def program(exchange):
            def body(x):
                def step(c, _):
                    return (exchange(jnp.tanh(c @ c.T @ x), "b", ring(2)) + lax.psum(c, "b"), None)

                return lax.scan(step, x, None, length=3)[0]

            return mapped(body, grid(2, 2, 2), P("b"), axis_names={"b"}, check_vma=check_vma)

        got, expected = (np.asarray(jax.jit(program(exchange))(x / 64)) for exchange in (pair, lax.ppermute))
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def around_and_inside(exchange, check_vma):
    """Exchanges before, in and after a shard_map inside another one."""

    def inner(x):
        return exchange(exchange(x, "b", EDGES), "a", [(1, 0)])

    def outer(x):
        options = {"in_specs": P(None, "b"), "out_specs": P(None, "b"), "axis_names": {"b"}}
        y = jax.shard_map(inner, check_vma=check_vma, **options)(exchange(x, "a", ring(2)))
        return exchange(y, "a", ring(2)) + x

    return mapped(outer, grid(2, 4), P("a"), axis_names={"a"}, check_vma=check_vma)


@both
class TestNested:
    def test_pairs_outside_and_inside(self, check_vma):
        assert_equals_ppermute(lambda exchange: around_and_inside(exchange, check_vma), X)

    def test_pairs_inside_only(self, check_vma):
        def program(exchange):
            def outer(x):
                options = {"in_specs": P(None, "b"), "out_specs": P(None, "b"), "axis_names": {"b"}}
                inner = jax.shard_map(lambda x: exchange(x, "b", EDGES), check_vma=check_vma, **options)
                return lax.scan(lambda c, _: (inner(c) + lax.psum(c, "a"), None), x, None, length=2)[0]

            return mapped(outer, grid(2, 4), P("a"), axis_names={"a"}, check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_one_that_computes_between_others(self, check_vma):
        """A shard_map with nothing but a collective, in one that communicates, in a branch and in a loop."""

        def program(exchange):
            def inner(x):
                return lax.psum(x, "b") + lax.ppermute(x, "a", ring(2))

            def outer(x):
                options = {"in_specs": P(None, "b"), "out_specs": P(None, "b"), "axis_names": {"b"}}
                add = jax.shard_map(inner, check_vma=check_vma, **options)

                def step(x, i):
                    x = exchange(x, "a", ring(2))
                    return lax.cond(i % 2 == 0, lambda x: x + add(x) / 64, lambda x: x, x), None

                return lax.scan(step, x, jnp.arange(4))[0]

            return mapped(outer, grid(2, 4), P("a"), axis_names={"a"}, check_vma=check_vma)

        assert_equals_ppermute(program, X)

    def test_separate_operations_outside_and_inside(self, check_vma):
        """What is sent outside is received inside, and the other way round: they are the same ranks."""

        def program(permute):
            def separate(x, axis, perm):
                peerax.psend(x, axis, perm)
                return peerax.precv(peerax.create_token(), x, axis, perm)

            return around_and_inside(separate if permute is pair else permute, check_vma)

        assert_equals_ppermute(program, X)


def test_gradient_of_nested():
    """With check_vma JAX gives the residuals of the inner one to both axes, which it then refuses."""

    def program(exchange):
        def inner(x):
            return jnp.sin(exchange(exchange(x, "b", EDGES), "a", [(1, 0)])) * x

        def outer(x):
            options = {"in_specs": P(None, "b"), "out_specs": P(None, "b"), "axis_names": {"b"}}
            y = jax.shard_map(inner, check_vma=False, **options)(exchange(x, "a", ring(2)))
            return exchange(jnp.cos(y), "a", ring(2)) + x

        f = mapped(outer, grid(2, 4), P("a"), axis_names={"a"}, check_vma=False)
        return jax.grad(lambda x: (f(x) ** 2).sum())

    assert_equals_ppermute(program, X / 64)


class TestPlatformDependent:
    def program(self, **branches):
        def body(x):
            return lax.platform_dependent(x, **branches)

        return jax.jit(jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"), check_vma=False))

    def test_the_branch_of_the_platform(self):
        branches = {"cpu": lambda x: pair(x, "x", ring(4)) * 3.0, "cuda": lambda x: pair(x, "x", ring(4)) * 7.0}
        program = self.program(**branches)
        np.testing.assert_array_equal(program(X), np.roll(X, 2, 0) * 3)
        for platform, (factor, other) in {"cpu": ("3.0", "7.0"), "cuda": ("7.0", "3.0")}.items():
            text = program.trace(X).lower(lowering_platforms=(platform,)).as_text()
            assert f"dense<{factor}" in text and f"dense<{other}" not in text

    def test_none_for_this_one(self):
        with pytest.raises(peerax.PeeraxError, match="PX402"):
            self.program(cuda=lambda x: pair(x, "x", ring(4)), tpu=lambda x: pair(x, "x", ring(4)) + 1)(X)


class TestSeveralInOneProgram:
    def test_two_shard_maps_and_work_between(self):
        def program(exchange):
            first = mapped(lambda x: exchange(x, "x", EDGES), line(4), P("x"))
            second = mapped(lambda x: exchange(x, "x", ring(4)) + lax.psum(x, "x"), line(4), P(None, "x"))
            return lambda x: second(first(x) @ x) + first(second(x))

        assert_equals_ppermute(program, X / 8)

    def test_independent_ones(self):
        def program(exchange):
            steps = [functools.partial(exchange, axis_name="x", perm=ring(4, k)) for k in range(6)]
            fs = [mapped(step, line(4), P("x")) for step in steps]
            return lambda x: [f(x) for f in fs]

        assert_equals_ppermute(program, X)

    def test_independent_ones_that_are_partially_manual(self):
        def program(exchange):
            def body(k, x):
                x = exchange(x, "a", ring(4, k))
                return exchange(x, "a", ring(4)) + 1

            options = {"axis_names": {"a"}}
            fs = [mapped(functools.partial(body, k), grid(4, 2), P("a"), **options) for k in range(6)]
            return lambda x: [f(x) for f in fs]

        for _ in range(5):
            assert_equals_ppermute(program, X)

    def test_the_same_function_twice_and_in_a_scan(self):
        def program(exchange):
            f = jax.jit(mapped(lambda x: exchange(x, "x", ring(4)) + 1, line(4), P("x")))

            def several(x):
                y = f(f(x))
                return f(lax.scan(lambda c, _: (f(f(c)), None), y, None, length=5)[0]) + f(x)

            return several

        assert_equals_ppermute(program, X)

    def test_in_the_branches_of_a_cond_and_in_a_while(self):
        def program(exchange):
            f = mapped(lambda x: exchange(x, "x", EDGES), line(4), P("x"))
            g = mapped(lambda x: exchange(x, "x", ring(4)), line(4), P("x"))

            def body(x):
                y = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, f(s[1]) + x), (0, x))[1]
                return lax.cond(x.sum() > 3, f, g, y) + lax.cond(x.sum() < 3, f, g, y)

            return body

        assert_equals_ppermute(program, X)

    def test_two_meshes_of_the_same_devices(self):
        def program(exchange):
            f = mapped(lambda x: exchange(x, "x", ring(8)), line(8), P("x"))
            g = mapped(lambda x: exchange(x, "b", EDGES), grid(2, 4), P("a", "b"))
            return lambda x: g(f(x)) + f(g(x))

        assert_equals_ppermute(program, X)

    def test_parts_of_the_devices_one_after_another(self):
        devices = np.array(jax.devices())
        for part in (devices[:3], devices[5:8], devices[[6, 1, 4]]):
            mesh = Mesh(part, ("x",))

            def program(exchange, mesh=mesh):
                return mapped(lambda x: exchange(x, "x", [(0, 2), (2, 0)]), mesh, P("x"))

            assert_equals_ppermute(program, np.arange(6.0, dtype=np.float32))

    def test_parts_of_the_devices_at_the_same_time(self):
        devices = np.array(jax.devices())
        meshes = [Mesh(devices[:4], ("x",)), Mesh(devices[4:], ("x",))]

        def step(x):
            return lax.scan(lambda c, _: (pair(c, "x", ring(4)) + 1, None), x, None, length=200)[0]

        programs = [jax.jit(mapped(step, mesh, P("x"))) for mesh in meshes]
        results = [[program(np.arange(4.0, dtype=np.float32)) for program in programs] for _ in range(10)]
        for result in jax.tree.leaves(results):
            np.testing.assert_array_equal(result, np.arange(4) + 200)

    @pytest.mark.parametrize("order", [[3, 2, 1, 0], [2, 0, 3, 1]])
    def test_devices_in_another_order(self, order):
        mesh = Mesh(np.array(jax.devices())[order], ("x",))

        def program(exchange):
            return mapped(lambda x: exchange(x, "x", EDGES) + lax.psum(x, "x"), mesh, P("x"))

        assert_equals_ppermute(program, X)


class TestAxisTypes:
    @pytest.mark.parametrize("manual", [None, {"b"}])
    @pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
    def test_of_make_mesh(self, kind, manual):
        mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(kind, kind))
        specs = P("a", "b") if manual is None else P(None, "b")

        def program(exchange):
            def body(x):
                return exchange(x, "b", EDGES) + lax.psum(x, "b")

            options = {} if manual is None else {"axis_names": manual}
            return jax.shard_map(body, in_specs=specs, out_specs=specs, **options)

        with jax.set_mesh(mesh):
            assert_equals_ppermute(program, jax.device_put(X, NamedSharding(mesh, P("a", "b"))))

    def test_specs_inferred_from_the_arrays(self):
        mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))
        with jax.set_mesh(mesh):
            x = jax.device_put(X, P("x"))
            assert_equals_ppermute(lambda e: jax.shard_map(lambda x: e(x, "x", EDGES), out_specs=P("x")), x)

    def test_an_abstract_mesh(self):
        mesh = jax.sharding.AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
        x = jax.device_put(X, NamedSharding(line(4), P("x")))
        assert_equals_ppermute(lambda e: mapped(lambda x: e(x, "x", EDGES), mesh, P("x")), x)

    def test_a_decorator(self):
        @jax.jit
        @jax.shard_map(mesh=line(4), in_specs=P("x"), out_specs=P("x"))
        def shift(x):
            return pair(x, "x", chain(4))

        np.testing.assert_array_equal(shift(jnp.arange(4.0)), [0, 0, 1, 2])


class TestPmap:
    """An older name for one manual axis."""

    @pytest.fixture(autouse=True)
    def has_pmap(self):
        if not hasattr(jax, "pmap"):
            pytest.skip("this JAX has no pmap")

    @pytest.mark.filterwarnings("ignore:.*pmap")
    def test_pair(self):
        got = jax.pmap(lambda x: pair(x, "i", EDGES), axis_name="i", devices=jax.devices()[:4])(np.arange(4.0))
        np.testing.assert_array_equal(got, [3, 2, 0, 0])

    @pytest.mark.filterwarnings("ignore:.*pmap")
    def test_error(self):
        lone = jax.pmap(
            lambda x: peerax.precv(peerax.create_token(), x, "i", [(0, 1)]), axis_name="i", devices=jax.devices()[:4]
        )
        with pytest.raises(jax.errors.JaxRuntimeError, match="PX202"):
            np.asarray(lone(np.arange(4.0)))


def test_donated_arguments():
    program = jax.jit(
        mapped(lambda x: pair(x, "x", ring(4)) + pair(x, "x", chain(4)), line(4), P("x")), donate_argnums=0
    )
    x = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(line(4), P("x")))
    expected = np.roll(np.arange(8.0), 2) + [0, 0, 0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(program(x), expected)
    assert x.is_deleted()


def test_the_wrong_perm_would_be_seen():
    """The comparison itself can fail."""
    with pytest.raises(AssertionError):
        assert_equals_ppermute(
            lambda e: mapped(lambda x: e(x, "x", EDGES if e is pair else EDGES[:2]), line(4), P("x")), X
        )
