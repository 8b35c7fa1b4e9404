"""Check a file of records: against the schema, and by running the fix of each record."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from typing import Any

from peerax.dataset._extra import need
from peerax.dataset._running import run_fix


@dataclass(frozen=True)
class Problem:
    """Hold what is wrong in one line of a file. slug: of the record, if it has one."""

    line: int
    slug: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line} ({self.slug}): {self.what}"


@dataclass(frozen=True)
class Fix:
    """Hold a fix that is published: the program, and where."""

    line: int
    slug: str
    code: str


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    return json.loads(resources.files("peerax.dataset").joinpath("record.schema.json").read_text(encoding="utf-8"))


def read(lines: Iterable[str]) -> tuple[int, list[Problem], list[Fix]]:
    """Validate the lines of a file.

    Returns:
        How many records there are, what is wrong with them, and the fixes that can be run.

    Raises:
        Missing: if the package that validates is not installed.
    """
    validator = need("jsonschema").Draft202012Validator(schema())
    count, problems, fixes = 0, [], []
    seen: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        count += 1
        try:
            value = json.loads(line)
        except ValueError as error:
            problems.append(Problem(number, "?", f"it is no JSON: {error}"))
            continue
        record = value.get("record") if isinstance(value, dict) else None
        record = record if isinstance(record, dict) else {}
        slug = str(record.get("slug", "?"))
        problems += [Problem(number, slug, what) for what in _violations(validator, value)]
        for name in ("id", "slug"):
            text = record.get(name)
            if isinstance(text, str) and (first := seen.setdefault((name, text), number)) != number:
                problems.append(Problem(number, slug, f"its {name} {text!r} is that of line {first}"))
        if isinstance(code := record.get("exampleFix"), str):
            fixes.append(Fix(number, slug, code))
    return count, problems, fixes


def _violations(validator: Any, value: Any) -> Iterator[str]:
    for error in sorted(validator.iter_errors(value), key=lambda error: error.json_path):
        where = error.json_path.removeprefix("$").removeprefix(".") or "the line"
        yield f"{where}: {error.message if len(error.message) < 300 else error.message[:300] + '...'}"
    match value:
        case {"record": {"messagePattern": str(pattern)}}:
            try:
                re.compile(pattern)
            except re.error as error:
                yield f"record.messagePattern: {pattern!r} is not a regular expression of Python: {error}"


def run_fixes(
    fixes: Iterable[Fix], *, devices: int, limit_s: float, jobs: int, done: Callable[[Fix], None]
) -> Iterator[Problem]:
    """Run fixes, each in a process of its own, and yield those that do not run.

    Args:
        fixes: what to run.
        devices: how many devices of the CPU a program gets that does not say it itself.
        limit_s: how long each may take.
        jobs: how many run at the same time.
        done: called after each.
    """

    def run(fix: Fix) -> Problem | None:
        what = run_fix(fix.code, devices=devices, limit_s=limit_s)
        done(fix)
        return None if what is None else Problem(fix.line, fix.slug, what)

    with ThreadPoolExecutor(jobs) as pool:
        yield from filter(None, pool.map(run, fixes))
