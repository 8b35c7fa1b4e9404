"""Execution of CPU programs that communicate."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import jax
from jax._src.interpreters import pxla


class Run(Protocol):
    """What is told of one execution."""

    is_over: bool

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

    def __init__(self, executable, name, backend, in_handler, out_handler, unordered_effects, *args, **kwargs):
        super().__init__(executable, name, backend, in_handler, out_handler, unordered_effects, *args, **kwargs)
        self.run: Run | None = None
        self.exclusive = _effect in unordered_effects and backend.platform == "cpu"

    def __call__(self, *args):
        if not self.exclusive:
            return super().__call__(*args)
        jax.block_until_ready(args)
        outer = self.run  # of the same program, if a callback of it started this one
        try:
            with type(self).enter() as self.run:
                return super().__call__(*args)
        finally:
            self.run = outer

    def _handle_token_bufs(self, token_bufs, sharded_token):
        if self.exclusive:
            self._finish(sharded_token)
        super()._handle_token_bufs(token_bufs, sharded_token)

    def _finish(self, sharded_token):
        """Wait until all ranks are at their end, and raise if the run failed."""
        try:
            first = self._wait(sharded_token)
        except BaseException:  # an interrupt: the ranks still use what belongs to this run
            self.run.interrupt()
            self._wait(sharded_token)
            self.run.is_over = True
            self.run.take_failure()
            raise
        self.run.is_over = True
        report = self.run.take_failure()
        if report and first is not None and report.splitlines()[0] not in str(first):
            # A rank that a callback's error ended is why others waited in vain.
            first.add_note(report)
            raise first
        if report:
            raise jax.errors.JaxRuntimeError(f"ABORTED: {report}")
        if first is not None:
            raise first

    def _wait(self, sharded_token) -> Exception | None:
        """Return the first error that a rank ended with."""
        first = None
        for i in range(len(self._local_devices)):
            try:
                sharded_token.get_token(i).block_until_ready()
            except jax.errors.JaxRuntimeError as error:
                first = first or error
        return first


_effect: Any = None


def execute_exclusively(effect: Any, enter: Callable[[], contextlib.AbstractContextManager[Run]]) -> None:
    """Run each CPU program with that effect inside enter(), to its end."""
    global _effect
    _effect = effect
    _ExclusiveExecution.enter = staticmethod(enter)
    pxla.ExecuteReplicated = _ExclusiveExecution
