"""One communicating program at a time in this process."""

import contextlib
import math
import threading
from collections.abc import Iterator

from peerax.diagnostics import PeeraxError
from peerax.runtime._loading import extension
from peerax.runtime._settings import read_settings

# Reentrant: XLA runs a program for one device on the calling thread, and so its callbacks.
_running = threading.RLock()
_depth = 0  # guarded by _running


@contextlib.contextmanager
def exclusive_run() -> Iterator[None]:
    """Wait until no other communicating program runs, and keep others waiting meanwhile.

    Raises:
      PeeraxError: PX308, if this is called from inside a callback of the running program, which would wait for itself.
    """
    global _depth
    # Threads that Python did not start are XLA's, and run callbacks.
    inside_callback = isinstance(threading.current_thread(), threading._DummyThread)
    limit_s = read_settings().timeout_s if inside_callback else math.inf
    if not _running.acquire(timeout=-1 if math.isinf(limit_s) else limit_s):
        raise PeeraxError.of(
            "PX308",
            f"a callback started a program that communicates, and another one was still running {limit_s:g} s later",
        )
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0:
            extension().abandon_sessions()
        _running.release()


def take_failure() -> str:
    """Return the report of the run that failed since the last call, or ""."""
    return extension().take_failure()
