"""Whole programs: with collectives (C), on several axes (M), with wrong arguments (I), transformed (V), as in training
(X), in several functions (Q), and those whose order only peerax fixes (K)."""

import jax
import jax.numpy as jnp
from jax import lax

from peerax import create_token, precv, psend
from tests.extract.catalogue.case import case, square
from tests.extract.catalogue.control_flow import many_times
from tests.ranks import chain, pair

FWD = chain(4)
BWD = [(b, a) for a, b in FWD]


@case("C1")
def c1(x):
    psend(x, "x", [(0, 1)])  # PX208
    total = lax.psum(x, "x")  # with PX208
    return total + precv(create_token(), x, "x", [(0, 1)])  # with PX208


@case("C2")
def c2(x):
    psend(x, "x", [(0, 1)])
    y = precv(create_token(), x, "x", [(0, 1)])
    return y + lax.psum(x, "x")


@case("C3")
def c3(x):
    y = precv(create_token(), x, "x", [(0, 1)])  # with PX207
    total = lax.psum(x, "x")  # PX207
    psend(x, "x", [(0, 1)])  # with PX207
    return y + total


@case("C4", mesh=square)
def c4(x):
    def one(x):
        psend(x, "b", [(0, 1)])
        return precv(create_token(), x, "b", [(0, 1)])

    return lax.cond(lax.axis_index("a") == 0, one, lambda x: x + lax.psum(x, "b"), x)


@case("C5")
def c5(x):
    total = lax.psum(x, "x")
    psend(x, "x", FWD)
    y = precv(create_token(), x, "x", FWD)
    return total + lax.ppermute(y, "x", [(3, 0)])


@case("M1", mesh=square)
def m1(x):
    psend(x, "a", [(0, 1)])
    return precv(create_token(), x, "a", [(0, 1)])


@case("M2", mesh=square)
def m2(x):
    psend(x, "a", [(0, 1)])  # PX201
    return precv(create_token(), x, "b", [(0, 1)])  # PX202


@case("M3", mesh=square)
def m3(x):
    psend(x, ("a", "b"), [(0, 3)])
    return precv(create_token(), x, ("a", "b"), [(0, 3)])


@case("M4", mesh=square)
def m4(x):
    psend(x, ("a", "b"), [(0, 2)])
    return precv(create_token(), x, "a", [(0, 1)])  # PX202


@case("M7", mesh=square)
def m7(x):
    psend(x, "a", [(0, 1)])  # PX208
    total = lax.psum(x, "a")  # with PX208
    return total + precv(create_token(), x, "a", [(0, 1)])  # with PX208


@case("M8, a sum along the other axis", mesh=square)
def m8(x):
    def one(x):
        psend(x, "a", [(0, 1)])
        x = x + lax.psum(x, "b")
        return precv(create_token(), x, "a", [(0, 1)])

    # The ranks of one row reach the sum only when those of the other row have received.
    def other(x):
        x = precv(create_token(), x, "a", [(0, 1)])
        return x + lax.psum(x, "b")

    return lax.cond(lax.axis_index("a") == 0, one, other, x)


@case("M9", mesh=square)
def m9(x):
    token = psend(x, ("b", "a"), [(0, 1)])  # PX212
    return precv(token, x, ("b", "a"), [(0, 1)])


@case("I1")
def i1(x):
    psend(x, "x", [(0, 7)])  # PX102
    return x


@case("I2")
def i2(x):
    psend(x, "x", [(0, -1)])  # PX102
    return x


@case("I3")
def i3(x):
    psend(x, "x", [(0, 1), (0, 2)])  # PX103
    return x


@case("I4, two that send to one")
def i4(x):
    return precv(create_token(), x, "x", [(0, 2), (1, 2)])  # PX103


@case("I6")
def i6(x):
    return precv(create_token(), x, "y", [(0, 1)])  # PX101


@case("V1")
def v1(x):
    return jax.vmap(lambda row: pair(row, "x", FWD))(x.reshape(2, 4)).reshape(8)


@case("V2")
def v2(x):
    def loss(x):
        psend(x, "x", FWD)
        return (precv(create_token(), x, "x", FWD) ** 2).sum()

    return jax.grad(loss)(x)


@case("V4")
def v4(x):
    @jax.checkpoint
    def region(x):
        psend(jnp.sin(x), "x", FWD)
        return precv(create_token(), x, "x", FWD)

    return jax.grad(lambda x: (region(x) ** 2).sum())(x)


@case("V5", size=2)
def v5(x):
    def loss(x):
        y = precv(create_token(), x, "x", [(0, 1)])

        def step(x):
            psend(jnp.sin(x), "x", [(0, 1)])
            return x + precv(create_token(), x, "x", [(0, 1)])

        x = many_times(step, x + y, 3)
        psend(x, "x", [(0, 1)])
        return (x**2).sum()

    return jax.grad(loss)(x)


@case("V6")
def v6(x):
    @jax.custom_vjp
    def shift(x):
        psend(x, "x", FWD)
        return precv(create_token(), x, "x", FWD)

    def backward(_, y_bar):
        return (precv(create_token(), y_bar, "x", BWD),)  # PX202

    shift.defvjp(lambda x: (shift(x), None), backward)
    return jax.grad(lambda x: (shift(x) ** 2).sum())(x)


@case("X2", size=2)
def x2(x):
    psend(x, "x", [(0, 1)])
    x = precv(create_token(), x, "x", [(0, 1)])
    x = many_times(lambda x: pair(pair(x, "x", [(0, 1)]), "x", [(1, 0)]), x, 6)
    psend(x, "x", [(1, 0)])
    return precv(create_token(), x, "x", [(1, 0)])


@case("X3", size=2)
def x3(x):
    def send(x, perm):
        psend(x, "x", perm)
        return x + 1

    def receive(x, perm):
        return x + precv(create_token(), x, "x", perm)

    def first(x):
        x = many_times(lambda x: send(x, [(0, 1)]), x, 3)
        return many_times(lambda x: receive(x, [(1, 0)]), x, 3)

    def last(x):
        x = many_times(lambda x: receive(x, [(0, 1)]), x, 3)
        return many_times(lambda x: send(x, [(1, 0)]), x, 3)

    return lax.cond(lax.axis_index("x") == 0, first, last, x)


@case("X4")
def x4(x):
    def step(x):
        psend(x, "x", FWD)  # PX208
        psend(x, "x", BWD)  # with PX208
        y = precv(create_token(), x, "x", FWD)  # with PX208
        return y + precv(create_token(), x, "x", BWD)  # with PX208

    return many_times(step, x, 9)


@case("X6")
def x6(x):
    psend(x, "x", FWD)
    y = precv(create_token(), x, "x", FWD)
    psend(x, "x", BWD)
    return y + precv(create_token(), x, "x", BWD)


@case("X7")
def x7(x):
    psend(x, "x", FWD)  # PX208
    psend(x, "x", BWD)  # with PX208
    y = precv(create_token(), x, "x", FWD)  # with PX208
    return y + precv(create_token(), x, "x", BWD)  # with PX208


@jax.jit
def send_alone(x):
    psend(x, "x", FWD)  # PX201
    return x


@jax.jit
def receive_alone(x):
    return precv(create_token(), x, "x", FWD)  # PX202


case("Q1, the send alone")(send_alone.__wrapped__)
case("Q1, the receive alone")(receive_alone.__wrapped__)


@case("Q1")
def q1(x):
    return receive_alone(send_alone(x))


@case("K1")
def k1(x):
    psend(x, "x", FWD)  # jax.lax: PX206
    return precv(create_token(), x, "x", FWD)  # jax.lax: PX206


@case("K2", size=2)
def k2(x):
    token = psend(x, "x", [(0, 1)])  # jax.lax: PX206
    y = precv(token, x, "x", [(0, 1)])  # jax.lax: PX206
    token = psend(x, "x", [(1, 0)])  # jax.lax: PX206
    return y + precv(token, x, "x", [(1, 0)])  # jax.lax: PX206


@case("K3", size=2)
def k3(x):
    token = psend(x, "x", [(0, 1)])
    y = precv(token, x, "x", [(0, 1)])
    token = psend(y, "x", [(1, 0)])
    return precv(token, x, "x", [(1, 0)])


@case("K4", size=2)
def k4(x):
    token = psend(x[:4], "x", [(0, 1)])  # jax.lax: PX206
    y = precv(token, x[:4], "x", [(0, 1)])  # jax.lax: PX206
    token = psend(x, "x", [(0, 1)])  # jax.lax: PX206
    return y[0] + precv(token, x, "x", [(0, 1)])  # jax.lax: PX206


@case("K7")
def k7(x):
    token = psend(x, "x", [(0, 1)])  # jax.lax: PX206
    y = precv(token, x, "x", [(0, 1)])  # jax.lax: PX206
    return y + lax.psum(x, "x")  # jax.lax: PX206


@case("K8", size=2)
def k8(x):
    first = psend(x[:4], "x", [(0, 1)], tag=0)  # jax.lax: PX206
    second = psend(x, "x", [(0, 1)], tag=0)  # jax.lax: PX206
    y = precv(second, x, "x", [(0, 1)], tag=0)  # jax.lax: PX206
    return y + precv(first, x[:4], "x", [(0, 1)], tag=0)[0]  # jax.lax: PX206
