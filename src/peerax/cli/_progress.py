"""What the ranks are doing, shown on a terminal when the script has been silent for a while."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from peerax.runtime import extension

_SILENCE_S = 5.0
_EVERY_S = 0.5


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """Show below the output of the script what its ranks are doing, as long as it prints nothing and they are busy.

    Only on a terminal: a file or a pipe gets nothing.
    """
    if not sys.stderr.isatty():
        yield
        return
    display = _Display()
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Noticed(stream, display) for stream in streams)
    thread = threading.Thread(target=display.run, daemon=True, name="peerax-progress")
    thread.start()
    try:
        yield
    finally:
        display.stop()
        thread.join()
        # What the script has put in their place itself stays.
        if isinstance(sys.stdout, _Noticed):
            sys.stdout = streams[0]
        if isinstance(sys.stderr, _Noticed):
            sys.stderr = streams[1]


class _Display:
    def __init__(self) -> None:
        self._stream = sys.stderr
        self._live: Any = None
        self._lock = threading.RLock()
        self._since_s = time.monotonic()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            with self._lock:
                if time.monotonic() - self._since_s >= _SILENCE_S:
                    self._show()

    def _show(self) -> None:
        if "peerax.runtime._extension" not in sys.modules:  # nothing of peerax has run
            return
        # rich is needed now only, and takes longer to import than all the rest.
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        lines = extension().describe_sessions()
        if not lines:
            self._hide()
            return
        silent_s = time.monotonic() - self._since_s
        text = Text(f"peerax: no output for {silent_s:.0f} s; the ranks:\n" + "\n".join(f"  {line}" for line in lines))
        if self._live is None:
            # What the script prints comes by here anyway.
            options = {"redirect_stdout": False, "redirect_stderr": False, "auto_refresh": False}
            self._live = Live(text, console=Console(file=self._stream), transient=True, **options)
            self._live.start()
        self._live.update(text, refresh=True)

    def _hide(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def notice(self) -> None:
        """Take the lines away, since the script prints something."""
        with self._lock:
            self._since_s = time.monotonic()
            self._hide()

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            self._hide()


class _Noticed:
    """A stream that says when something is written to it."""

    def __init__(self, stream: Any, display: _Display) -> None:
        self._stream = stream
        self._display = display

    def write(self, text: str) -> int:
        self._display.notice()
        return self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        self._display.notice()
        self._stream.writelines(lines)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
