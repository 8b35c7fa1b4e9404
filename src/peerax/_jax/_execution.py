"""Execution of CPU programs that communicate."""

import contextlib
import functools
import traceback
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import jax
from jax._src.interpreters import pxla

from peerax._jax._waiting import Wait, runs_given_up

_LOOK_S = 0.25
# How long the call of a run that failed or was interrupted waits for its ranks, which go on without waiting. One may be
# in a callback for long. Those that wait for one that XLA has ended give up within a second.
_GIVE_UP_S = 2.0
_RELEASED = "a callback raised, and all ranks were released from what they did:"


class Run(Protocol):
    """What is told of one execution."""

    is_over: bool
    raised: BaseException | None  # by a callback of it

    def describe(self) -> list[str]:
        """Return what each rank is doing now, a line each."""

    def interrupt(self) -> None:
        """Let its ranks go on to their ends without waiting."""

    def take_failure(self) -> str:
        """Return its report if it failed, or "", once its ranks are done."""


class _ExclusiveExecution(pxla.ExecuteReplicated):
    """Runs CPU programs that communicate one at a time, and returns when they are over.

    XLA:CPU holds a thread for each rank of a program until that rank is done, in a pool with one thread per device. As
    soon as two programs that wait inside are in flight, or a program's launch waits for a slot (32 per device), the
    pool may have no thread left for the rank that everybody waits for. XLA's own collectives hang and abort for that
    reason (jaxlib 0.10.2: ppermute on 8 devices, some hundred calls that nobody waits for).
    """

    enter: Callable[[], contextlib.AbstractContextManager[Run]]
    current: Run | None = None  # the one whose ranks are inside

    def __init__(self, executable, name, backend, in_handler, out_handler, unordered_effects, *args, **kwargs):
        super().__init__(executable, name, backend, in_handler, out_handler, unordered_effects, *args, **kwargs)
        self.run: Run | None = None
        self.exclusive = _effect in unordered_effects and backend.platform == "cpu"

    def __call__(self, *args):
        if not self.exclusive:
            return super().__call__(*args)
        jax.block_until_ready(args)
        with type(self).enter() as run:
            # Of the same program, if a callback of it started this one. Whoever is inside alone may change these.
            outer = self.run, _ExclusiveExecution.current
            self.run = _ExclusiveExecution.current = run
            try:
                _warn_of_given_up()
                return super().__call__(*args)
            finally:
                self.run, _ExclusiveExecution.current = outer

    def _handle_token_bufs(self, token_bufs, sharded_token):
        if self.exclusive:
            self._finish(sharded_token)
        super()._handle_token_bufs(token_bufs, sharded_token)

    def _finish(self, sharded_token):
        """Wait until all ranks are at their end, and raise if the run failed."""
        tokens = [sharded_token.get_token(i) for i in range(len(self._local_devices))]
        wait = Wait(tokens)
        report = ""
        seen: list[str] = []
        try:
            while not report and not wait.is_over(_LOOK_S):
                report = self.run.take_failure()
                if self.run.raised is not None and not seen:  # others may wait for its rank, which never comes
                    seen = self.run.describe()
                    self.run.interrupt()
            self.run.is_over = wait.give_up(_GIVE_UP_S)
        except BaseException:  # an interrupt: the ranks still use what belongs to this run
            self.run.interrupt()
            self.run.is_over = wait.give_up(_GIVE_UP_S)
            self.run.take_failure()
            raise
        report = report or self.run.take_failure()
        if self.run.raised is not None:
            note = report or ("\n    ".join([_RELEASED, *seen]) if seen else "")
            raise _error_of_callback(self.run.raised, wait.error, note)
        if report:
            raise jax.errors.JaxRuntimeError(f"ABORTED: {report}")
        if wait.error is not None:
            raise wait.error


def _error_of_callback(raised: BaseException, error: Exception | None, note: str) -> Exception:
    """Return what JAX would raise for it by itself, had nobody waited for its rank."""
    if error is None or type(raised).__name__ not in str(error):
        text = "".join(traceback.format_exception(raised))
        error = jax.errors.JaxRuntimeError(f"INTERNAL: callback failed\n{text}")
    if note:
        error.add_note(note)
    return error


def noting_what_it_raises(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback of a program that communicates, of which its run knows when it fails on a rank."""

    @functools.wraps(callback)
    def noting(*args):
        run = None if runs_given_up() else _ExclusiveExecution.current  # it might be called by one of those
        try:
            return callback(*args)
        except BaseException as error:  # sys.exit() ends a rank as well
            if run is not None and run.raised is None:
                run.raised = error
            raise

    return noting


def _warn_of_given_up() -> None:
    if any(not wait.is_over(_LOOK_S) for wait in runs_given_up()):
        warnings.warn(
            "a run that failed or was interrupted is still computing; the next one begins when its devices are free",
            RuntimeWarning,
            stacklevel=2,
        )


_effect: Any = None


def execute_exclusively(effect: Any, enter: Callable[[], contextlib.AbstractContextManager[Run]]) -> None:
    """Run each CPU program with that effect inside enter(), to its end."""
    global _effect
    _effect = effect
    _ExclusiveExecution.enter = staticmethod(enter)
    pxla.ExecuteReplicated = _ExclusiveExecution
