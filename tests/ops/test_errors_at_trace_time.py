"""What is wrong before the program runs: the code, and the user's own line, also under jit and in loops."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import chain, grid, on_ranks, pair, ring, site

X = jnp.arange(8.0)
LONE = [(0, 1)]


def refused(program, *args):
    """Return the error that tracing or lowering ends with."""
    with pytest.raises(peerax.PeeraxError) as info:
        jax.jit(program).lower(*args)
    return info.value


def assert_names(error, code, function, *marks):
    assert error.code == code, str(error)
    found = [f"{file.rpartition('/')[2]}:{line}" for file, line in error.locations]
    assert found == [site(function, mark) for mark in marks], str(error)
    for mark in marks:
        assert f"{site(function, mark)}\n" in str(error)


class TestPerm:
    WRONG = {
        "negative": ("PX102", [(3, 0), (-1, 0)]),
        "too large": ("PX102", [(0, 4)]),
        "far too large": ("PX102", [(0, 2**70)]),
        "9 of 4": ("PX102", [(9, 0)]),
        "source twice": ("PX103", [(0, 1), (0, 2)]),
        "destination twice": ("PX103", [(0, 1), (2, 1)]),
        "the same pair twice": ("PX103", [(0, 1), (0, 1)]),
        "ranks": ("PX105", [1, 2, 3, 0]),
        "triples": ("PX105", [(0, 1, 2)]),
        "singles": ("PX105", [(0,)]),
        "floats": ("PX105", [(0.0, 1.0)]),
        "array of floats": ("PX105", np.array([[0.0, 1.0]])),
        "array without pairs": ("PX105", np.array([0, 1])),
        "array without a dimension": ("PX105", np.array(3)),
        "bools": ("PX105", [(False, True)]),
        "numpy bools": ("PX105", [(np.False_, np.True_)]),
        "string": ("PX105", "01"),
        "strings": ("PX105", ["01", "12"]),
        "strings of digits": ("PX105", [("0", "1")]),
        "bytes": ("PX105", b"01"),
        "dict": ("PX105", {0: 1, 1: 2}),
        "dicts": ("PX105", [{0: 1, 1: 2}]),
        "sets": ("PX105", [{3, 1}]),
        "None": ("PX105", None),
        "pair of None": ("PX105", [(None, 1)]),
        "int": ("PX105", 1),
        "function": ("PX105", lambda rank: rank + 1),
    }

    @pytest.mark.parametrize("operation", ["psend", "precv"])
    @pytest.mark.parametrize("name", WRONG)
    def test_wrong(self, name, operation):
        code, perm = self.WRONG[name]

        def body(x):
            if operation == "psend":
                peerax.psend(x, "x", perm)  # SEND
            return peerax.precv(peerax.create_token(), x, "x", perm)  # RECEIVE

        assert_names(refused(on_ranks(body), X), code, body, "SEND" if operation == "psend" else "RECEIVE")

    def test_traced_ranks(self):
        def body(x):
            return pair(x, "x", [(0, lax.axis_index("x"))])

        assert refused(on_ranks(body), X).code == "PX105"

    RIGHT = {
        "list of lists": lambda perm: [list(edge) for edge in perm],
        "tuple of tuples": tuple,
        "array": np.array,
        "array of bytes": lambda perm: np.array(perm, np.uint8),
        "numpy ints": lambda perm: [(np.int64(s), np.uint8(d)) for s, d in perm],
        "named pairs": lambda perm: [collections.namedtuple("Edge", "source destination")(*edge) for edge in perm],
    }

    @pytest.mark.parametrize("form", RIGHT)
    def test_right(self, form):
        perm = self.RIGHT[form](ring(4))
        np.testing.assert_array_equal(on_ranks(lambda x: pair(x, "x", perm))(X), np.roll(X, 2))

    def test_generators(self):
        def body(x):
            token = peerax.psend(x, "x", ((r, (r + 1) % 4) for r in range(4)))
            return peerax.precv(token, x, "x", zip(range(4), (1, 2, 3, 0), strict=True))

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 2))

    def test_a_generator_that_is_used_up_is_not_silently_an_empty_perm(self):
        perm = iter(ring(4))
        with pytest.raises(jax.errors.JaxRuntimeError, match="PX201"):
            np.asarray(on_ranks(lambda x: pair(x, "x", perm))(X))

    def test_the_message_names_the_pair_the_rank_and_the_size(self):
        text = str(refused(on_ranks(lambda x: pair(x, "x", [(0, 1), (1, -2)])), X))
        assert "(1, -2)" in text and "0..3" in text and "wrap" in text


class TestAxis:
    def test_unknown(self):
        def body(x):
            return peerax.psend(x, "stage", LONE)  # SEND

        error = refused(on_ranks(body), X)
        assert_names(error, "PX101", body, "SEND")
        assert "'stage'" in str(error) and "'x'" in str(error)

    @pytest.mark.parametrize("axis", [None, 0, ("x", "y"), ("x", "x"), {"x"}, 1.5, b"x"], ids=repr)
    def test_no_axis(self, axis):
        def body(x):
            return peerax.precv(peerax.create_token(), x, axis, LONE)  # RECEIVE

        assert_names(refused(on_ranks(body), X), "PX101", body, "RECEIVE")

    def test_outside_of_shard_map(self):
        def body(x):
            return peerax.psend(x, "x", LONE)  # SEND

        for call in (refused, lambda f, x: pytest.raises(peerax.PeeraxError, f, x).value):
            error = call(body, X)
            assert_names(error, "PX104", body, "SEND")
            assert "jax.shard_map" in error.help

    def test_outside_of_shard_map_with_a_mesh_set(self):
        def body(x):
            return peerax.precv(peerax.create_token(), x, "a", LONE)  # RECEIVE

        with jax.set_mesh(grid(2, 4)):
            assert_names(refused(body, X), "PX104", body, "RECEIVE")

    def test_an_axis_left_automatic(self):
        def body(x):
            return peerax.psend(x, "b", LONE)  # SEND

        options = {"mesh": grid(2, 4), "in_specs": P("a"), "out_specs": P("a"), "axis_names": {"a"}}
        error = refused(jax.shard_map(body, **options), X)
        assert_names(error, "PX104", body, "SEND")
        assert "'b'" in str(error) and "'a'" in str(error)

    def test_a_tuple_with_an_automatic_axis(self):
        def body(x):
            return peerax.psend(x, ("a", "b"), LONE)  # SEND

        options = {"mesh": grid(2, 4), "in_specs": P("a"), "out_specs": P("a"), "axis_names": {"a"}}
        assert_names(refused(jax.shard_map(body, **options), X), "PX104", body, "SEND")

    def test_a_tuple_not_in_mesh_order(self):
        def body(x):
            return peerax.psend(x, ("b", "a"), LONE)  # SEND

        program = jax.shard_map(body, mesh=grid(2, 4), in_specs=P(("a", "b")), out_specs=P(("a", "b")))
        error = refused(program, X)
        assert_names(error, "PX212", body, "SEND")
        assert "('a', 'b')" in error.help


class TestWhatIsSent:
    @pytest.mark.parametrize(
        "value",
        ["text", b"bytes", object(), np.array(["text"]), np.array([object()]), np.array(["2026"], "datetime64[Y]")]
        + [np.zeros(2, [("a", "f4")]), np.zeros(2, jax.dtypes.float0), [1.0, "text"]],
        ids=repr,
    )
    def test_refused(self, value):
        def body(x):
            peerax.psend(value, "x", LONE)  # SEND
            return x

        assert_names(refused(on_ranks(body), X), "PX106", body, "SEND")

    @pytest.mark.parametrize(
        "shape",
        [3.0, 3, (2,), "f32", jnp.float32, object(), np.array(["text"]), np.zeros(2, jax.dtypes.float0)]
        + [jax.ShapeDtypeStruct((2,), jax.dtypes.float0), jax.ShapeDtypeStruct((-1,), jnp.float32), [jnp.int32]],
        ids=repr,
    )
    def test_out_shape_that_is_no_shape(self, shape):
        def body(x):
            peerax.precv(peerax.create_token(), shape, "x", LONE)  # RECEIVE
            return x

        assert_names(refused(on_ranks(body), X), "PX106", body, "RECEIVE")

    @pytest.mark.parametrize("shape", [X[:2], jax.ShapeDtypeStruct((2,), np.float64), np.zeros(2, np.float32)])
    def test_out_shape_forms(self, shape):
        actual = on_ranks(lambda x: peerax.precv(peerax.psend(x, "x", ring(4)), shape, "x", ring(4)))(X)
        np.testing.assert_array_equal(actual, np.roll(X, 2))


class TestTokenAndTag:
    @pytest.mark.parametrize(
        "token",
        [None, 0, 0.0, "token", [jnp.zeros(1)], (), jnp.zeros(()), jnp.zeros(2), jnp.zeros(1, int), jnp.zeros((1, 1))]
        + [jnp.zeros(1, jnp.bfloat16), object()],
        ids=repr,
    )
    def test_no_token(self, token):
        def receive(x):
            return peerax.precv(token, x, "x", LONE)  # RECEIVE

        def send(x):
            return peerax.psend(x, "x", LONE, token=token)  # SEND

        assert_names(refused(on_ranks(receive), X), "PX108", receive, "RECEIVE")
        if token is not None:
            assert_names(refused(on_ranks(send), X), "PX108", send, "SEND")

    @pytest.mark.parametrize("tag", [True, 1.0, None, "1", 2**31, -(2**31) - 1, [1], jnp.int32(1)], ids=repr)
    def test_no_tag(self, tag):
        def body(x):
            return peerax.psend(x, "x", LONE, tag=tag)  # SEND

        assert_names(refused(on_ranks(body), X), "PX108", body, "SEND")

    def test_a_traced_tag(self):
        def body(x):
            return peerax.psend(x, "x", LONE, tag=lax.axis_index("x"))  # SEND

        assert_names(refused(on_ranks(body), X), "PX108", body, "SEND")

    @pytest.mark.parametrize("tag", [2**31 - 1, -(2**31), -1])
    def test_any_32_bit_int_is_a_tag(self, tag):
        np.testing.assert_array_equal(on_ranks(lambda x: pair(x, "x", ring(4), tag=tag))(X), np.roll(X, 2))


class TestPairsThatDisagree:
    @pytest.mark.parametrize(
        "code, sent, expected",
        [
            ("PX203", (2,), (3,)),
            ("PX203", (2, 3), (3, 2)),
            ("PX203", (), (1,)),
            ("PX203", (0,), (0, 2)),
            ("PX204", jnp.float32, jnp.int32),
            ("PX204", jnp.int4, jnp.int8),
            ("PX204", jnp.float16, jnp.bfloat16),
        ],
        ids=str,
    )
    def test_shape_or_dtype(self, code, sent, expected):
        def struct(what):
            is_shape = isinstance(what, tuple)
            return jax.ShapeDtypeStruct(what if is_shape else (2,), jnp.float32 if is_shape else what)

        def body(x):
            value = jnp.zeros(struct(sent).shape, struct(sent).dtype)
            token = peerax.psend(value, "x", chain(4))  # SEND
            peerax.precv(token, struct(expected), "x", chain(4))  # RECEIVE
            return x

        error = refused(on_ranks(body), X)
        assert_names(error, code, body, "SEND", "RECEIVE")
        shown = [f"{jnp.dtype(struct(w).dtype).name}[{','.join(map(str, struct(w).shape))}]" for w in (sent, expected)]
        assert all(text in str(error) for text in shown), str(error)

    def test_one_leaf_of_several(self):
        def body(x):
            token = peerax.psend({"a": x, "b": x}, "x", LONE)  # SEND
            return peerax.precv(token, {"a": x, "b": x[:1]}, "x", LONE)["a"]  # RECEIVE

        assert_names(refused(on_ranks(body), X), "PX203", body, "SEND", "RECEIVE")

    def test_in_a_loop_and_a_call(self):
        def body(x):
            @jax.jit
            def step(carry, _):
                token = peerax.psend(carry, "x", LONE)  # SEND
                return carry + peerax.precv(token, carry[:1], "x", LONE), None  # RECEIVE

            return lax.scan(step, x, None, length=2)[0]

        assert_names(refused(on_ranks(body), X), "PX203", body, "SEND", "RECEIVE")

    def test_a_key_and_its_data(self):
        def body(x):
            key = jax.random.key(0)
            token = peerax.psend(key, "x", LONE)  # SEND
            peerax.precv(token, jax.random.key_data(key), "x", LONE)  # RECEIVE
            return x

        error = refused(on_ranks(body), X)
        assert error.code in ("PX203", "PX204") and "key<fry>[]" in str(error) and "uint32[2]" in str(error)


def test_one_device_only_is_named_as_the_reason():
    with pytest.raises(peerax.PeeraxError, match="the axis has one rank only, 0") as error:
        on_ranks(lambda x: pair(x, "x", [(0, 1)]), 1)(jnp.ones(2))
    assert error.value.code == "PX102" and "--devices 4" in error.value.help
