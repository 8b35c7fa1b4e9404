"""The benchmarks run, and say where they ran, wherever that is."""

import gc
import importlib.util
import itertools
import platform
import subprocess
import sys

import pytest

from tests.documents import ROOT


@pytest.fixture
def exchange():
    spec = importlib.util.spec_from_file_location("exchange", ROOT / "benchmarks" / "exchange.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_environment_is_named_and_no_file_stays_open(exchange):
    text = exchange.environment()
    gc.collect()  # what would complain of a file does so here
    assert platform.machine() in text and f"Python {platform.python_version()}, jax" in text


@pytest.mark.parametrize("text", [None, "", "processor\t: 0\n", "model name\t: A: B 2\nmodel name\t: A: B 2\n"])
def test_the_name_of_the_processor(exchange, text, tmp_path, monkeypatch):
    """Other systems have no such file, and not every Linux names the processor there."""
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(platform, "processor", lambda: "what Python knows")
    assert exchange.processor(str(file)) == ("A: B 2" if text and "model" in text else "what Python knows")


def test_the_time_until_a_program_runs():
    """As few steps as possible; the programs compare their results."""
    command = [sys.executable, ROOT / "benchmarks" / "compile_time.py", "--ranks", "2", "--steps", "2", "--repeat", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert f"Python {platform.python_version()}, jax" in printed
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "pipeline"]
    pipelines = ("scanned", "scanned, gradient", "unrolled", "unrolled, gradient")
    phases = ("trace", "lower", "compile", "all")
    assert [tuple(row[:2]) for row in rows] == [*itertools.product(pipelines, phases)]
    for *_, ours, theirs, ratio in rows:
        assert float(ratio) == pytest.approx(float(ours) / float(theirs), rel=0.1)


@pytest.mark.parametrize(
    ("name", "needs", "row"),
    [("pipeline", "jax", "| zb-h1 | activations | 27 |"), ("pipeline_torch", "torch", "| 8 |")],
)
def test_pipelines_are_measured(name, needs, row):
    """Of a small one; losses and gradients are compared before anything is timed."""
    pytest.importorskip(needs)
    script = str(ROOT / "benchmarks" / f"{name}.py")
    done = subprocess.run([sys.executable, script, "--quick"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert row in done.stdout
