"""Receives that JAX would see as constants. They equal ppermute, with the caller's help and without.

A separate receive has no input of its own. Where its token is not made a function of what is differentiated, JAX
calls none of its rules, and its tangents and cotangents are lost; and the same for batches.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from tests.transformations.programs import WHOLE, assert_same, on_ranks, varying

W = jnp.array([1.0, -2.0])
FORWARD = [(0, 1), (1, 2)]
CHECK_VMA = pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no-vma"])


def fresh(w):
    """A token that the caller does not link."""
    return peerax.create_token()


def ordered(w):
    """A token that the caller links."""
    return peerax.order(peerax.create_token(), w)[0]


TOKENS = pytest.mark.parametrize("token", [fresh, ordered])


def receive(token, perm=FORWARD):
    return peerax.precv(token, W, "x", perm)  # RECEIVE


def send(token, x, perm=FORWARD):
    return peerax.psend(x, "x", perm, token=token)  # SEND


def move(x):
    return lax.ppermute(x, "x", FORWARD)


def differing(f):
    """Call a function with operands that differ from rank to rank, where types track that."""
    return lambda *operands: f(*map(varying, operands))


def check(token, program, permuted, transform=jax.value_and_grad, check_vma=False, out_specs=WHOLE):
    ours, theirs = (
        transform(on_ranks(differing(f), 3, check_vma, in_specs=P(), out_specs=out_specs))
        for f in (functools.partial(program, token), permuted)
    )
    assert_same(jax.jit(ours)(W), jax.jit(theirs)(W))


def total(y):
    return lax.psum((y * y).sum(), "x")


@TOKENS
class TestGradInsideTheBody:
    """The operands of the shard_map are not what is differentiated."""

    def run(self, token, program, permuted, transform=jax.grad):
        def inside(f):
            return lambda *args: transform(functools.partial(f, *args[:-1]))(args[-1])[None]

        check(token, inside(program), inside(permuted), transform=lambda f: f, out_specs=P("x"))

    def test_prologue(self, token):
        def program(token, w):
            first = receive(token(w))
            send(token(w), w * w)
            return (first * first).sum()

        self.run(token, program, lambda w: (move(w * w) ** 2).sum())

    def test_pipeline(self, token):
        def program(token, w):
            first = receive(token(w))

            def tick(carry, _):
                result, came = carry
                send(token(w), result)
                return (came * w + w, receive(token(w))), None

            (result, came), _ = lax.scan(tick, (jnp.zeros_like(w), first), None, length=3)
            send(token(w), result)
            return (result * came).sum()

        def permuted(w):
            def tick(result, _):
                return move(result) * w + w, None

            result, _ = lax.scan(tick, jnp.zeros_like(w), None, length=3)
            before, _ = lax.scan(tick, jnp.zeros_like(w), None, length=3)
            return (result * move(before)).sum()

        self.run(token, program, lambda w: permuted(w))

    def test_what_is_lost_on_one_side_must_not_meet_what_is_lost_on_the_other(self, token):
        """The first send is differentiated and its receive is not; with the second it is the other way round."""

        def program(token, w):
            send(token(w), w)
            send(token(w), jnp.ones_like(w))
            first = receive(token(w))
            second = receive(ordered(w))  # the caller links one of the two
            return (first + 10 * second).sum()

        self.run(token, program, lambda w: (move(w) + 10 * move(jnp.ones_like(w))).sum())

    def test_jvp(self, token):
        def program(token, w):
            send(token(w), w * w)
            return receive(token(w)) * w

        def forward(f):
            return lambda w: jax.jvp(f, (w,), (w + 1,))[1]

        self.run(token, program, lambda w: move(w * w) * w, forward)

    def test_linear_transpose(self, token):
        def program(token, w):
            send(token(w), w * 3)
            return receive(token(w)) + w

        def back(f):
            return lambda w: jax.linear_transpose(f, w)(w + 1)[0]

        self.run(token, program, lambda w: move(w * 3) + w, back)


@TOKENS
@CHECK_VMA
class TestClosedOver:
    """The weights get into a function from outside, not as its operands."""

    def test_scan(self, token, check_vma):
        def program(token, w):
            def step(c, _):
                send(token(w), c * w + 1)
                return receive(token(w)) + 1, None

            return total(lax.scan(step, varying(jnp.ones(2)), None, length=3)[0])

        def permuted(w):
            return total(lax.scan(lambda c, _: (move(c * w + 1) + 1, None), varying(jnp.ones(2)), None, length=3)[0])

        check(token, program, permuted, check_vma=check_vma)

    def test_while(self, token, check_vma):
        def program(token, w):
            def step(s):
                send(token(w), s[1] * w + 1)
                return s[0] + 1, receive(token(w)) + 1

            return total(lax.while_loop(lambda s: s[0] < 3, step, (0, varying(jnp.ones(2))))[1])

        def permuted(w):
            def step(s):
                return (s[0] + 1, move(s[1] * w + 1) + 1)

            return total(lax.while_loop(lambda s: s[0] < 3, step, (0, varying(jnp.ones(2))))[1])

        check(token, program, permuted, transform=jax.jacfwd, check_vma=check_vma)

    def test_map_over_ints(self, token, check_vma):
        def program(token, w):
            lax.map(lambda i: send(token(w), w * i.astype(w.dtype)), jnp.arange(3))
            return total(lax.map(lambda i: receive(token(w)), jnp.arange(3)))

        def permuted(w):
            return total(lax.map(lambda i: move(w * i.astype(w.dtype)), jnp.arange(3)))

        check(token, program, permuted, check_vma=check_vma)

    def test_scan_without_operands(self, token, check_vma):
        def program(token, w):
            for factor in range(3):
                send(token(w), w * factor)
            return total(lax.scan(lambda c, _: (c, receive(token(w))), None, None, length=3)[1])

        def permuted(w):
            return total(jnp.stack([move(w * factor) for factor in range(3)]))

        check(token, program, permuted, check_vma=check_vma)

    def test_branches_that_send_and_receive(self, token, check_vma):
        perm = [(0, 1)]

        def program(token, w):
            def zeros():
                return jnp.zeros_like(w)

            def sends():
                send(token(w), w * w, perm)
                return zeros()

            return total(lax.switch(lax.axis_index("x"), [sends, lambda: receive(token(w), perm), zeros]))

        check(token, program, lambda w: total(lax.ppermute(w * w, "x", perm)), check_vma=check_vma)

    def test_loops_that_change_nothing(self, token, check_vma):
        """To JAX the same in each iteration; but each receives the next message, and must not be moved out."""

        def program(token, w):
            for factor in range(3):
                send(token(w), w * factor)
            lax.scan(lambda c, _: (c, send(token(w), w * 5)), None, None, length=3)
            came = lax.scan(lambda c, _: (c, receive(token(w))), None, None, length=3)[1]
            return total(came) + 10 * total(sum(receive(token(w)) for _ in range(3)))

        def permuted(w):
            return total(jnp.stack([move(w * factor) for factor in range(3)])) + 10 * total(move(w * 5) * 3)

        check(token, program, permuted, check_vma=check_vma)

    def test_two_scans_that_meet_what_is_outside(self, token, check_vma):
        """The sends of the first loop are of data, its receives are outside; with the second it is the other way."""
        data = jnp.arange(6.0).reshape(3, 2)

        def program(token, w):
            lax.scan(lambda c, x: (c, send(token(w), varying(x))), 0.0, data)
            first = sum(receive(token(w)) * (k + 1) for k in range(3))
            for k in range(3):
                send(token(w), w * (k + 1))
            later = lax.scan(lambda c, _: (c, receive(token(w))), 0.0, None, length=3)[1]
            return total(first) + total(later)

        def permuted(w):
            first = sum(move(varying(x)) * (k + 1) for k, x in enumerate(data))
            return total(first) + total(jnp.stack([move(w * (k + 1)) for k in range(3)]))

        for transform in (jax.value_and_grad, jax.jacfwd):
            check(token, program, permuted, transform=transform, check_vma=check_vma)


@TOKENS
def test_token_from_outside_of_a_loop(token):
    def program(token, w):
        outside = token(w)

        def step(c, _):
            send(token(w), c * w)
            return receive(outside) + w, None

        return total(lax.scan(step, w, None, length=3)[0])

    check(token, program, lambda w: total(lax.scan(lambda c, _: (move(c * w) + w, None), w, None, length=3)[0]))


# Functions of the module: JAX traces them once for each type of operands, and uses the jaxpr again.


def step_of_the_module(c, w):
    send(fresh(w), c * w)
    return receive(peerax.create_token()) + w, c


@jax.jit
def shift_of_the_module(x):
    send(fresh(x), x * x)
    return receive(peerax.create_token())


@jax.jit
def receive_of_the_module():
    return receive(peerax.create_token())


class TestUsedAgain:
    """The same jaxpr in several traces, with other operands differentiated."""

    LOSSES = (
        lambda shift, scanned, w, v: total(shift(w) * v),
        lambda shift, scanned, w, v: total(scanned(w, jnp.stack([v, v * w]))),
        lambda shift, scanned, w, v: total(scanned(shift(v), jnp.stack([w, v])) + shift(w) * shift(v)),
    )

    @CHECK_VMA
    def test_functions_of_the_module(self, check_vma):
        def scanned(c, ws):
            return lax.scan(step_of_the_module, c, ws)[0]

        def scanned_permuted(c, ws):
            return lax.scan(lambda c, w: (move(c * w) + w, c), c, ws)[0]

        for loss in self.LOSSES:
            for transform, argnums in ((jax.value_and_grad, (0, 1)), (jax.grad, 1), (jax.jacfwd, 0)):
                fs = [
                    on_ranks(lambda w, v, loss=loss, s=s: loss(*s, varying(w), varying(v)), 3, check_vma, in_specs=P())
                    for s in ((shift_of_the_module, scanned), (lambda x: move(x * x), scanned_permuted))
                ]
                assert_same(*(jax.jit(transform(f, argnums))(W, W + 3) for f in fs))

    def test_batched_and_not(self):
        fs = [
            on_ranks(lambda w, s=s: s(varying(w)), 3, True, in_specs=P(), out_specs=P("x"))
            for s in (shift_of_the_module, lambda x: move(x * x))
        ]
        batch = jnp.stack([W, W + 1])
        assert_same(*(jax.jit(f)(W) for f in fs))
        assert_same(*(jax.jit(jax.vmap(f))(batch) for f in fs))
        assert_same(*(jax.jit(jax.vmap(jax.jacrev(f)))(batch) for f in fs))

    def test_function_without_operands(self):
        def program(token, w):
            send(token(w), w * w)
            return total(receive_of_the_module())

        check(fresh, program, lambda w: total(move(w * w)))
        check(fresh, program, lambda w: total(move(w * w)), transform=lambda f: f)


class TestBatches:
    """A receive that is not linked to what is batched would expect one example, where its sender sends a batch."""

    BATCH = jnp.arange(10.0).reshape(5, 2)

    def run(self, token, program, permuted, in_axes):
        fs = [
            jax.vmap(on_ranks(differing(f), 3, True, in_specs=P()), in_axes)
            for f in (functools.partial(program, token), permuted)
        ]
        args = [self.BATCH if axis == 0 else W for axis in in_axes]
        assert_same(*(jax.jit(f)(*args) for f in fs))

    @TOKENS
    def test_batch_inside_the_body(self, token):
        def program(token, b, x):
            def f(x):
                send(token(x), x * x)
                return receive(token(x))

            return total(jax.vmap(f)(jnp.stack([x, b])))

        fs = (functools.partial(program, token), lambda b, x: total(move(jnp.stack([x, b]) ** 2)))
        runs = [on_ranks(differing(f), 3, True, in_specs=P()) for f in fs]
        assert_same(*(jax.jit(run)(W, W + 1) for run in runs))

    @TOKENS
    @pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
    def test_sends_in_a_loop_that_is_not_batched(self, token, in_axes):
        def program(token, b, x):
            lax.scan(lambda c, s: (c, send(token(b), x * s)), 0.0, jnp.arange(3.0))
            return total(sum(receive(token(b)) for _ in range(3)) * b)

        self.run(token, program, lambda b, x: total(move(x * 3) * b), in_axes)

    @pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
    def test_closed_over(self, in_axes):
        def program(token, b, x):
            def step(c, _):
                send(token(b), c + x)
                return receive(token(b)) * b, None

            return total(lax.scan(step, varying(jnp.ones(2)), None, length=2)[0])

        def permuted(b, x):
            return total(lax.scan(lambda c, _: (move(c + x) * b, None), varying(jnp.ones(2)), None, length=2)[0])

        self.run(fresh, program, permuted, in_axes)
