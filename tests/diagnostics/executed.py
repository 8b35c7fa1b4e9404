"""The programs of all records, executed: many in one process, and what ends its process in one of its own.

A program that fails is done when it fails, so hundreds of them take little more time than importing JAX once for each
environment. Its outcome is the exception, and the text that its user would see.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version

from packaging.specifiers import SpecifierSet

from peerax.diagnostics import Example, Record, records

_WORKER = pathlib.Path(__file__).with_name("worker.py")
_LIMIT_S = 300
_LIMIT_ALONE_S = 100


@dataclass(frozen=True)
class Outcome:
    """Hold how a program ended: the name of its exception, or None; for a signal, the signal's name.

    shown: what its user would see. raised_at: file and line of the innermost frame of the traceback.
    """

    exception: str | None
    message: str = ""
    shown: str = ""
    raised_at: tuple[str, int] | list = ()


Key = tuple[str, str]  # (slug, "failing" or "fixed")


def is_in(versions: str) -> bool:
    """Whether the installed JAX is one of the versions."""
    return version("jax") in SpecifierSet(versions, prereleases=True)


def executable(record: Record) -> Iterator[tuple[str, Example]]:
    """Yield the programs of a record that can be executed here: its versions of JAX, and what it needs.

    The validation that a record names is executed behind its fixed program, where it must hold.
    """
    code = "\n".join(filter(None, [record.fixed.code, record.validation, record.try_catch]))
    for name, example, versions in (
        ("failing", record.failing, record.versions),
        ("fixed", dataclasses.replace(record.fixed, code=code), record.fixed_versions),
    ):
        if is_in(versions) and (example.needs is None or importlib.util.find_spec(example.needs)):
            yield name, example


@functools.cache
def outcomes() -> dict[Key, Outcome]:
    """Execute all programs of all records, once in this process, and return how they ended."""
    return execute(records().values())


@functools.cache
def raised_at() -> dict[str, tuple[str, int]]:
    """Return the file and line that raises the error of each record of JAX: without its filter of tracebacks."""
    chosen = [record for record in records().values() if record.raised_in and not record.failing.alone]
    done = execute(chosen, only="failing", env=(("JAX_TRACEBACK_FILTERING", "off"),))
    return {slug: tuple(outcome.raised_at) for (slug, _), outcome in done.items()}


def execute(chosen: Iterable[Record], only: str = "", env: tuple = ()) -> dict[Key, Outcome]:
    """Execute the programs of some records, or only those of one name, and return how they ended.

    env: variables of the environment in addition to the program's own.
    """
    together: dict[tuple, dict[Key, Example]] = {}
    alone: dict[Key, Example] = {}
    for record in chosen:
        for name, example in executable(record):
            if only not in ("", name):
                continue
            example = dataclasses.replace(example, env=(*example.env, *env))
            if example.alone or example.processes > 1:
                alone[record.slug, name] = example
            else:
                together.setdefault((example.devices, example.env), {})[record.slug, name] = example
    found: dict[Key, Outcome] = {}
    # Two at a time: many of those that run alone do little but wait.
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(_run_all, together.values()):
            found |= done
        # What ended its worker is run once more, alone.
        alone |= {
            key: example for programs in together.values() for key, example in programs.items() if key not in found
        }
        for done in pool.map(lambda item: _run(dict([item]), _LIMIT_ALONE_S), alone.items()):
            found |= done
    return found


def _run_all(programs: dict[Key, Example]) -> dict[Key, Outcome]:
    """Run programs of the same environment, in as few workers as there are programs that end theirs, and one more."""
    found: dict[Key, Outcome] = {}
    rest = dict(programs)
    while rest:
        done = _run(rest, _LIMIT_S)
        found |= done
        rest = {key: example for key, example in rest.items() if key not in done}
        if rest:  # the worker has ended with the first of them
            del rest[next(iter(rest))]
    return found


def _run(programs: dict[Key, Example], limit_s: float) -> dict[Key, Outcome]:
    """Run programs of the same environment in one worker, or in one for each process of JAX."""
    with tempfile.TemporaryDirectory() as directory:
        return _run_in(pathlib.Path(directory), programs, limit_s)


def _run_in(directory: pathlib.Path, programs: dict[Key, Example], limit_s: float) -> dict[Key, Outcome]:
    example = next(iter(programs.values()))
    paths: dict[str, Key] = {}
    for (slug, name), program in programs.items():
        path = directory / f"{slug.replace('-', '_')}_{name}.py"
        path.write_text(program.code, encoding="utf-8")
        paths[str(path)] = slug, name
    results = directory / "results.jsonl"
    port = _free_port()
    workers, errors = [], []
    for process in range(example.processes):
        errors.append(directory / f"stderr_{process}")
        with open(errors[-1], "w") as stderr:
            workers.append(
                subprocess.Popen(
                    [sys.executable, str(_WORKER), *paths, str(results if process == 0 else os.devnull)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=_environment(example, process, port),
                    cwd=directory,
                )
            )
    end_s = time.monotonic() + limit_s
    for worker in workers:
        try:
            worker.wait(max(0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    found: dict[Key, Outcome] = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        result = json.loads(line)
        key = paths[result.pop("path")]
        found[key] = Outcome(**result)
    if not found and len(programs) == 1:
        (key,) = programs
        code, shown = workers[0].returncode, errors[0].read_text(encoding="utf-8", errors="replace")
        found[key] = Outcome(signal.Signals(-code).name if code < 0 else f"exit {code}", shown, shown)
    return found


def _environment(example: Example, process: int, port: int) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PEERAX_"))
    }
    environment["JAX_PLATFORMS"] = "cpu"
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={example.devices}"
    if example.processes > 1:
        environment["COORDINATOR"] = f"127.0.0.1:{port}"
        environment["PROCESSES"], environment["PROCESS"] = str(example.processes), str(process)
    environment.update(example.env)
    return environment


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
