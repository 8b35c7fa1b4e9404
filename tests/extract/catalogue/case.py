"""What a case of the catalogue is: a body, the mesh it runs on, and what its comments say of it.

A comment `# PX201` at the end of a line says that the report has a diagnostic with that code which names that line
first. A line that only comes later in it is marked `# with PX208`; both may be said of one line, with a comma between.
A body without such comments is safe. A comment `# jax.lax: PX206` says what is wrong with the same program if it is
written with jax.lax, which fixes no order.
"""

import functools
import inspect
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax
from tests.ranks import line

CASES: dict[str, "Case"] = {}

WIDTH = 8
_COMMENT = re.compile(r"# ((?:(?:with )?PX\d{3}(?:, )?)+)\s*$")
_LAX_COMMENT = re.compile(r"# jax\.lax: (PX\d{3})\s*$")


@dataclass(frozen=True)
class Case:
    """A program of the catalogue.

    Args:
        name: a letter for its category, and a number.
        body: what every rank does with its eight numbers.
        mesh: of all ranks.
        types: for which values of check_vma the body can be traced.
        reverse: whether JAX can differentiate it backwards.
    """

    name: str
    body: Callable
    mesh: Mesh
    types: tuple[bool, ...]
    reverse: bool

    @property
    def category(self) -> str:
        return self.name[0]

    @functools.cached_property
    def marks(self) -> dict[str, set[str]]:
        """The lines at which the report must have a diagnostic, by code."""
        return {mark: lines for mark, lines in _marked(self.body, _COMMENT).items() if not mark.startswith("with ")}

    @functools.cached_property
    def lines(self) -> set[str]:
        """All lines that the diagnostics must name."""
        return set().union(*_marked(self.body, _COMMENT).values())

    @functools.cached_property
    def lax_marks(self) -> dict[str, set[str]]:
        """The same as marks, of the program as one of jax.lax."""
        return _marked(self.body, _LAX_COMMENT)

    @property
    def verdict(self) -> str:
        codes = set(self.marks)
        return "safe" if not codes else "undecided" if codes == {"PX211"} else "unsafe"

    def program(self, check_vma: bool) -> Callable:
        """Return the function of an array that runs the body on every rank."""
        split = P(self.mesh.axis_names)
        return jax.shard_map(self.body, mesh=self.mesh, in_specs=split, out_specs=split, check_vma=check_vma)

    def argument(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((WIDTH * self.mesh.size,), jnp.float32)

    @functools.cache  # noqa: B019  a case lives as long as the module
    def report(self, check_vma: bool) -> peerax.Report:
        return peerax.check(self.program(check_vma), self.argument())


def case(name: str, *, size: int = 4, mesh=None, types: tuple[bool, ...] = (True, False), reverse: bool = True):
    """Return a decorator that adds a body to the catalogue."""

    def add(body):
        assert name not in CASES
        CASES[name] = Case(name, body, line(size) if mesh is None else mesh(), types, reverse)
        return body

    return add


def square():
    """Two by two ranks."""
    return Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))


def _marked(body, comment: re.Pattern) -> dict[str, set[str]]:
    lines, first = inspect.getsourcelines(body)
    file = pathlib.Path(inspect.getsourcefile(body)).name
    found: dict[str, set[str]] = {}
    for number, text in enumerate(lines, first):
        if match := comment.search(text):
            for mark in match[1].split(", "):
                found.setdefault(mark, set()).add(f"{file}:{number}")
    return found


def named(location) -> str:
    """Return "file.py:line" of a location."""
    file, number = location
    return f"{pathlib.Path(file).name}:{number}"
