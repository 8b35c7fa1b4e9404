"""The transport of this process: loads the extension, registers it with XLA, and counts what it did."""

from peerax.runtime._exclusive import ExclusiveRun
from peerax.runtime._loading import extension, load, statistics
from peerax.runtime._settings import Settings, read_settings

__all__ = ["ExclusiveRun", "Settings", "extension", "load", "read_settings", "statistics"]
