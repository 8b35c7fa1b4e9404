"""Waits in another thread for the end of a run, since JAX's own wait hears no Ctrl-C before it is over."""

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

import jax

_AT_EXIT_S = 5.0


class Wait:
    """The wait for all ranks of one run, which begins at once."""

    def __init__(self, tokens: list[Any]):
        self.error: Exception | None = None  # the first that a rank ended with, once the wait is over
        self._tokens = tokens
        self._over = threading.Event()  # several threads ask, and none of them may hide it from another
        _in_other_thread(self._run)

    def is_over(self, limit_s: float = -1) -> bool:
        """Wait until all ranks are done, at most that long (for ever if negative), and return whether they are."""
        return self._over.wait(None if limit_s < 0 else limit_s)

    def give_up(self, limit_s: float) -> bool:
        """Wait that long at most; ranks that are not done then have a little more when the process ends.

        One that comes back from a callback while Python is being taken down would end the process by a signal.
        """
        if self.is_over(limit_s):
            return True
        global _given_up
        atexit.register(self.is_over, _AT_EXIT_S)
        _given_up = [*runs_given_up(), self]
        return False

    def _run(self) -> None:
        for token in self._tokens:
            try:
                token.block_until_ready()
            except jax.errors.JaxRuntimeError as error:
                self.error = self.error or error
        self._over.set()


# Changed by one thread at a time, that of the run which has ended; callbacks of any rank read it meanwhile.
_given_up: list[Wait] = []


def runs_given_up() -> list[Wait]:
    """Return the waits that were given up and whose ranks are still not done."""
    return [wait for wait in _given_up if not wait.is_over(0)]


# Threads are kept a while, since to start one takes as long as a short run. They are daemons, so that a rank that never
# ends does not keep the process from ending.
_IDLE_S = 5.0
_idle: list["queue.SimpleQueue[Callable[[], None]]"] = []


def _in_other_thread(task: Callable[[], None]) -> None:
    try:
        tasks = _idle.pop()
    except IndexError:
        tasks = queue.SimpleQueue()
        threading.Thread(target=_work, args=(tasks,), name="peerax wait", daemon=True).start()
    tasks.put(task)


def _work(tasks: "queue.SimpleQueue[Callable[[], None]]") -> None:
    while True:
        try:
            task = tasks.get(timeout=_IDLE_S)
        except queue.Empty:
            try:
                _idle.remove(tasks)
                return
            except ValueError:  # somebody has just taken it
                task = tasks.get()
        task()
        del task
        _idle.append(tasks)
