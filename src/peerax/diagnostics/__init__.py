"""Codes, their pages, diagnostics and the exception that carries them. Pure standard library."""

from peerax.diagnostics._diagnostic import Channel, Diagnostic, Location, runs
from peerax.diagnostics._error import PeeraxError
from peerax.diagnostics._pages import explain
from peerax.diagnostics._registry import CODES, Code

__all__ = ["CODES", "Channel", "Code", "Diagnostic", "Location", "PeeraxError", "explain", "runs"]
