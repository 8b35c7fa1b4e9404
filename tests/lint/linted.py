"""Lint texts, and say in short what was found."""

import textwrap

from peerax.lint import RULES, lint_source

PRELUDE = """\
import functools
import jax
import jax.numpy as jnp
import numpy as np
import peerax
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
on_ranks = jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
right = [(0, 1), (1, 2), (2, 3)]
"""
LINES = PRELUDE.count("\n")


def lint(text, *codes, prelude=PRELUDE):
    """Return the findings in a text, which begins with the prelude."""
    source = (prelude + textwrap.dedent(text)).encode()
    return lint_source(source, "program.py", set(codes or RULES))


def found(text, *codes, prelude=PRELUDE):
    """Return (code, line) of each finding; lines count from the end of the prelude."""
    lines = prelude.count("\n")
    return [(finding.code, finding.line - lines) for finding in lint(text, *codes, prelude=prelude)]
