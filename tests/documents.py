"""Read the code fences of Markdown documents, and run those that hold a Python program.

The words behind the language of a Python fence say how its program is run:

    python                      ends well, on one device
    python devices=4            on this number of CPU devices
    python env=NAME=VALUE       with this environment variable; may be given several times
    python fails=PX203          ends with an exception that reports this code
    python alone                needs a process of its own; each program here has one
    python needs=optax          imports this package, and is not run where it is missing
    python fragment             is no whole program, and is not run; the document says so in its text
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "src" / "peerax" / "diagnostics" / "pages"

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_OTHER_NAMES_OF_PYTHON = {"py", "python3", "pycon"}


@dataclass(frozen=True)
class Fence:
    """Hold one code fence: where it starts, the words of its info string, and the code."""

    path: pathlib.Path
    line: int
    info: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}"


@dataclass(frozen=True)
class Program:
    """Hold a Python fence whose words have been understood."""

    fence: Fence
    devices: int
    env: tuple[tuple[str, str], ...]
    fails: str | None
    fragment: bool
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Hold what came of running a program; `returncode` is None if the time limit ended it."""

    returncode: int | None
    stdout: str
    stderr: str
    wall_s: float


def documents() -> list[pathlib.Path]:
    """Return the documents whose programs test_documents runs; those of the records are run by test_records."""
    readme = ROOT / "README.md"
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [*([readme] if readme.exists() else []), *docs]


def fences(path: pathlib.Path) -> Iterator[Fence]:
    """Yield the code fences of a document, in order."""
    opening, start, content = None, 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if opening is None:
            if match:
                opening, start, content = match, number, []
        elif match and not match["info"].strip() and match["mark"].startswith(opening["mark"]):
            code = textwrap.dedent("\n".join(content)) + "\n"
            yield Fence(path, start, tuple(opening["info"].split()), code)
            opening = None
        else:
            content.append(line)
    if opening is not None:
        raise ValueError(f"{path}:{start}: the code fence is never closed")


def prose(path: pathlib.Path) -> str:
    """Return the text of a document without its code fences."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for fence in fences(path):
        end = fence.line + fence.code.count("\n") + 1
        lines[fence.line - 1 : end] = [""] * (end - fence.line + 1)
    return "\n".join(lines)


def programs(path: pathlib.Path) -> Iterator[Program]:
    """Yield the Python fences of a document, in order."""
    for fence in fences(path):
        language = fence.info[0] if fence.info else ""
        if language in _OTHER_NAMES_OF_PYTHON:
            raise ValueError(f"{fence}: write `python` instead of `{language}`, or the program is not tested")
        if language == "python":
            yield _understand(fence)


def _understand(fence: Fence) -> Program:
    """Read the words of a Python fence; a misspelt word is an error, for it would weaken the test."""
    devices, env, fails, fragment, needs = 1, [], None, False, []
    for word in fence.info[1:]:
        key, _, value = word.partition("=")
        if key == "devices" and value.isdecimal():
            devices = int(value)
        elif key == "env" and "=" in value:
            name, _, setting = value.partition("=")
            env.append((name, setting))
        elif key == "fails" and re.fullmatch(r"PX\d{3}", value):
            fails = value
        elif word == "alone":
            pass
        elif key == "needs" and value.isidentifier():
            needs.append(value)
        elif word == "fragment":
            fragment = True
        else:
            raise ValueError(f"{fence}: cannot understand {word!r}")
    return Program(fence, devices, tuple(env), fails, fragment, tuple(needs))


def run(program: Program, limit_s: float = 120) -> Outcome:
    """Run a program in a process of its own, as its reader would run it."""
    # What the caller has set for JAX, XLA and peerax is not what the reader has.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PEERAX_"))
    }
    environment["JAX_PLATFORMS"] = "cpu"
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={program.devices}"
    environment.update(program.env)
    with tempfile.TemporaryDirectory() as directory:
        # A file, and not `python -c`, so that reports can name and show lines of the program.
        path = pathlib.Path(directory, f"{program.fence.path.stem}_line_{program.fence.line}.py")
        path.write_text(program.fence.code, encoding="utf-8")
        start = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                cwd=directory,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired as expired:
            return Outcome(None, _text(expired.stdout), _text(expired.stderr), time.monotonic() - start)
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def _text(output: bytes | str | None) -> str:
    """Return captured output as text; what a time limit leaves may be bytes or None."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
