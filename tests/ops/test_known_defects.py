"""What is wrong in jax.lax's own psend and precv, and what users of other libraries report; one named test each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.ops.ranks import assert_same_bits, bits, chain, grid, on_ranks, pair, ring

X = jnp.arange(8.0) + 1


def receive(x, perm, tag=0):
    return peerax.precv(peerax.create_token(), jax.tree.map(jax.typeof, x), "x", perm, tag=tag)


def primitives(jaxpr):
    """Names of all primitives in a jaxpr and inside its equations."""
    names = []
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        names.append(eqn.primitive.name)
        for value in eqn.params.values():
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                names += primitives(value)
    return names


class TestJaxItself:
    def test_vmap_of_psend_does_not_become_a_ppermute(self):
        def body(x):
            return jax.vmap(lambda v: peerax.psend(v, "x", chain(4)))(jnp.stack([x, 2 * x, 3 * x]))

        names = primitives(jax.make_jaxpr(on_ranks(body, out_specs=P(None, "x")))(X))
        assert "peerax_psend" in names and "ppermute" not in names

    def test_the_token_of_a_batched_psend_is_a_batched_token(self):
        def body(x):
            tokens = jax.vmap(lambda v: peerax.psend(v, "x", chain(4)))(jnp.stack([x, 2 * x, 3 * x]))
            assert (tokens.shape, tokens.dtype) == ((3, 1), jnp.float32)
            return jax.vmap(lambda t: peerax.precv(t, x, "x", chain(4)))(tokens)

        actual = on_ranks(body, out_specs=P(None, "x"))(X)
        np.testing.assert_array_equal(actual, np.arange(1, 4)[:, None] * np.array([0, 0, 1, 2, 3, 4, 5, 6]))

    @pytest.mark.parametrize("in_axes, out_axes", [(0, 0), (1, 1), (0, 1)])
    def test_vmap_of_a_pair_equals_vmap_of_ppermute(self, in_axes, out_axes):
        xs = jnp.arange(48.0).reshape(4, 3, 4)

        def program(exchange):
            def body(x):
                return jax.vmap(lambda v: exchange(v, "x", chain(4)), in_axes, out_axes)(x[0])[None]

            return on_ranks(body)

        assert_same_bits(program(pair)(xs), program(lax.ppermute)(xs))

    def test_grad_has_a_rule(self):
        def program(exchange):
            def loss(x):
                def step(c, _):
                    return (jnp.tanh(exchange(c, "x", ring(4))) * x, None)

                y = lax.scan(step, x, None, length=3)[0]
                return (y * exchange(y, "x", chain(4))).sum()

            return on_ranks(jax.grad(loss))

        assert_same_bits(program(pair)(X), program(lax.ppermute)(X))

    def test_minus_one_does_not_wrap(self):
        with pytest.raises(peerax.PeeraxError, match="PX102"):
            on_ranks(lambda x: pair(x, "x", [(0, 1), (3, -1)]))(X)

    def test_nine_of_four_is_not_a_bare_index_error(self):
        with pytest.raises(peerax.PeeraxError, match="PX102.*\n.*\n.*rank 9"):
            on_ranks(lambda x: pair(x, "x", [(0, 9)]))(X)

    def test_duplicates_are_refused_when_the_program_is_traced(self):
        with pytest.raises(peerax.PeeraxError, match="PX103"):
            jax.make_jaxpr(on_ranks(lambda x: pair(x, "x", [(0, 1), (2, 1)])))(X)

    def test_the_axis_name_is_checked_when_the_program_is_traced(self):
        def body(x):
            return peerax.precv(peerax.create_token(), x, "y", chain(4))

        with pytest.raises(peerax.PeeraxError, match="PX101"):
            jax.make_jaxpr(on_ranks(body))(X)

    def test_tokens_can_be_loop_carries(self):
        def body(x):
            def step(carry, _):
                token, y = carry
                token = peerax.psend(y, "x", ring(4), token=token)
                return (token, peerax.precv(token, y, "x", ring(4))), None

            token = peerax.create_token()
            return lax.scan(step, (token, x), None, length=3)[0][1]

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 6))

    def test_a_carried_token_links_no_pair_but_still_orders(self):
        """The receive of a step has the token of the send of the step before."""

        def body(x):
            def step(carry, _):
                token, y = carry
                came = peerax.precv(token, y, "x", ring(4))
                return (peerax.psend(came, "x", ring(4)), came), None

            (token, _), _ = lax.scan(step, (peerax.psend(x, "x", ring(4)), x), None, length=5)
            return peerax.precv(token, x, "x", ring(4))

        np.testing.assert_array_equal(on_ranks(body)(X), np.roll(X, 12))

    def test_tokens_can_be_branch_results(self):
        def body(x):
            branches = (lambda: peerax.psend(x, "x", chain(4)), lambda: peerax.psend(2 * x, "x", chain(4)))
            token = lax.cond(lax.psum(x.sum(), "x") > 0, *branches)
            token = jnp.where(x.sum() > 0, token, token)
            return peerax.precv(token, x, "x", chain(4))

        np.testing.assert_array_equal(on_ranks(body)(X), [0, 0, 1, 2, 3, 4, 5, 6])

    def test_a_send_is_not_removed_when_nobody_looks_at_its_token(self):
        def body(x):
            peerax.psend(x, "x", chain(4))
            return receive(x, chain(4))

        np.testing.assert_array_equal(on_ranks(body)(X), [0, 0, 1, 2, 3, 4, 5, 6])

    def test_a_receive_is_not_removed_when_nobody_looks_at_its_result(self):
        def body(x):
            peerax.psend(x, "x", chain(4))
            receive(x, chain(4))
            peerax.psend(10 * x, "x", chain(4))
            return receive(x, chain(4))

        np.testing.assert_array_equal(on_ranks(body)(X), 10 * np.array([0, 0, 1, 2, 3, 4, 5, 6]))

    def test_two_equal_sends_are_two_messages(self):
        def body(x):
            first, second = (pair(x, "x", chain(4)) for _ in range(2))
            peerax.psend(x, "x", chain(4))
            peerax.psend(x, "x", chain(4))
            return first + 10 * second + 100 * receive(x, chain(4)) + 1000 * receive(x, chain(4))

        np.testing.assert_array_equal(on_ranks(body)(X), 1111 * np.array([0, 0, 1, 2, 3, 4, 5, 6]))

    def test_a_tree_of_shapes_can_be_received(self):
        struct = jax.ShapeDtypeStruct((2,), jnp.float32)

        def body(x):
            token = peerax.psend({"a": x, "b": (2 * x,)}, "x", ring(4))
            got = peerax.precv(token, {"a": struct, "b": (struct,)}, "x", ring(4))
            return got["a"] + got["b"][0]

        np.testing.assert_array_equal(on_ranks(body)(X), 3 * np.roll(X, 2))


class TestReportedElsewhere:
    """Numbers as in the list of reports; the recipes are theirs."""

    def test_1_both_send_first_then_receive(self):
        def body(x):
            peerax.psend(x, "x", [(0, 1), (1, 0)])
            return receive(x, [(0, 1), (1, 0)])

        np.testing.assert_array_equal(on_ranks(body, 2)(jnp.arange(16.0)), np.roll(np.arange(16.0), 8))

    @pytest.mark.parametrize("separately", [False, True])
    @pytest.mark.parametrize("n", [1, 2028, 2029, 10**6])
    def test_2_the_same_at_any_size(self, n, separately):
        def body(x):
            if not separately:
                return pair(x, "x", ring(2))
            peerax.psend(x, "x", ring(2))
            return receive(x, ring(2))

        x = np.arange(2.0 * n, dtype=np.float32)
        np.testing.assert_array_equal(on_ranks(body, 2)(x), np.roll(x, n))

    def test_3_alternating_directions_with_chained_tokens(self):
        def body(x):
            token = peerax.psend(x, "x", [(0, 1)])
            a = peerax.precv(token, x, "x", [(0, 1)])
            token = peerax.psend(a + 1, "x", [(1, 0)], token=token)
            b = peerax.precv(token, x, "x", [(1, 0)])
            token = peerax.psend(b * 10, "x", [(0, 1)], token=token)
            c = peerax.precv(token, x, "x", [(0, 1)])
            token = peerax.psend(c + 2, "x", [(1, 0)], token=token)
            return a + b + c + peerax.precv(token, x, "x", [(1, 0)])

        # To rank 1: 3 and 40. To rank 0: 4 and 42.
        np.testing.assert_array_equal(on_ranks(body, 2)(jnp.array([3.0, 5.0])), [46, 43])

    def test_4_two_stages_and_back_with_two_microbatches(self):
        def body(x):
            rank = lax.axis_index("x")
            results = []
            for microbatch in (x, 10 * x):
                there = pair(jnp.where(rank == 0, microbatch + 1, 0), "x", [(0, 1)])
                back = pair(jnp.where(rank == 1, there * 2, 0), "x", [(1, 0)])
                results.append(back + 3)
            return jnp.stack(results)

        actual = np.asarray(on_ranks(body, 2, out_specs=P(None, "x"))(jnp.array([4.0, 0.0])))
        np.testing.assert_array_equal(actual[:, 0], [(4 + 1) * 2 + 3, (40 + 1) * 2 + 3])

    def test_10_three_hundred_messages_all_to_all(self):
        generator = np.random.default_rng(0)
        plan = [(int(generator.integers(1, 400)), *map(int, generator.choice(4, 2, replace=False))) for _ in range(300)]

        def body(numbers):
            for k, (n, source, destination) in enumerate(plan):
                peerax.psend(numbers[k : k + n], "x", [(source, destination)])
            shapes = [jax.ShapeDtypeStruct((n,), numbers.dtype) for n, *_ in plan]
            return jnp.concatenate([receive(s, [edge]) for s, (_, *edge) in zip(shapes, plan, strict=True)])

        numbers = np.arange(4 * 1000).reshape(4, 1000)
        actual = np.asarray(on_ranks(body)(numbers.ravel())).reshape(4, -1)
        for here in range(4):
            arrived = [numbers[s, k : k + n] * (d == here) for k, (n, s, d) in enumerate(plan)]
            np.testing.assert_array_equal(actual[here], np.concatenate(arrived))

    def test_11_the_same_ranks_through_two_axes_and_a_flattened_one(self):
        """On a 2 by 2 mesh, ranks 0 and 1 are neighbours along b and along ("a", "b")."""

        def exchanges(exchange, x):
            flat = [(0, 1), (1, 0)]
            y = exchange(x, "b", [(0, 1), (1, 0)])
            y = exchange(y + x, ("a", "b"), flat) + exchange(x, "a", [(0, 1)])
            y = y + exchange(2 * x, "b", [(0, 1)])
            return exchange(y, ("a", "b"), flat) + exchange(y, "b", [(1, 0)])

        def separately(x, axis, perm):
            peerax.psend(x, axis, perm)
            return peerax.precv(peerax.create_token(), x, axis, perm)

        def program(exchange):
            def body(x):
                return exchanges(exchange, x)

            return jax.jit(jax.shard_map(body, mesh=grid(2, 2), in_specs=P("a", "b"), out_specs=P("a", "b")))

        x = np.arange(4.0, dtype=np.float32).reshape(2, 2)
        expected = program(lax.ppermute)(x)
        assert_same_bits(program(pair)(x), expected)
        assert_same_bits(program(separately)(x), expected)

    def test_12_a_tree_is_awaited_as_a_whole(self):
        """Three leaves of very different sizes, the largest first and in between."""

        def body(x):
            sent = [jnp.tile(x, 200_000), x, jnp.tile(x, 50_000)]
            got = pair(sent, "x", ring(4))
            peerax.psend(sent, "x", ring(4))
            again = receive(sent, ring(4))
            return jnp.stack([y[-2:] for y in got + again])

        actual = on_ranks(body, out_specs=P(None, "x"))(X)
        np.testing.assert_array_equal(actual, np.tile(np.roll(X, 2), (6, 1)))

    @pytest.mark.parametrize("name", ["complex64", "complex128", "bfloat16", "float8_e4m3fn", "int4", "bool_"])
    def test_31_there_and_back_again(self, name):
        with jax.enable_x64(name == "complex128"):
            dtype = getattr(jnp, name)
            x = jnp.arange(8).astype(dtype)
            x = x * dtype(1 - 2j) if name.startswith("complex") else x
            back = [(d, s) for s, d in chain(4)]
            got = on_ranks(lambda x: pair(pair(x, "x", chain(4)), "x", back))(x)
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(bits(got)[:6], bits(x)[:6])
            np.testing.assert_array_equal(bits(got)[6:], bits(jnp.zeros(2, dtype)))

    @pytest.mark.parametrize("sent, expected", [(3, 4), (3, 5), (5, 3)])
    def test_36_another_length_is_an_error_on_both_ends(self, sent, expected):
        def body(token_of, x):
            token = peerax.psend(jnp.zeros(sent), "x", [(0, 1)])
            token = token if token_of == "pair" else peerax.create_token()
            return x + peerax.precv(token, jax.ShapeDtypeStruct((expected,), jnp.float32), "x", [(0, 1)]).sum()

        with pytest.raises(peerax.PeeraxError, match=rf"PX203[^$]*float32\[{sent}\][^$]*float32\[{expected}\]"):
            on_ranks(lambda x: body("pair", x))(X)
        with pytest.raises(jax.errors.JaxRuntimeError, match=rf"PX304[^$]*float32\[{sent}\][^$]*float32\[{expected}\]"):
            np.asarray(on_ranks(lambda x: body("separate", x))(X))

    def test_38_another_dtype_of_the_same_size_is_an_error(self):
        def body(token_of, x):
            token = peerax.psend(x, "x", [(0, 1)])
            token = token if token_of == "pair" else peerax.create_token()
            return x + peerax.precv(token, x.astype(jnp.int32), "x", [(0, 1)]).astype(x.dtype)

        with pytest.raises(peerax.PeeraxError, match="PX204"):
            on_ranks(lambda x: body("pair", x)).lower(X)
        with pytest.raises(jax.errors.JaxRuntimeError, match="PX304"):
            np.asarray(on_ranks(lambda x: body("separate", x))(X))

    @pytest.mark.parametrize("perm", [[], [(0, 1), (1, 0)], [(0, 1), (1, 2), (2, 0)]], ids=str)
    def test_47_ranks_that_take_no_part(self, perm):
        def body(exchange, x):
            return exchange(x, "x", perm) + lax.psum(exchange(x, "x", perm), "x")

        def separately(x, axis, perm):
            peerax.psend(x, axis, perm)
            return receive(x, perm)

        expected = on_ranks(lambda x: body(lax.ppermute, x))(X)
        for exchange in (pair, separately):
            assert_same_bits(on_ranks(lambda x, exchange=exchange: body(exchange, x))(X), expected)

    def test_49_pytrees(self):
        def body(x):
            sent = {"w": jnp.outer(x, x), "b": x.astype(jnp.bfloat16), "n": None}
            got = pair(sent, "x", chain(4))
            assert got["n"] is None and got["b"].dtype == jnp.bfloat16
            return got["w"].sum(0) + got["b"].astype(x.dtype)

        x = np.asarray(X).reshape(4, 2)
        expected = np.concatenate([np.zeros((1, 2)), (x * x.sum(1, keepdims=True) + x)[:3]]).ravel()
        np.testing.assert_array_equal(on_ranks(body)(X), expected)
