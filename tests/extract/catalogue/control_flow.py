"""Loops whose length is known (L), branches that the rank chooses (B), and what is not known before the run (W)."""

import jax
import jax.numpy as jnp
from jax import lax

from peerax import create_token, precv, psend
from tests.extract.catalogue.case import case
from tests.ranks import chain
from tests.transformations.programs import varying

FWD = chain(4)


def many_times(body, x, times):
    """Apply body so many times, in a scan."""
    return lax.scan(lambda x, _: (body(x), None), x, length=times)[0]


def along(x, perm=FWD):
    """Send and receive separately, at lines that no report needs to name."""
    psend(x, "x", perm)
    return precv(create_token(), x, "x", perm)


def number(x):
    """Return a number that is the same on all ranks."""
    return lax.psum(x.sum(), "x")


def same(x):
    return x


@case("L1")
def l1(x):
    def step(x):
        psend(x, "x", FWD)
        return precv(create_token(), x, "x", FWD)

    return many_times(step, x, 3)


@case("L2")
def l2(x):
    def step(x):
        psend(x, "x", [(0, 1)])  # PX201
        return x + 1

    x = many_times(step, x, 3)
    return precv(create_token(), x, "x", [(0, 1)])  # with PX201


@case("L4", size=2)
def l4(x):
    y = precv(create_token(), x, "x", [(0, 1)])

    def step(x):
        psend(x, "x", [(0, 1)])
        return precv(create_token(), x, "x", [(0, 1)])

    x = many_times(step, x + y, 3)
    psend(x, "x", [(0, 1)])
    return x


@case("L5", size=2)
def l5(x):
    psend(x, "x", [(0, 1)])
    x = many_times(lambda x: along(x, [(0, 1)]), x, 3)
    return precv(create_token(), x, "x", [(0, 1)])


@case("L6", size=2)
def l6(x):
    psend(x, "x", [(0, 1)])

    def step(x):
        psend(x, "x", [(0, 1)])  # PX201
        return precv(create_token(), x, "x", [(0, 1)])  # with PX201

    return many_times(step, x, 3)


@case("L8")
def l8(x):
    def send(x):
        psend(x, "x", [(0, 1)])  # PX201
        return x + 1

    def receive(x):
        return x + precv(create_token(), x, "x", [(0, 1)])  # with PX201

    index = lax.axis_index("x")
    return lax.switch(
        jnp.minimum(index, 2), [lambda x: many_times(send, x, 6), lambda x: many_times(receive, x, 5), same], x
    )


@case("L9", size=2, reverse=False)
def l9(x):
    def step(_, x):
        psend(x, "x", [(0, 1)])  # with PX202
        return precv(create_token(), x, "x", [(0, 1)])  # PX202

    return lax.fori_loop(0, lax.axis_index("x") + 1, step, x)


@case("L10", reverse=False)
def l10(x):
    def step(_, x):
        return x + lax.psum(x, "x")  # PX209

    return lax.fori_loop(0, lax.axis_index("x") + 1, step, x)


@case("L11")
def l11(x):
    def step(x):
        psend(x, "x", FWD)
        return x

    return many_times(step, x, 0)


@case("L12")
def l12(x):
    def step(x):
        x = many_times(along, x, 2)
        return x + lax.psum(x, "x")

    return many_times(step, x, 4)


@case("L13, a table by iteration and rank")
def l13(x):
    ticks = jnp.arange(6)
    index = lax.axis_index("x")

    def tick(x, t):
        active = (t >= index) & (t < index + 3)
        x = x + lax.cond(active & (index > 0), lambda: precv(create_token(), x, "x", FWD), lambda: jnp.zeros_like(x))
        lax.cond(active, lambda: psend(x, "x", FWD), lambda: varying(create_token()))
        return x, None

    return lax.scan(tick, x, ticks)[0]


@case("L14, L13 with a table that is wrong on one rank")
def l14(x):
    index = lax.axis_index("x")

    def tick(x, t):
        active = (t >= index) & (t < index + 3 - (index == 2).astype(index.dtype))
        came = lax.cond(
            active & (index > 0),
            lambda: precv(create_token(), x, "x", FWD),  # PX202, with PX201
            lambda: jnp.zeros_like(x),
        )
        lax.cond(active, lambda: psend(x, "x", FWD), lambda: varying(create_token()))  # PX201, with PX202
        return x + came, None

    return lax.scan(tick, x, jnp.arange(6))[0]


@case("B1", size=2)
def b1(x):
    def send(x):
        psend(x, "x", [(0, 1)])
        return x

    return lax.cond(lax.axis_index("x") == 0, send, lambda x: precv(create_token(), x, "x", [(0, 1)]), x)


@case("B2")
def b2(x):
    def send(x):
        psend(x, "x", [(0, 1)])  # PX201
        return x

    return lax.cond(lax.axis_index("x") == 0, send, same, x)


@case("B3")
def b3(x):
    def add(x):
        return x + lax.psum(x, "x")  # PX209

    return lax.cond(lax.axis_index("x") == 0, add, same, x)


@case("B4")
def b4(x):
    def one(x):
        return x + lax.psum(x * 2, "x")

    def other(x):
        return x + lax.psum(x * 3, "x")

    return lax.cond(lax.axis_index("x") == 0, one, other, x)


@case("B4 with a message")
def b4_with_a_message(x):
    return b4(along(x))


@case("B5", size=2)
def b5(x):
    def one(x):
        x = x + lax.psum(x, "x")  # PX207
        psend(x, "x", [(0, 1)])  # with PX207
        return x

    def other(x):
        x = precv(create_token(), x, "x", [(0, 1)])  # with PX207
        return x + lax.psum(x, "x")  # with PX207

    return lax.cond(lax.axis_index("x") == 0, one, other, x)


@case("B7")
def b7(x):
    def one(x):
        psend(x, "x", FWD)
        return precv(create_token(), x, "x", FWD)

    def other(x):
        x = precv(create_token(), x, "x", FWD)  # PX202
        return x + lax.psum(x, "x")  # PX209

    return lax.switch(lax.axis_index("x") // 2, [one, other], x)


@case("B10")
def b10(x):
    def one(x):
        return x + lax.psum(x, "x")  # PX209

    def other(x):
        return x + lax.pmax(x, "x")  # with PX209

    return lax.cond(lax.axis_index("x") == 0, one, other, x)


@case("B11, a pair on some ranks only")
def b11(x):
    def exchange(x):
        token = psend(x, "x", FWD)  # PX201
        return precv(token, x, "x", FWD)  # with PX201

    return lax.cond(lax.axis_index("x") == 1, exchange, same, x)


@case("W1")
def w1(x):
    def exchange(x):
        psend(x, "x", FWD)  # with PX210
        return precv(create_token(), x, "x", FWD)  # with PX210

    return lax.cond(x.sum() > 0, exchange, same, x)  # PX210


@case("W2")
def w2(x):
    return lax.cond(number(x) > 0, along, same, x)


@case("W4")
def w4(x):
    return lax.cond(x.sum() > 0, along, lambda x: along(x * 2), x)


@case("W5", reverse=False)
def w5(x):
    return lax.while_loop(lambda x: number(x) < 100, lambda x: along(x) + x + 1, x)


@case("W6", reverse=False)
def w6(x):
    def step(x):
        psend(x, "x", FWD)  # with PX210
        return precv(create_token(), x, "x", FWD)  # with PX210

    return lax.while_loop(lambda x: x.sum() < 100, step, x)  # PX210


@case("W7", reverse=False)
def w7(x):
    def send(x):
        psend(x, "x", FWD)
        return x + 1

    def receive(x):
        return x + precv(create_token(), x, "x", FWD)

    x = lax.while_loop(lambda x: number(x) < 100, send, x)  # PX211
    return lax.while_loop(lambda x: number(x) < 200, receive, x)  # with PX211


@case("W8, one side of what all ranks choose hangs")
def w8(x):
    def cycle(x):
        psend(x, "x", [*FWD, (3, 0)])  # PX208
        return precv(create_token(), x, "x", [*FWD, (3, 0)])  # with PX208

    return lax.cond(number(x) > 0, cycle, same, x)


@case("W9, one predicate, asked twice")
def w9(x):
    positive = number(x) > 0
    lax.cond(positive, lambda: psend(x, "x", FWD), lambda: varying(create_token()))
    return lax.cond(positive, lambda: precv(create_token(), x, "x", FWD), lambda: x)


@case("W10", types=(False,))
def w10(x):
    replicated = lax.all_gather(x, "x")[1].sum() > 0
    return lax.cond(replicated, along, same, x)


@case("W11")
def w11(x):
    index = jax.pure_callback(lambda: jnp.int32(1), jax.ShapeDtypeStruct((), jnp.int32))

    def exchange(x):
        psend(x, "x", FWD)  # with PX211
        return precv(create_token(), x, "x", FWD)  # with PX211

    def add(x):
        return x + lax.psum(x, "x")  # with PX211

    return lax.switch(index, [exchange, add, same], x)  # PX211
