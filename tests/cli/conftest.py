"""Run the command line in a process of its own, as its user would."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.programs import PRELUDE


def _of_the_user(name):
    """Whether a variable of the tests' environment is one that a user has too."""
    return not name.startswith(("JAX_", "XLA_", "PEERAX_"))


@pytest.fixture
def python(tmp_path):
    """Return a function that runs Python with some words, in a directory that holds some files.

    python(*words, files={name: text}, env={name: value}) -> subprocess.CompletedProcess with text.
    """

    def run(*words, files=None, env=None, timeout_s=60):
        for name, text in (files or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        environment = {name: value for name, value in os.environ.items() if _of_the_user(name)}
        return subprocess.run(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**environment, **(env or {})},
            cwd=tmp_path,
            timeout=timeout_s,
        )

    return run


@pytest.fixture
def peerax(python):
    """Return a function that runs `peerax` with some words; the rest is that of the fixture `python`."""
    return lambda *words, **rest: python("-m", "peerax", *words, **rest)


@pytest.fixture
def run_program(peerax):
    """Return a function that runs `peerax run program.py` with some words, where the program is a text."""

    def run(text, *words, env=None):
        return peerax("run", "program.py", *words, files={"program.py": text}, env=env)

    return run


@pytest.fixture
def check(peerax):
    """Return a function that runs `peerax check program.py` with some words, where the program is a text."""

    def run(text, *words, **rest):
        files = {"program.py": PRELUDE + text, **rest.pop("files", {})}
        return peerax("check", "program.py", "--devices", "4", *words, files=files, **rest)

    return run


@pytest.fixture
def check_json(check):
    """Return a function that does that with --json, and returns the programs and the summary."""

    def run(text, *words, **rest):
        done = check(text, "--json", *words, **rest)
        *programs, summary = map(json.loads, done.stdout.splitlines())
        assert [record["kind"] for record in [*programs, summary]] == ["program"] * len(programs) + ["summary"]
        assert summary["exit_code"] == done.returncode, done.stderr
        return programs, summary

    return run


@pytest.fixture
def sitecustomize(tmp_path):
    """Return a function that makes an environment in which Python runs a text when it starts."""

    def make(text):
        directory = tmp_path / "site"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(text)
        path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(path)}

    return make
