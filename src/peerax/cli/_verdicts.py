"""The verdicts of `peerax check`: one for each program, printed as they come, and a summary."""

import contextlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TextIO

from peerax.cli._errors import say
from peerax.cli._summary import count, size
from peerax.diagnostics import Diagnostic, PeeraxError
from peerax.verifier import Report

if TYPE_CHECKING:
    from peerax.extract.compiled import CompiledProgram
    from peerax.targets import Target

_LONG_S = 2.0
_LINES_OF_ERROR = 12
Semantics = Literal["rendezvous", "buffered"]


class Stop(SystemExit):
    """Ends the script before an unsafe program runs. No Exception: the script has no way to go on without it."""


class Verdicts:
    """Checks the programs of a script, prints the verdicts, and remembers what the exit code depends on.

    Args:
        semantics: how sends are judged.
        targets: what each program is compiled for as well.
        as_json: whether to print JSON Lines, instead of text.
    """

    def __init__(self, semantics: Semantics, targets: list["Target"], as_json: bool) -> None:
        self._semantics: Semantics = semantics
        self._targets = targets
        self._as_json = as_json
        self._out = _take_stdout()
        self._lock = threading.Lock()
        self._printed: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._not_compiled = 0

    def judge(self, program: "CompiledProgram") -> None:
        """Check a program before it is compiled.

        Raises:
            Stop: if it is unsafe.
        """
        with long_work(f"peerax check: checking {shown(program)}"):
            report = program.check(self._semantics)
        unsafe = report.verdict == "unsafe"
        self._add(program, report, [] if unsafe else [_compiled(program, target) for target in self._targets])
        if unsafe:
            raise Stop

    def refuse(self, diagnostic: Diagnostic) -> None:
        """Add a program that could not be traced because of a mistake in it."""
        self._add(None, Report("unsafe", (diagnostic,), self._semantics, 0), [])

    def _add(self, program: "CompiledProgram | None", report: Report, compiled: list[dict[str, Any]]) -> None:
        record = _record(program, report, compiled)
        line = json.dumps(record)
        with self._lock:
            if line in self._printed:  # the script makes the same function again and again
                return
            self._printed.add(line)
            self._counts[report.verdict] += 1
            self._not_compiled += sum("error" in outcome for outcome in compiled)
            self._print(line if self._as_json else _text(program, report, compiled))

    def end(self, ended: Literal["finished", "stopped", "failed"], error: str | None, unsafe_run: bool) -> int:
        """Print the summary, and return the exit code.

        Args:
            ended: how the script ended.
            error: why it failed.
            unsafe_run: whether a program that was not known to be unsafe has failed like one.
        """
        if self._counts["unsafe"] or self._not_compiled or unsafe_run:
            exit_code = 1
        elif ended == "failed":
            exit_code = 3
        else:
            exit_code = 2 if self._counts["undecided"] else 0
        if self._as_json:
            counts = {verdict: self._counts[verdict] for verdict in ("safe", "unsafe", "undecided")}
            summary = {"kind": "summary", "exit_code": exit_code, "programs": self._counts.total(), **counts}
            self._print(json.dumps({**summary, "not_compiled": self._not_compiled, "script": ended, "error": error}))
        else:
            self._print(self._summary(ended, error))
        return exit_code

    def _summary(self, ended: str, error: str | None) -> str:
        parts = ["the script has compiled no program that communicates"]
        if self._counts:
            verdicts = ", ".join(f"{self._counts[v]} {v}" for v in ("safe", "undecided", "unsafe") if self._counts[v])
            parts = [f"{count(self._counts.total(), 'program')}, {verdicts}"]
        if self._not_compiled:
            parts.append(f"{self._not_compiled} not compiled for a target")
        if ended == "stopped":
            parts.append("the script was stopped")
        elif ended == "failed":
            parts.append(f"the script failed: {error}")
        return f"peerax check: {'; '.join(parts)}"

    def _print(self, text: str) -> None:
        with contextlib.suppress(Exception):  # after what the script has printed
            sys.stdout.flush()
        print(text, file=self._out, flush=True)


def semantics(send: str | None) -> Semantics:
    """Return how sends are judged: as by those who wait for the receive, unless --send says otherwise."""
    return "buffered" if send == "buffered" else "rendezvous"


def shown(program: "CompiledProgram") -> str:
    """Return the name of a program, and the line that calls it."""
    file, line = program.call
    return f"{file}:{line}: {program.name or 'a program'}"


@contextlib.contextmanager
def long_work(text: str) -> Iterator[None]:
    """Say on stderr what is being done, if it takes long."""
    timer = threading.Timer(_LONG_S, say, (f"{text} ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _take_stdout() -> TextIO:
    """Return the stdout of this process; what the script or a library in C writes there goes to stderr from now on."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    os.dup2(2, 1)
    return own


def _compiled(program: "CompiledProgram", target: "Target") -> dict[str, Any]:
    """Compile a program for a target, and return the outcome."""
    with long_work(f"peerax check: compiling {shown(program)} for {target.name}"):
        try:
            return {"target": target.name, "memory": program.compile_for(target).memory}
        except PeeraxError as error:
            return {"target": target.name, "error": str(error), "code": error.code}
        except Exception as error:  # compilers raise all sorts
            return {"target": target.name, "error": f"{type(error).__name__}: {error}", "code": None}


def _record(program: "CompiledProgram | None", report: Report, compiled: list[dict[str, Any]]) -> dict[str, Any]:
    name, call = None, None
    if program is not None:
        name, call = program.name, dict(zip(("file", "line"), program.call, strict=True))
    return {"kind": "program", "name": name, "call": call, **json.loads(report.to_json()), "targets": compiled}


def _text(program: "CompiledProgram | None", report: Report, compiled: list[dict[str, Any]]) -> str:
    if program is None:
        return "\n\n".join(["unsafe: it cannot be traced", *(found.render() for found in report.diagnostics), ""])
    prefix = f"{shown(program)}: "
    if report.diagnostics:
        lines = [prefix + report.render()]
    else:
        lines = [f"{prefix}{report.verdict} ({count(report.size, 'rank')})"]
        lines += [f"  assumed: {sentence}" for sentence in report.assumptions]
    for outcome in compiled:
        if "memory" in outcome:
            memory = ", ".join(f"{name} {size(size_bytes)}" for name, size_bytes in outcome["memory"].items())
            lines.append(f"  {outcome['target']}: compiled; memory of a device: {memory}")
        else:
            error = outcome["error"].splitlines()
            dots = ["..."] if len(error) > _LINES_OF_ERROR else []
            lines.append(f"  {outcome['target']}: {error[0]}")
            lines += [f"    {line}" for line in [*error[1:_LINES_OF_ERROR], *dots]]
    return "\n".join([*lines, ""] if report.diagnostics else lines)
