"""What `peerax run` makes of the environment, and the line that it prints at the end."""

import pytest

from peerax.cli._environment import set_environment, with_device_count
from peerax.cli._summary import summary

FLAG = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    "before, after",
    [
        ("", f"{FLAG}=4"),
        ("--xla_a=1 --xla_b='x y'", f"--xla_a=1 --xla_b='x y' {FLAG}=4"),
        (f"--xla_a=1 {FLAG}=8 --xla_b=2", f"--xla_a=1 --xla_b=2 {FLAG}=4"),
        (f"{FLAG}=8", f"{FLAG}=4"),
        (f"{FLAG}=8 {FLAG}=2", f"{FLAG}=4"),
    ],
)
def test_device_count_replaces_its_flag_only(before, after):
    assert with_device_count(before, 4) == after


def test_flags_may_be_in_a_file(tmp_path):
    file = tmp_path / "flags"
    file.write_text(f"--xla_a=1\n{FLAG}=8\n")
    assert with_device_count(str(file), 4) == f"--xla_a=1 {FLAG}=4"


def test_only_what_is_asked_for_is_set():
    environment = {"XLA_FLAGS": f"{FLAG}=8", "OTHER": "1"}
    set_environment(environment, devices=None, timeout_s=None, send=None)
    assert environment == {"XLA_FLAGS": f"{FLAG}=8", "OTHER": "1"}
    set_environment(environment, devices=None, timeout_s="5", send="rendezvous")
    assert environment["PEERAX_TIMEOUT_S"] == "5" and environment["PEERAX_SEND"] == "rendezvous"
    assert environment["XLA_FLAGS"] == f"{FLAG}=8" and "JAX_PLATFORMS" not in environment


@pytest.mark.parametrize("before, after", [(None, "cpu"), ("", "cpu"), ("cuda,cpu", "cuda,cpu")])
def test_platform_is_cpu_unless_it_is_set(before, after):
    environment = {} if before is None else {"JAX_PLATFORMS": before}
    set_environment(environment, devices=2, timeout_s=None, send=None)
    assert environment == {"JAX_PLATFORMS": after, "XLA_FLAGS": f"{FLAG}=2"}


def test_the_variable_that_jax_prefers_is_set_too():
    environment = {"JAX_NUM_CPU_DEVICES": "1"}
    set_environment(environment, devices=2, timeout_s=None, send=None)
    assert environment["JAX_NUM_CPU_DEVICES"] == "2"


def totals(**changes):
    all_of_them = {"ranks": 4, "messages": 55, "bytes": 450560, "failed_runs": 0}
    return {**all_of_them, "longest_wait_s": 0.00025, "longest_wait_site": "a.py:49", **changes}


@pytest.mark.parametrize(
    "changes, line",
    [
        ({}, "4 ranks, 55 messages, 440.0 KiB, longest wait 0.25 ms at a.py:49"),
        ({"messages": 0, "bytes": 0}, "no messages"),
        ({"messages": 0, "bytes": 0, "failed_runs": 1}, "no messages, 1 run failed"),
        (
            {"ranks": 1, "messages": 1, "bytes": 1, "longest_wait_site": "", "longest_wait_s": 0.0},
            "1 rank, 1 message, 1 byte, nobody waited",
        ),
        (
            {"messages": 12345, "bytes": 5 * 2**30, "longest_wait_s": 1.5, "failed_runs": 2},
            "4 ranks, 12,345 messages, 5.0 GiB, longest wait 1.50 s at a.py:49, 2 runs failed",
        ),
        ({"bytes": 1023}, "4 ranks, 55 messages, 1,023 bytes, longest wait 0.25 ms at a.py:49"),
        ({"bytes": 2000 * 2**40}, "4 ranks, 55 messages, 2000.0 TiB, longest wait 0.25 ms at a.py:49"),
    ],
)
def test_summary(changes, line):
    assert summary(totals(**changes)) == line
