"""Codes and their pages, records of known errors, diagnostics and their exception. Pure standard library."""

import importlib
from typing import TYPE_CHECKING

from peerax.diagnostics._diagnostic import Channel, Diagnostic, Location, runs
from peerax.diagnostics._error import PeeraxError
from peerax.diagnostics._pages import explain
from peerax.diagnostics._registry import CODES, Code

if TYPE_CHECKING:
    from peerax.diagnostics._matching import Found, find
    from peerax.diagnostics._record import Example, Record
    from peerax.diagnostics._record_files import read_record, records
    from peerax.diagnostics._template import Squeezed, Template

__all__ = [
    "CODES",
    "Channel",
    "Code",
    "Diagnostic",
    "Example",
    "Found",
    "Location",
    "PeeraxError",
    "Record",
    "Squeezed",
    "Template",
    "explain",
    "find",
    "read_record",
    "records",
    "runs",
]

# Every program that imports JAX imports this room; the records are for those who ask.
_HOMES = {
    "Example": "_record",
    "Found": "_matching",
    "Record": "_record",
    "Squeezed": "_template",
    "Template": "_template",
    "find": "_matching",
    "read_record": "_record_files",
    "records": "_record_files",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'peerax.diagnostics' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"peerax.diagnostics.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
