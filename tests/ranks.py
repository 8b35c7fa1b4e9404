"""Meshes, perms and exchanges that the tests share, and the lines that reports must name."""

import functools
import inspect
import pathlib

import jax
import numpy as np
from jax.sharding import Mesh

import peerax


@functools.cache
def line(size):
    """Return a mesh of the first devices, with one axis "x"."""
    return Mesh(np.array(jax.devices()[:size]), ("x",))


def chain(size):
    return [(rank, rank + 1) for rank in range(size - 1)]


def ring(size, step=1):
    return [(rank, (rank + step) % size) for rank in range(size)]


def pair(x, axis_name, perm, **options):
    """Send and receive as a pair: what ppermute does."""
    token = peerax.psend(x, axis_name, perm, **options)
    return peerax.precv(token, jax.tree.map(jax.typeof, x), axis_name, perm, **options)


def site(function, mark):
    """Return "file.py:line" of the line of function that ends in the comment `# mark`."""
    lines, first = inspect.getsourcelines(function)
    (at,) = [i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}")]
    return f"{pathlib.Path(inspect.getsourcefile(function)).name}:{first + at}"
