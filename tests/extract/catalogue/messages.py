"""Messages alone: without another end (U, P), of another type (T), in a cycle (D), with tags (G)."""

import jax
import jax.numpy as jnp

from peerax import create_token, precv, psend
from tests.extract.catalogue.case import case
from tests.ranks import chain, ring

FWD, RING = chain(4), ring(4)


@case("U1")
def u1(x):
    psend(x, "x", [(0, 1)])  # PX201
    return x


@case("U2")
def u2(x):
    return precv(create_token(), x, "x", [(0, 1)])  # PX202


@case("U3")
def u3(x):
    psend(x, "x", FWD)  # PX201
    return precv(create_token(), x, "x", FWD[:2])


@case("U6")
def u6(x):
    psend(x, "x", FWD)
    return precv(create_token(), x, "x", FWD)


@case("U7")
def u7(x):
    psend(x, "x", [(0, 1)])
    psend(x, "x", [(2, 3)])
    return precv(create_token(), x, "x", [(0, 1), (2, 3)])


@case("U8")
def u8(x):
    y = precv(create_token(), x, "x", FWD)
    psend(x, "x", FWD)
    return y


@case("U9", size=1)
def u9(x):
    psend(x, "x", [])
    return precv(create_token(), x, "x", [])


@case("P1")
def p1(x):
    psend(x, "x", [(0, 1), (1, 2)])  # PX201
    return precv(create_token(), x, "x", [(0, 1), (2, 3)])  # PX202


@case("P3")
def p3(x):
    psend(x, "x", [(0, 1)])  # PX201
    return precv(create_token(), x, "x", [(1, 0)])  # PX202


@case("T1")
def t1(x):
    psend(jnp.zeros((64, 128), x.dtype) + x[0], "x", FWD)  # PX203
    y = precv(create_token(), jax.ShapeDtypeStruct((128, 128), x.dtype), "x", FWD)  # with PX203
    return x + y[0, 0]


@case("T1 as a pair")
def t1_as_a_pair(x):
    token = psend(x, "x", FWD)  # PX203
    y = precv(token, jax.ShapeDtypeStruct((9,), x.dtype), "x", FWD)  # with PX203
    return x + y[0]


@case("T3")
def t3(x):
    psend(x.astype(jnp.bfloat16), "x", FWD)  # PX204
    return precv(create_token(), x, "x", FWD)  # with PX204


@case("T5")
def t5(x):
    psend(x[:4], "x", FWD)
    y = precv(create_token(), x[:4], "x", FWD)
    psend(x, "x", FWD)
    return precv(create_token(), x, "x", FWD) + y[0]


@case("T5 crossed")
def t5_crossed(x):
    psend(x[:4], "x", FWD)  # PX203
    y = precv(create_token(), x, "x", FWD)  # with PX203
    psend(x, "x", FWD)  # PX203
    return y + precv(create_token(), x[:4], "x", FWD)[0]  # with PX203


@case("T8")
def t8(x):
    psend(2.0, "x", FWD)
    return x + precv(create_token(), jax.ShapeDtypeStruct((), x.dtype), "x", FWD)


@case("T9")
def t9(x):
    psend(jnp.zeros((64, 128), x.dtype) + x[0], "x", FWD)  # PX203
    y = precv(create_token(), jax.ShapeDtypeStruct((8192,), x.dtype), "x", FWD)  # with PX203
    return x + y[0]


@case("D1")
def d1(x):
    psend(x, "x", RING)  # PX208
    return precv(create_token(), x, "x", RING)  # with PX208


@case("D2")
def d2(x):
    y = precv(create_token(), x, "x", RING)  # PX207
    psend(x, "x", RING)  # with PX207
    return y


@case("D3")
def d3(x):
    token = psend(x, "x", RING)
    return precv(token, x, "x", RING)


@case("D4")
def d4(x):
    psend(x, "x", FWD)
    y = precv(create_token(), x, "x", FWD)
    psend(x, "x", [(3, 0)])
    return y + precv(create_token(), x, "x", [(3, 0)])


@case("D5", size=2)
def d5(x):
    psend(x, "x", [(0, 1)])  # PX208
    psend(x, "x", [(1, 0)])  # with PX208
    y = precv(create_token(), x, "x", [(0, 1)])  # with PX208
    return y + precv(create_token(), x, "x", [(1, 0)])  # with PX208


@case("D6", size=2)
def d6(x):
    psend(x, "x", [(0, 1)])
    y = precv(create_token(), x, "x", [(0, 1)])
    psend(y, "x", [(1, 0)])
    return precv(create_token(), x, "x", [(1, 0)])


@case("D7", size=2)
def d7(x):
    y = precv(create_token(), x, "x", [(0, 1)])  # with PX207
    z = precv(create_token(), x, "x", [(1, 0)])  # PX207
    psend(x, "x", [(0, 1)])  # with PX207
    psend(x, "x", [(1, 0)])  # with PX207
    return y + z


@case("D8", size=2)
def d8(x):
    token = psend(x, "x", [(0, 1), (1, 0)])
    return precv(token, x, "x", [(0, 1), (1, 0)])


@case("D10", size=3)
def d10(x):
    for pairs in ([(0, 1)], [(1, 2)], [(2, 0)]):
        psend(x, "x", pairs)
        x = precv(create_token(), x, "x", pairs)
    return x


@case("D12")
def d12(x):
    psend(x, "x", [(0, 1), (2, 3)])
    y = precv(create_token(), x, "x", [(0, 1), (2, 3)])
    psend(x, "x", [(1, 2), (3, 0)])
    return y + precv(create_token(), x, "x", [(1, 2), (3, 0)])


@case("D14", size=3)
def d14(x):
    psend(x, "x", [(0, 1)])
    y = precv(create_token(), x, "x", [(0, 1)])
    psend(x, "x", [(1, 2), (2, 0)])
    return y + precv(create_token(), x, "x", [(1, 2), (2, 0)])


@case("D15")
def d15(x):
    psend(x, "x", [(2, 2)])  # PX208
    return precv(create_token(), x, "x", [(2, 2)])  # with PX208


@case("D16")
def d16(x):
    token = psend(x, "x", [(2, 2)])
    return precv(token, x, "x", [(2, 2)])


@case("G1")
def g1(x):
    psend(x, "x", FWD, tag=1)
    y = precv(create_token(), x, "x", FWD, tag=1)
    psend(x, "x", FWD, tag=2)
    return y + precv(create_token(), x, "x", FWD, tag=2)


@case("G2")
def g2(x):
    psend(x, "x", FWD, tag=1)  # PX205
    return precv(create_token(), x, "x", FWD, tag=2)  # with PX205


@case("G3")
def g3(x):
    psend(x, "x", [(0, 1)])
    psend(x + 1, "x", [(0, 1)])
    y = precv(create_token(), x, "x", [(0, 1)])
    return y + precv(create_token(), x, "x", [(0, 1)])


@case("G4, two tags in another order")
def g4(x):
    psend(x, "x", [(0, 1)], tag=1)  # PX208
    psend(x + 1, "x", [(0, 1)], tag=2)  # with PX208
    y = precv(create_token(), x, "x", [(0, 1)], tag=2)  # with PX208
    return y + precv(create_token(), x, "x", [(0, 1)], tag=1)  # with PX208
