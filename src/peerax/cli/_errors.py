"""What is shown when a program fails: its own frames, then the report of peerax, and each failure once."""

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_REPORT = re.compile(r"PX\d{3}: .*?^ *more: peerax explain PX\d{3}", re.DOTALL | re.MULTILINE)
_MARK_OF_JAX_NOTE = "JAX_TRACEBACK_FILTERING"


class Failures:
    """The failures of a program: those that it has seen, and those of work that it did not wait for."""

    def __init__(self, command: str) -> None:
        # A failed computation raises its error wherever somebody waits for it, and JAX waits for all of them
        # at the end. Only the text tells whether the program has seen an error, and perhaps handled it.
        import jax

        self._command = command
        self._seen: set[str] = set()
        self._type = jax.errors.JaxRuntimeError
        initialise = self._type.__init__

        def remember(error, *args):
            initialise(error, *args)
            self._seen.add(str(error))

        self._type.__init__ = remember

    def await_work(self) -> list[BaseException]:
        """Wait for what is under way, show the failures that the program has not seen, and return them."""
        import jax

        seen, failures = set(self._seen), []
        try:
            jax.effects_barrier()
        except self._type as error:
            failures = [error]
        except ExceptionGroup as group:
            failures = list(group.exceptions)
        unseen = [error for error in failures if str(error) not in seen]
        if unseen:
            say(f"peerax {self._command}: work failed that the program did not wait for")
        for error in unseen:
            show(error.with_traceback(None))  # the traceback is that of the wait above
        self._drop_repeats(seen | {str(error) for error in unseen})
        return unseen

    def _drop_repeats(self, seen: set[str]) -> None:
        """Keep JAX from showing, when Python exits, failures that were seen."""
        show_unraisable = sys.unraisablehook

        def hook(unraisable: Any) -> None:
            if not (isinstance(unraisable.exc_value, self._type) and str(unraisable.exc_value) in seen):
                show_unraisable(unraisable)

        sys.unraisablehook = hook


def show(error: BaseException) -> None:
    """Show an uncaught exception as Python would, with the report of peerax in it, if any, at the end."""
    for each in _chain(error):
        each.__traceback__ = _without_ours(each)
    reports = reports_in(error)
    if reports and hasattr(error, "__notes__"):
        error.__notes__ = [note for note in error.__notes__ if _MARK_OF_JAX_NOTE not in note]
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    sys.excepthook(type(error), error, error.__traceback__)
    if reports and not "".join(traceback.format_exception_only(error)).rstrip().endswith(reports[0]):
        say(f"\n{reports[0]}")


def end_by_interrupt(interrupt: KeyboardInterrupt) -> None:
    """Show an interrupt that is going to end this process as it ends any script.

    It is shown here, without our own frames; raised again, it ends Python, and is not to be shown once more.
    """
    show(interrupt)
    sys.excepthook = lambda *_: None


def reports_in(error: BaseException) -> list[str]:
    """Return the reports of peerax in an exception and in those that Python shows with it, the last raised first."""
    return [match[0] for each in _chain(error) if (match := _REPORT.search(str(each)))]


def say(text: Any) -> None:
    """Print on stderr, after what the program has printed on stdout."""
    with contextlib.suppress(Exception):  # the program may have closed or replaced it
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        print(text, file=sys.stderr, flush=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that Python shows with it, from the last raised to the first."""
    known: set[int] = set()
    while error is not None and id(error) not in known:
        yield error
        known.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _without_ours(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that started the program, and those that made a report."""
    frames = []
    frame = error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    while frames and (_is_ours(frames[0]) or frames[0].tb_frame.f_code.co_filename.startswith("<frozen importlib")):
        del frames[0]
    if _REPORT.search(str(error)):  # of any other error, frames inside of peerax may be the cause
        frames = [frame for frame in frames if not _is_ours(frame)]
    first = None
    for frame in reversed(frames):
        frame.tb_next = first
        first = frame
    return first


def _is_ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith(_OURS)
