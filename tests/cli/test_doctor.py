"""`peerax doctor`: what is here, whether it works, and the exit code that says so."""

import pytest

from peerax.cli import _doctor
from peerax.cli._doctor import Row


def test_report_of_a_machine_that_works(peerax):
    done = peerax("doctor", env={"PEERAX_SEND": "rendezvous", "JAX_PLATFORMS": "cpu"})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    out = done.stdout
    assert "\x1b" not in out and "!!" not in out
    sections = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert sections == ["versions", "this machine", "settings", "available"]
    rows = {line[6:].split("  ")[0]: line for line in out.splitlines() if line.startswith(" ")}
    assert rows["extension"].startswith("  ok") and "handlers" in rows["extension"]
    assert rows["exchange"].startswith("  ok") and "values right" in rows["exchange"]
    assert rows["devices"].endswith("1 of platform cpu, with these settings")
    assert rows["PEERAX_SEND"].endswith(" rendezvous")
    assert rows["PEERAX_TIMEOUT_S"].endswith(" 60 (default)")
    assert rows["CPU, one process"].startswith("  ok")
    for absent in ("CPU, several processes", "GPU (CUDA, ROCm)", "TPU"):
        assert rows[absent].startswith("  --") and "not in this version" in rows[absent]


def test_setting_that_is_not_valid(peerax):
    done = peerax("doctor", env={"PEERAX_TIMEOUT_S": "never", "JAX_PLATFORMS": "cpu"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "PX404: environment variable is not valid" in done.stdout
    assert "  --  exchange" in done.stdout


def test_process_that_dies_is_told(peerax):
    done = peerax("doctor", env={"XLA_FLAGS": "--no_such_flag", "JAX_PLATFORMS": "cpu"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "ended with exit code" in done.stdout and "--no_such_flag" in done.stdout


def test_extension_that_does_not_load(peerax, sitecustomize):
    env = sitecustomize("import sys\nsys.modules['peerax.runtime._extension'] = None\n")
    done = peerax("doctor", env={**env, "JAX_PLATFORMS": "cpu"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "  !!  extension" in done.stdout and "PX401: extension cannot load" in done.stdout


@pytest.mark.parametrize(
    "version, state",
    [("0.10.1", "fine"), ("0.10.2.dev20260101", "fine"), ("0.12.0.1", "fine"), ("1.0", "fine")]
    + [("0.10.0", "wrong"), ("0.9.9", "wrong"), (None, "wrong")],
)
def test_supported_versions_of_jax(monkeypatch, version, state):
    monkeypatch.setattr(_doctor, "_version", lambda name: version)
    _, rows = _doctor.versions()
    assert next(row for row in rows if row.name == "jax").state == state


@pytest.mark.parametrize(
    ("there", "cuda", "tpu"),
    [
        ([], '-- not installed; pip install "peerax[cuda13]" brings it', '-- not installed; pip install "peerax[tpu]"'),
        (["jax_rocm7_plugin", "jax_plugins.xla_rocm7"], "-- not installed", "-- not installed"),
        (["jax_cuda12_plugin", "libtpu"], 'installed: peerax.compile_for(..., target="h100:8")', "installed: "),
    ],
    ids=["none", "ROCm", "both"],
)
def test_a_compiler_is_there_if_compile_for_finds_it(peerax, sitecustomize, there, cuda, tpu):
    """Here by itself, so that its row is the same whatever is installed where the tests run."""
    pretend = f"""
import importlib.util

find = importlib.util.find_spec


def find_spec(name, package=None):
    if name in {there!r}:
        return object()
    return None if name.startswith(("libtpu", "jax_cuda", "jax_rocm", "jax_plugins")) else find(name, package)


importlib.util.find_spec = find_spec
"""
    done = peerax("doctor", env={**sitecustomize(pretend), "JAX_PLATFORMS": "cpu"})
    rows = {line[6:].split("  ")[0]: " ".join(line.split()) for line in done.stdout.splitlines()}
    assert rows["compiler for CUDA"].replace("compiler for CUDA ", "").startswith(cuda), done.stdout
    assert rows["compiler for TPU"].replace("compiler for TPU ", "").startswith(tpu), done.stdout


def test_compilers_are_not_known_without_jax(monkeypatch):
    monkeypatch.setattr(_doctor, "_probe", lambda name, environment: {"error": "No module named 'jax'"})
    _, rows = _doctor.availability()
    assert [row for row in rows if row.name.startswith("compiler")] == [
        Row(f"compiler for {name}", "not known: No module named 'jax'", "absent") for name in ("CUDA", "TPU")
    ]


def test_colours_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    sections = [("things", [Row("a", "[red]first[/]\nsecond", "wrong"), Row("long", "x", "fine")])]
    _doctor._print(sections)
    plain = "things\n  !!  a     [red]first[/]\n            second\n  ok  long  x\n"
    assert capsys.readouterr().out == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _doctor._print(sections)
    out = capsys.readouterr().out
    assert "\x1b[31m" in out and "[red]first[/]" in out
