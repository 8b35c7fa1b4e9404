"""`peerax doctor`: what is here, whether it works, and what is not here and how to get it."""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from typing import Any, Literal, NamedTuple

from peerax.cli._environment import with_device_count
from peerax.diagnostics import PeeraxError
from peerax.runtime import Settings, read_settings

OLDEST_JAX = (0, 10, 1)
_LIMIT_S = 120


class Row(NamedTuple):
    """One line of the report; only "wrong" makes the exit code 1."""

    name: str
    text: str
    state: Literal["fine", "wrong", "absent", "plain"] = "plain"


Section = tuple[str, list[Row]]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `doctor` command."""
    parser = subparsers.add_parser(
        "doctor",
        help="show what is available here, and try it",
        description="Show versions, devices and settings, exchange arrays between two ranks, and say what is "
        "available and how to get the rest. The exit code is 0 if programs can run here.",
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the report, and return 1 if programs cannot run here, else 0."""
    sections = [versions(), this_machine(), settings(), availability()]
    _print(sections)
    return int(any(row.state == "wrong" for _, rows in sections for row in rows))


def versions() -> Section:
    """Return the versions of what peerax builds on."""
    oldest = ".".join(map(str, OLDEST_JAX))
    jax = _version("jax")
    if jax is None:
        jax_row = Row("jax", f'not installed; pip install "jax>={oldest}"', "wrong")
    elif _numbers(jax) < OLDEST_JAX:
        jax_row = Row("jax", f'{jax}, but peerax needs {oldest} or later; pip install -U "jax>={oldest}"', "wrong")
    else:
        jax_row = Row("jax", f"{jax} (supported: {oldest} or later)", "fine")
    return "versions", [
        Row("peerax", _version("peerax") or "runs from a source tree that is not installed"),
        Row("Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"),
        jax_row,
        Row("jaxlib", _version("jaxlib") or "not installed", "plain" if _version("jaxlib") else "wrong"),
    ]


def this_machine() -> Section:
    """Return what the probes find: devices, the extension, and an exchange of two ranks on the CPU."""
    devices = _probe("devices", dict(os.environ))
    if "devices" in devices:
        devices_row = Row("devices", f"{devices['devices']} of platform {devices['platform']}, with these settings")
    else:
        devices_row = Row("devices", devices["error"], "wrong")
    return "this machine", [devices_row, *_try_exchange()]


def _try_exchange() -> list[Row]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    environment["XLA_FLAGS"] = with_device_count(environment.get("XLA_FLAGS", ""), 2)
    found = _probe("exchange", environment)
    if "targets" not in found:
        not_tried = Row("exchange", "not tried, because the extension does not load", "absent")
        return [Row("extension", found["error"], "wrong"), not_tried]
    extension = Row("extension", f"loads, and XLA knows its {found['targets']} handlers", "fine")
    if found.get("right_values"):
        text = f"two ranks on the CPU, {found['messages']} messages, values right"
        return [extension, Row("exchange", text, "fine")]
    return [
        extension,
        Row("exchange", found.get("error", "two ranks on the CPU, but the values are wrong"), "wrong"),
    ]


def settings() -> Section:
    """Return the settings that a program started here would have."""
    names = ("PEERAX_TIMEOUT_S", "PEERAX_SEND", "PEERAX_BUFFER_BYTES")
    try:
        values = _shown(read_settings())
        rows = [Row(name, values[name] + ("" if name in os.environ else " (default)")) for name in names]
    except PeeraxError as error:
        rows = [Row(name, os.environ.get(name, "default")) for name in names]
        rows.append(Row("", error.diagnostic.message, "wrong"))
    others = [name for name in ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS") if os.environ.get(name)]
    return "settings", [*rows, *(Row(name, os.environ[name]) for name in others)]


def _shown(read: Settings) -> dict[str, str]:
    return {
        "PEERAX_TIMEOUT_S": f"{read.timeout_s:g}",
        "PEERAX_SEND": "rendezvous" if read.rendezvous else "buffered",
        "PEERAX_BUFFER_BYTES": f"{read.buffer_bytes} ({read.buffer_bytes / 2**30:.1f} GiB)",
    }


def availability() -> Section:
    """Return where programs can run with this version, and what is missing for the rest."""
    missing = _probe("compilers", dict(os.environ))
    return "available", [
        Row("CPU, one process", "yes: peerax run --devices N script.py", "fine"),
        Row(
            "CPU, several processes",
            "not in this version (UCX is planned); use one process with more devices",
            "absent",
        ),
        Row(
            "GPU (CUDA, ROCm)",
            "not in this version; try the program on the CPU with peerax run --devices N",
            "absent",
        ),
        Row("TPU", "not in this version; try the program on the CPU with peerax run --devices N", "absent"),
        _compiler("CUDA", missing, "cuda", "h100:8"),
        _compiler("TPU", missing, "tpu", "v5e:2x4"),
    ]


def _compiler(shown: str, missing: dict[str, Any], platform: str, target: str) -> Row:
    name = f"compiler for {shown}"
    if platform not in missing:
        return Row(name, f"not known: {missing['error']}", "absent")
    if missing[platform] is None:
        return Row(name, f'installed: peerax.compile_for(..., target="{target}")')
    return Row(name, f"not installed; {missing[platform]} brings it", "absent")


def _probe(name: str, environment: dict[str, str]) -> dict[str, Any]:
    """Return what a probe finds; under "error" why it did not find everything, if so."""
    command = [sys.executable, "-m", "peerax.cli._probe", name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_LIMIT_S} s"}
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    if done.returncode != 0 or not found:
        last_words = done.stderr.strip().splitlines()[-3:]
        found.setdefault("error", "\n".join([f"ended with exit code {done.returncode}", *last_words]))
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as (0, 10, 2) of 0.10.2.dev20260101."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _print(sections: list[Section]) -> None:
    width = max(len(row.name) for _, rows in sections for row in rows)
    marks = {"fine": "ok", "wrong": "!!", "absent": "--", "plain": ""}
    lines = []
    for title, rows in sections:
        lines.append((title, None))
        for row in rows:
            first, *rest = row.text.splitlines() or [""]
            lines.append((f"  {marks[row.state]:2}  {row.name:{width}}  {first}", row.state))
            lines += [(f"      {'':{width}}  {line}", row.state) for line in rest]
        lines.append(("", "plain"))
    lines = lines[:-1]
    if not sys.stdout.isatty():
        print("\n".join(text for text, _ in lines))
        return
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.text import Text

    styles = {None: "bold", "fine": "green", "wrong": "red", "absent": "dim", "plain": ""}
    console = Console()
    for text, state in lines:
        console.print(Text(text, style=styles[state]), soft_wrap=True)
