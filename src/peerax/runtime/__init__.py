"""The transport of this process: loads the extension, registers it with XLA, and counts what it did."""

from peerax.runtime._exclusive import ExclusiveRun
from peerax.runtime._loading import extension, load, statistics
from peerax.runtime._settings import Settings, read_settings
from peerax.runtime._trace import Trace, trace

__all__ = ["ExclusiveRun", "Settings", "Trace", "extension", "load", "read_settings", "statistics", "trace"]
