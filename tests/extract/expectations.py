"""Bodies that many tests share, and programs with the codes that their reports must have."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import chain, line

FWD = chain(4)
X = jax.ShapeDtypeStruct((32,), jnp.float32)


SPLIT, BOTH = P("x"), P(("a", "b"))


class Programs:
    """Programs, each a function of X, by name."""

    def __init__(self):
        self.names = {}

    def expect(self, *codes):
        """Return a decorator for a function that makes a program; no codes are the verdict "safe"."""

        def add(make):
            assert make.__name__ not in self.names
            self.names[make.__name__] = make, [*codes]
            return make

        return add

    def check(self, name):
        make, codes = self.names[name]
        report = peerax.check(make(), X)
        assert [found.code for found in report.diagnostics] == codes, str(report)
        assert report.verdict == ("safe" if not codes else "undecided" if set(codes) == {"PX211"} else "unsafe")


def on_line(body, in_specs=SPLIT, out_specs=SPLIT, **options):
    options.setdefault("check_vma", False)
    return jax.shard_map(body, mesh=line(4), in_specs=in_specs, out_specs=out_specs, **options)


def square():
    return Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))


def on_square(body, spec=BOTH):
    return jax.shard_map(body, mesh=square(), in_specs=spec, out_specs=spec, check_vma=False)


def rank():
    return lax.axis_index("x")


def along(x, perm=FWD, axis="x"):
    """Send and receive separately."""
    peerax.psend(x, axis, perm)
    return peerax.precv(peerax.create_token(), x, axis, perm)


def send(x, perm=((0, 1),)):
    peerax.psend(x, "x", perm)
    return x


def receive(x, perm=((0, 1),)):
    return peerax.precv(peerax.create_token(), x, "x", perm)


def total(x, axis="x"):
    return x + lax.psum(x, axis)


def same(x):
    return x


def number(x):
    """Return a number that is the same on all ranks."""
    return lax.psum(x.sum(), "x")
