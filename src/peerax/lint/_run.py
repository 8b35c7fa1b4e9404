"""Lint many files: find them, and share them out to several processes where that is worth it."""

import concurrent.futures
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from peerax.lint._file import lint_file, printable
from peerax.lint._finding import Finding, Unreadable
from peerax.lint._settings import Settings

_NOT_ENTERED = {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"}
_WORTH_PROCESSES = 200  # files; below, starting processes costs more than it saves


@dataclass(frozen=True)
class Result:
    """Hold what came of linting: how many files were looked at, what was found, what could not be read."""

    files: int
    findings: tuple[Finding, ...]
    unreadable: tuple[Unreadable, ...]


def lint_paths(paths: Sequence[str], settings: Settings, *, processes: int | None = 1) -> Result:
    """Lint files, and all Python files in and below directories.

    Args:
        paths: files and directories. A file that is named is linted whatever its name ends with.
        settings: which rules are applied to which files.
        processes: how many processes share the work; None: one per core if there is much of it. Each of several imports
            the main module again, which must not do its work then.

    Returns:
        The findings and the files that could not be read, both in the order of their paths.
    """
    unreadable: list[Unreadable] = []
    files = list(python_files(paths, settings, unreadable.append))
    tasks = [(path, settings.codes_for(path)) for path in files]
    findings: list[Finding] = []
    for outcome in _each(_lint, tasks, processes):
        if isinstance(outcome, Unreadable):
            unreadable.append(outcome)
        else:
            findings += outcome
    return Result(len(files), tuple(findings), tuple(sorted(unreadable)))


def python_files(
    paths: Iterable[str], settings: Settings, report: Callable[[Unreadable], None] = lambda one: None
) -> Iterator[str]:
    """Yield the files that paths name or hold, each once; report paths and directories that cannot be read."""
    seen: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            files = _walk(path, settings, report)
        elif os.path.isfile(path):
            files = iter([path])
        else:
            there = os.path.exists(path)
            why = "it is neither a file nor a directory" if there else "there is no such file or directory"
            report(Unreadable(printable(path), 1, why))
            continue
        for file in files:
            real = os.path.realpath(file)
            if real not in seen and not settings.is_excluded(file):
                seen.add(real)
                yield file


def _walk(directory: str, settings: Settings, report: Callable[[Unreadable], None]) -> Iterator[str]:
    def cannot_enter(error: OSError) -> None:
        report(Unreadable(printable(os.fspath(error.filename)), 1, f"cannot read it: {error.strerror}"))

    for where, directories, files in os.walk(directory, onerror=cannot_enter):
        directories[:] = sorted(
            name
            for name in directories
            if name not in _NOT_ENTERED
            and not name.startswith(".")
            and not settings.is_excluded(os.path.join(where, name))
        )
        paths = (os.path.join(where, name) for name in sorted(files) if name.endswith(".py"))
        yield from (path for path in paths if os.path.isfile(path))  # a pipe would be waited for


def _lint(task: tuple[str, frozenset[str]]) -> list[Finding] | Unreadable:
    # A syntax tree is many objects and no cycle. Looking for cycles again and again while it grows takes two thirds
    # of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return lint_file(*task)
    finally:
        if was_enabled:
            gc.enable()


def _each(work: Callable, tasks: list, processes: int | None) -> Iterator:
    if processes is None:
        processes = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
        processes = processes if len(tasks) >= _WORTH_PROCESSES else 1
    if processes == 1:
        yield from map(work, tasks)
        return
    # Not fork: who calls this may have threads.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(work, tasks, chunksize=max(1, len(tasks) // (8 * processes)))
