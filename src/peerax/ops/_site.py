"""The user's line: where an operation was written, for errors and reports."""

import os
import sys

from peerax import _jax
from peerax.diagnostics import Location

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NOT_USERS = (_OURS, *_jax.PACKAGE_DIRECTORIES)


def user_site() -> str:
    """Return "file:line" of the innermost frame outside peerax and JAX, relative to the working directory."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USERS) and not file.startswith("<frozen"):
            return as_site(file, frame.f_lineno)
        frame = frame.f_back
    return "<unknown>:0"


def as_site(file: str, line: int) -> str:
    """Return "file:line", with the file relative to the working directory where it is below it."""
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}:{line}"


def site_of(eqn) -> str:
    """The user's line that an equation comes from."""
    found = _jax.equation_site(eqn)
    return "<unknown>:0" if found is None else as_site(*found)


def location(site: str) -> Location:
    """Split "file:line" again."""
    file, _, line = site.rpartition(":")
    return file, int(line)
