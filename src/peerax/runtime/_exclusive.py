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


class ExclusiveRun:
    """One execution of a program that communicates."""

    def __init__(self):
        self.is_over = False
        self.raised: BaseException | None = None

    @classmethod
    @contextlib.contextmanager
    def enter(cls) -> Iterator["ExclusiveRun"]:
        """Wait until no other communicating program runs, and keep others waiting meanwhile.

        Raises:
          PeeraxError: PX308, if this is called from inside a callback of the running program, which would wait for
            itself.
        """
        global _depth
        # Threads that Python did not start are XLA's, and run callbacks.
        inside_callback = isinstance(threading.current_thread(), threading._DummyThread)
        limit_s = read_settings().timeout_s if inside_callback else math.inf
        if not _running.acquire(timeout=-1 if math.isinf(limit_s) else limit_s):
            raise PeeraxError.of(
                "PX308",
                "a callback started a program that communicates, and another one was still running "
                f"{limit_s:g} s later",
            )
        if _depth == 0:
            extension().take_failure()  # of a run whose caller was interrupted before it could
        _depth += 1
        run = cls()
        try:
            yield run
        finally:
            _depth -= 1
            if _depth == 0:
                if run.is_over:
                    extension().abandon_sessions()
                else:  # it did not start, or its ranks are still inside
                    extension().interrupt_sessions(True)
                extension().interrupt_sessions(False)
            _running.release()

    def describe(self) -> list[str]:
        """Return what each rank is doing now, a line each."""
        return extension().describe_sessions()

    def interrupt(self) -> None:
        """Let its ranks go on to their ends without waiting."""
        extension().interrupt_sessions(True)

    def take_failure(self) -> str:
        """Return its report if it failed, or "", once its ranks are done."""
        return extension().take_failure()
