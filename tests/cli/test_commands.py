"""The command line as a whole: its commands, its version, and what it imports."""

import importlib.metadata
import subprocess
import sys

import pytest

from peerax.cli import main

COMMANDS = ("run", "check", "lint", "trace", "schedule", "doctor", "explain", "records")


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"peerax {importlib.metadata.version('peerax')}\n"


def test_no_command_shows_them(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and all(command in err for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"peerax {command}" in capsys.readouterr().out


def test_explain(capsys):
    assert main(["explain", "PX203"]) == 0
    assert capsys.readouterr().out.startswith("# PX203: shapes differ\n")


def test_installed_command_and_module_are_the_same():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="peerax")
    assert command.load() is main
    done = subprocess.run(
        [sys.executable, "-m", "peerax", "explain", "301"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout[:7]) == (0, "# PX301")


def test_nothing_heavy_is_imported_before_it_is_needed(run_python):
    program = """
import sys
import peerax.cli
heavy = {name.partition(".")[0] for name in sys.modules} & {"jax", "jaxlib", "numpy", "rich"}
assert not heavy, heavy
"""
    done = run_python(program, devices=None)
    assert (done.returncode, done.stderr) == (0, "")
