"""Heavy use, each program in a process of its own; programs/ holds them, and says what they check."""

import os
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def run_program(run_python):
    """Return a function that runs one of the programs and fails the test unless it succeeds."""

    def run(name, *, env=None, **options):
        path = os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH")]))
        code = (PROGRAMS / f"{name}.py").read_text()
        done = run_python(code, env={"PYTHONPATH": path, **(env or {})}, **options)
        print(done.stdout)
        assert done.returncode == 0, done.stderr[-6000:]

    return run


def available_gib():
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) / 2**20


def test_32_ranks_on_few_cores(run_program):
    run_program("many_ranks", devices=32)


def test_10_000_iterations(run_program):
    run_program("long_scan")


@pytest.mark.parametrize("send", ["buffered", "rendezvous"])
def test_1_000_dispatches(run_program, send):
    run_program("dispatches", devices=8, env={"PEERAX_SEND": send})


def test_messages_stay_in_their_run_when_threads_dispatch(run_program):
    run_program("threads")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to see how much memory is free")
def test_1_gib_message(run_program):
    if available_gib() < 8:
        pytest.skip(f"needs 8 GiB of memory, and {available_gib():.1f} GiB are free")
    run_program("large_message", devices=2, timeout_s=150)


@pytest.mark.parametrize("send", ["buffered", "rendezvous"])
def test_donated_arguments(run_program, send):
    run_program("donated", env={"PEERAX_SEND": send})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to see how much memory is used")
def test_memory_and_threads_do_not_grow(run_program):
    run_program("memory")


def test_many_independent_operations(run_program):
    run_program("many_operations", devices=8)


def test_repetitions_have_the_same_bits(run_program):
    run_program("repetitions")


@pytest.mark.parametrize("send", ["buffered", "rendezvous"])
def test_pipeline_100_times(run_program, send):
    run_program("pipeline", env={"PEERAX_SEND": send})
