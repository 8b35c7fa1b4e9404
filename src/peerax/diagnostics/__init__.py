"""Codes and their pages, records of known errors, diagnostics and their exception. Pure standard library."""

from peerax.diagnostics._diagnostic import Channel, Diagnostic, Location, runs
from peerax.diagnostics._error import PeeraxError
from peerax.diagnostics._matching import Found, find
from peerax.diagnostics._pages import explain
from peerax.diagnostics._record import Example, Record
from peerax.diagnostics._record_files import read_record, records
from peerax.diagnostics._registry import CODES, Code

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
    "explain",
    "find",
    "read_record",
    "records",
    "runs",
]
