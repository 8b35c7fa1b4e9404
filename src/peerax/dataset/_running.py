"""Run the program that a record publishes as its fix, in a process of its own, with a limit."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_FENCE = re.compile(r"```(?:python|py)?[^\n]*\n(.*?)```", re.DOTALL)
_AFTER = re.compile(r"^\s*(?:#|//)\s*(?:after|fixed|good|correct)\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
_BEFORE = re.compile(r"^\s*(?:#|//)\s*(?:before|broken|bad|wrong)\b[^\n]*$", re.IGNORECASE | re.MULTILINE)


def program_of(text: str) -> str:
    """Return the program in a fix: of several blocks of code the last, and of before and after the latter."""
    if blocks := _FENCE.findall(text):
        text = blocks[-1]
    if _BEFORE.search(text) and (after := list(_AFTER.finditer(text))):
        text = text[after[-1].end() :]
    return text


def run_fix(text: str, *, devices: int, limit_s: float) -> str | None:
    """Run a fix, and return why it does not run, or None."""
    code = program_of(text)
    try:
        compile(code, "fix.py", "exec")
    except (SyntaxError, ValueError) as error:
        return f"its fix is not a Python program: {error}"
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "fix.py").write_text(code, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "fix.py"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(devices),
            cwd=directory,
            start_new_session=True,  # so that what it starts ends with it
        )
        try:
            _, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"its fix is not done after {limit_s:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return None
    return f"its fix fails: {_last_line(stderr) or _ending(process.returncode)}"


def _environment(devices: int) -> dict[str, str]:
    # What the caller has set for JAX, XLA and peerax is not what a reader has.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PEERAX_"))}
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}


def _last_line(stderr: str) -> str:
    """Return the line that says what went wrong: the last exception, without the note that JAX puts below it."""
    heads = re.findall(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::[^\n]*)?$", stderr, re.MULTILINE)
    lines = heads or [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""


def _ending(returncode: int) -> str:
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
