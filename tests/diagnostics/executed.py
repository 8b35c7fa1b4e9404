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
    """Yield the programs of a record that can be executed here: its versions of JAX, and what it needs."""
    for name, example, versions in (
        ("failing", record.failing, record.versions),
        ("fixed", record.fixed, record.fixed_versions),
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
    with tempfile.TemporaryDirectory() as directory:
        for programs in together.values():
            while rest := {key: example for key, example in programs.items() if key not in found}:
                done = _run(rest, pathlib.Path(directory), _LIMIT_S)
                found |= done
                if len(done) < len(rest):  # the worker has ended with this one
                    key = next(key for key in rest if key not in done)
                    alone[key] = rest[key]
                    found[key] = Outcome("pending")
        for key, example in alone.items():
            found |= _run({key: example}, pathlib.Path(directory), _LIMIT_ALONE_S)
    return found


def _run(programs: dict[Key, Example], directory: pathlib.Path, limit_s: float) -> dict[Key, Outcome]:
    """Run programs of the same environment in one worker, or in one for each process of JAX."""
    example = next(iter(programs.values()))
    paths: dict[str, Key] = {}
    for (slug, name), program in programs.items():
        path = directory / f"{slug.replace('-', '_')}_{name}.py"
        path.write_text(program.code, encoding="utf-8")
        paths[str(path)] = slug, name
    results = directory / "results.jsonl"
    results.unlink(missing_ok=True)
    port = _free_port()
    workers, errors = [], []
    for process in range(example.processes):
        errors.append(open(directory / f"stderr_{process}", "w+"))
        workers.append(
            subprocess.Popen(
                [sys.executable, str(_WORKER), *paths, str(results if process == 0 else os.devnull)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors[-1],
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
    errors[0].seek(0)
    stderr = errors[0].read()
    for file in errors:
        file.close()
    if not found and len(programs) == 1:
        (key,) = programs
        code = workers[0].returncode
        ended = signal.Signals(-code).name if code < 0 else f"exit {code}"
        found[key] = Outcome(ended, stderr, stderr)
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
