"""shift and permute_shards: in and out of manual axes, against numpy on the whole array."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import peerax

DEVICES = np.array(jax.devices())
X = np.arange(96, dtype=np.float32).reshape(24, 4)
UNSHARDED = jnp.asarray(X)


def moved(x, dim, size, perm):
    """What every rank has after its shard has moved; zeros where nothing arrives."""
    shards = np.split(x, size, axis=dim)
    result = [np.zeros_like(shard) for shard in shards]
    for source, destination in perm:
        result[destination] = shards[source]
    return np.concatenate(result, axis=dim)


def shifted(x, dim, size, offset, wrap):
    pairs = [(i, i + offset) for i in range(size)]
    return moved(x, dim, size, [(s, d % size) for s, d in pairs if wrap or 0 <= d < size])


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize(("offset", "wrap"), [(1, False), (-1, False), (2, True), (0, False), (9, True), (9, False)])
def test_shift_of_sharded_arrays_without_jit(size, offset, wrap):
    mesh = Mesh(DEVICES[:size], ("x",))
    x = jax.device_put(X, NamedSharding(mesh, P("x")))
    y = peerax.shift(x, "x", offset, wrap=wrap)
    np.testing.assert_array_equal(y, shifted(X, 0, size, offset, wrap))
    assert y.sharding.is_equivalent_to(x.sharding, x.ndim)


@pytest.mark.parametrize("size", [3, 4, 8])
def test_shift_inside_manual_axes(size):
    mesh = Mesh(DEVICES[:size], ("x",))
    f = jax.shard_map(lambda x: peerax.shift(x, "x", 1), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(jax.jit(f)(X), shifted(X, 0, size, 1, False))


@pytest.mark.parametrize(("axis", "dim"), [("a", 0), ("b", 1)])
@pytest.mark.parametrize("explicit", [True, False])
def test_under_jit_with_explicit_and_automatic_sharding(axis, dim, explicit):
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(kind, kind))
    size = mesh.shape[axis]
    perm = [(0, 1)] if size == 2 else [(0, 2), (2, 1), (3, 3)]
    x = jax.device_put(X, NamedSharding(mesh, P("a", "b")))
    with jax.set_mesh(mesh):
        f = jax.jit(lambda x: peerax.permute_shards(x, axis, perm, dim=dim))
        y = f(x)
        hlo = f.lower(x).compile().as_text()
    np.testing.assert_array_equal(y, moved(X, dim, size, perm))
    assert "all-gather" not in hlo and "all-reduce" not in hlo and "all-to-all" not in hlo


@pytest.mark.parametrize("explicit", [True, False])
def test_gradients(explicit):
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(kind, kind))
    x = jax.device_put(X, NamedSharding(mesh, P("a", "b")))
    with jax.set_mesh(mesh):
        gradient = jax.jit(jax.grad(lambda x: (peerax.shift(x, "a", 1) * x).sum()))(x)
    np.testing.assert_array_equal(gradient, shifted(X, 0, 4, 1, False) + shifted(X, 0, 4, -1, False))


def test_pytrees_and_dtypes():
    mesh = Mesh(DEVICES[:4], ("x",))
    put = lambda x: jax.device_put(x, NamedSharding(mesh, P("x")))  # noqa: E731
    tree = {"f": put(jnp.arange(8.0)), "i": put(jnp.arange(4)), "b": put(jnp.arange(4) % 2 == 0), "none": None}
    y = peerax.shift(tree, "x", 1, wrap=True)
    assert y["f"].tolist() == [6, 7, 0, 1, 2, 3, 4, 5]
    assert y["i"].tolist() == [3, 0, 1, 2] and y["b"].tolist() == [False, True, False, True] and y["none"] is None


@pytest.mark.parametrize(
    "move",
    [
        lambda x: peerax.shift(x, "x", 1),
        lambda x: peerax.permute_shards(x, "x", iter([(2, 0), (0, 1)])),
        lambda x: peerax.shift(UNSHARDED, "x", 1),
    ],
    ids=["shift", "permute_shards", "automatic"],
)
def test_the_same_move_is_compiled_once_without_jit(move, compiled):
    with jax.set_mesh(jax.make_mesh((3,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=DEVICES[:3])):
        expected = np.asarray(move(sharded(X)))
        assert compiled
        del compiled[:]
        for _ in range(2):
            np.testing.assert_array_equal(move(sharded(X)), expected)
    assert compiled == []


def test_other_moves_are_not_taken_for_the_same():
    meshes = [jax.make_mesh((2, 2), tuple(names), devices=DEVICES[k : k + 4]) for k in (0, 4) for names in ("xy", "yx")]
    for mesh in meshes:
        for spec, dim in ((P("x", "y"), 0), (P("y", "x"), 1)):
            x = jax.device_put(X, NamedSharding(mesh, spec))
            for perm in ([(0, 1)], [(1, 0)]):
                y = peerax.permute_shards(x, "x", perm)
                np.testing.assert_array_equal(y, moved(X, dim, 2, perm))
                assert y.sharding.is_equivalent_to(x.sharding, x.ndim)


def test_the_same_axes_on_other_devices():
    for k in (0, 4):
        mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=DEVICES[k : k + 4])
        with jax.set_mesh(mesh):
            y = peerax.shift(UNSHARDED, "x", 1)
        np.testing.assert_array_equal(y, shifted(X, 0, 4, 1, False))
        assert y.devices() == set(mesh.devices.flat)


def test_each_call_has_its_own_line_in_reports():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,), devices=DEVICES[:4])
    x = jax.device_put(X, NamedSharding(mesh, P("x")))
    programs = [
        jax.make_jaxpr(lambda x: peerax.shift(x, "x", 1))(x),
        jax.make_jaxpr(lambda x: peerax.shift(x, "x", 1))(x),
    ]
    sites = [set(re.findall(r"test_shards\.py:\d+", str(program))) for program in programs]
    assert [len(lines) for lines in sites] == [1, 1] and sites[0] != sites[1]


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("PX101", lambda x: peerax.permute_shards(sharded(x), ["x"], [(0, 1)])),
        ("PX104", lambda x: jax.jit(lambda x: peerax.shift(x, "x", 1))(x)),
        ("PX109", lambda x: peerax.shift(sharded(x[:21]), "x", 1, dim=1)),
        ("PX103", lambda x: peerax.permute_shards(sharded(x), "x", [(0, 1), (0, 2)])),
        ("PX102", lambda x: peerax.permute_shards(sharded(x), "x", [(0, 3)])),
        ("PX105", lambda x: peerax.permute_shards(sharded(x), "x", "01")),
    ],
)
def test_mistakes_name_the_callers_line(code, call):
    with pytest.raises(peerax.PeeraxError) as error:
        call(jnp.asarray(X))
    assert error.value.code == code
    assert error.value.locations[0][0].endswith("test_shards.py")


@pytest.mark.parametrize("axis_name", [["x"], ("x",), ("x", "y")])
def test_several_axes_are_refused_with_the_valid_form(axis_name):
    manual = jax.shard_map(
        lambda x: peerax.shift(x, axis_name, 1), mesh=Mesh(DEVICES[:3], ("x",)), in_specs=P("x"), out_specs=P("x")
    )
    for call in (lambda x: peerax.shift(x, axis_name, 1), manual):
        with pytest.raises(peerax.PeeraxError, match=r"shift\(x, 'x', ...\)") as error:
            call(sharded(X))
        assert error.value.code == "PX101" and repr(axis_name) in str(error.value)


def sharded(x):
    return jax.device_put(x, NamedSharding(Mesh(DEVICES[:3], ("x",)), P("x")))
