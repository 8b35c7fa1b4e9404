"""Nothing hangs silently: what goes wrong, what the caller gets and how soon, and that the process goes on unharmed.

Each program runs in a process of its own. tests/ops/test_errors_at_run_time.py has more mistakes that are found at
once, and tests/ops/test_limits_at_run_time.py has more about limits.
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import sys
from dataclasses import dataclass

import pytest

from tests.ops import test_errors_at_run_time as found_at_once
from tests.ranks import site
from tests.runtime.programs import faults

ROOT = pathlib.Path(__file__).parents[2]
SOON_S = 1.0
TOLERANCE_MIB = 3  # 100 failures; one that keeps a message of 64 KiB would take 6

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to see what is left over")


@dataclass(frozen=True)
class Row:
    body: object
    code: str
    marks: tuple[str, ...]  # comments at the lines that the report names
    evidence: str
    send: str = "buffered"


ROWS = [
    Row(found_at_once.lone_receive, "PX202: ", ("RECEIVE",), "from rank 0, which finished without sending it"),
    Row(found_at_once.lone_send, "PX201: ", ("SEND",), "rank 2 sent float32[16384] to rank 3"),
    Row(
        found_at_once.lone_send,
        "PX201: ",
        ("SEND",),
        "until rank 3 receives float32[16384], which",
        "rendezvous",
    ),
    Row(found_at_once.one_send_too_many, "PX303: ", ("SEND", "LAST"), "it had received 2 messages before"),
    Row(found_at_once.receives_first, "PX302: ", ("RECEIVE",), "rank 0 waits in precv"),
    Row(faults.ring_of_separate_sends, "PX302: ", ("SEND",), "rank 3 waits in psend", "rendezvous"),
    Row(
        faults.other_trip_counts,
        "PX202: ",
        ("SEND", "RECEIVE"),
        "time 3) for float32[16384] from rank 0, which",
    ),
    Row(faults.branch_by_data, "PX202: ", ("SEND", "RECEIVE"), "from rank 0, which finished without sending it"),
    Row(found_at_once.other_shape, "PX304: ", ("SEND", "RECEIVE"), "which expected float32[3]"),
    Row(found_at_once.other_dtype, "PX304: ", ("SEND", "RECEIVE"), "which expected int32[16384]"),
    Row(found_at_once.crossed_tags, "PX205: ", ("SEND", "RECEIVE"), "tag 2"),
    Row(found_at_once.psum_in_some_ranks, "PX209: ", ("PSUM",), "for ranks 2-3, which finished without joining it"),
]


def with_the_tests():
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))


@pytest.fixture
def run_program(run_python):
    """Return a function that runs code that may import the tests, and returns what it printed last, from JSON."""

    def run(code, **env):
        done = run_python(code, env={"PYTHONPATH": with_the_tests(), "PEERAX_TIMEOUT_S": "20", **env}, timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def fail_often(run_program, body, counts="", **env):
    return run_program(
        f"from tests.runtime.programs import faults\nfaults.fail_often({body.__name__!r}{counts})", **env
    )


def check_nothing_grew(seen):
    assert seen["same"], seen
    # A thread that waits for the next run may be there once more; one for each failure would be many.
    assert max(seen["more_threads"]) <= 2 and seen["resume_threads"] <= 16, seen
    assert seen["more_mib"] < TOLERANCE_MIB, seen


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.body.__name__}-{row.send}")
def test_found_at_once(run_program, row):
    seen = fail_often(run_program, row.body, PEERAX_SEND=row.send)
    assert seen["class"] == "JaxRuntimeError" and row.code in seen["text"], seen
    for mark in row.marks:
        assert site(row.body, mark) in seen["text"], seen
    assert row.evidence in seen["text"], seen
    assert seen["after_s"] < SOON_S, seen
    check_nothing_grew(seen)


def check_raises(run_program):
    seen = fail_often(run_program, faults.raises_before_its_send, ", warm=1, times=1", PEERAX_TIMEOUT_S="inf")
    assert seen["class"] == "JaxRuntimeError" and "ValueError: the data of rank 2 is bad" in seen["text"], seen
    # In a note.
    waits = f"{site(faults.raises_before_its_send, 'AWAITED')}) for float32[16384] from rank 2"
    assert "rank 2: computes, after psend (" in seen["text"] and waits in seen["text"], seen
    assert seen["after_s"] < SOON_S + 1, seen  # the others wait at their ends for one that may be late
    check_nothing_grew(seen)


def check_late(run_program):
    seen = fail_often(run_program, faults.one_sleeps, ", warm=0, times=0", PEERAX_TIMEOUT_S="5")
    assert "PX301: " in seen["text"] and site(faults.one_sleeps, "SECOND") in seen["text"], seen
    assert "rank 1: computes, after psend (" in seen["text"], seen
    assert site(faults.one_sleeps, "FIRST") in seen["text"], seen
    assert 5 < seen["after_s"] < 5 + 10, seen


def check_slow(run_program):
    assert 20 < run_program(SLOW, PEERAX_TIMEOUT_S="60") < 50


SLOW = """
import time
import jax, numpy as np
from tests.ops.ranks import on_ranks
from tests.runtime.programs.faults import X, one_sleeps

start = time.monotonic()
np.testing.assert_array_equal(on_ranks(one_sleeps)(X), np.roll(X, X.size // 2))
print(time.monotonic() - start)
"""


def check_given_up(run_python):
    """A run that is given up fails no other.

    Its ranks come back from their callbacks, and into more of its bodies, while others run, and when Python ends.
    """
    code = (
        START
        + """
def body(x):
    return peerax.precv(peerax.psend(slow(x), "x", ring(4)), x, "x", ring(4))

limit_s, comes_back = 60, threading.Event()

def slow(x):
    callback = lambda rank, x: (rank == 1 and comes_back.wait(limit_s), x)[1]
    return jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), x)

in_loop = jax.shard_map(body, mesh=line(4), in_specs=P("x"), out_specs=P("x"), check_vma=False)
seen = failure(jax.jit(lambda x: lax.fori_loop(0, 2, lambda _, x: in_loop(x), x)))
assert "PX301: " in seen["text"] and seen["after_s"] < 30, seen
threading.Timer(3, comes_back.set).start()
check_the_next()  # waits for rank 1, and says so
until_s = time.monotonic() + 2
while time.monotonic() < until_s:
    check_the_next()
assert "PX202: " in failure(lone)["text"]
check_the_next()
limit_s = 3.5
comes_back.clear()
on_its_way_out = on_ranks(body)
print(failure(on_its_way_out)["text"][:15])
"""
    )
    done = run_python(code, env={"PYTHONPATH": with_the_tests(), "PEERAX_TIMEOUT_S": "0.5"})
    assert (done.returncode, done.stdout) == (0, "ABORTED: PX301:\n"), done.stderr[-3000:]
    assert "RuntimeWarning: a run that failed or was interrupted is still computing" in done.stderr


START = """
import json, os, signal, threading, time, warnings
import jax, jax.numpy as jnp, numpy as np
import peerax
from jax import lax
from jax.sharding import PartitionSpec as P
from tests.ops.ranks import line, on_ranks, pair, ring
from tests.ops.test_errors_at_run_time import lone_receive
from tests.runtime.programs.faults import X, check_the_next, failure, wait_for_ends

lone = on_ranks(lone_receive)
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell runs in the background
"""


def test_one_of_fifty_dispatches_fails(run_program):
    """What it gets decides it. Those before and after are right, and none was looked at before all were started."""
    code = """
def body(x):
    return lax.cond(jnp.min(x) == 25 * 1e6, lone_receive, lambda x: pair(x, "x", ring(4)), x)

program, results, failures = on_ranks(body), [], []
for call in range(50):
    try:
        results.append((call, program(X[::4] + call * 1e6)))
    except jax.errors.JaxRuntimeError as error:
        failures.append((call, str(error)))
for call, y in results:
    np.testing.assert_array_equal(y, np.roll(X[::4] + call * 1e6, X.size // 16))
wait_for_ends()
print(json.dumps([len(results), failures]))
"""
    right, failures = run_program(START + code)
    assert right == 49 and [call for call, _ in failures] == [25] and "PX202: " in failures[0][1]


def test_a_thousand_runs_after_a_failure(run_program):
    code = """
failure(lone)
program, y = on_ranks(lambda x: pair(x, "x", ring(4))), X
for _ in range(1_000):
    y = program(y)
np.testing.assert_array_equal(y, X)
wait_for_ends()
print(json.dumps(peerax.runtime.statistics()))
"""
    totals = run_program(START + code)
    assert (totals["runs"], totals["failed_runs"]) == (1_001, 1)


def check_ctrl_c(run_program):
    """It ends a call also while a rank is stuck and nothing has a limit."""
    code = """
stuck, awake = True, threading.Event()

def body(x):
    def callback(rank, x):
        if stuck and rank == 1:
            awake.wait()
        return x
    for _ in range(3):
        x = pair(jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), x), "x", ring(4))
    return x

program = on_ranks(body)
interrupted_s = []

def interrupt():
    interrupted_s.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Timer(2, interrupt).start()
try:
    program(X)
except KeyboardInterrupt:
    interrupted_s.append(time.monotonic())
stuck = False
awake.set()
check_the_next()
np.testing.assert_array_equal(program(X), np.roll(X, 3 * X.size // 4))
wait_for_ends()
print(interrupted_s[1] - interrupted_s[0])
"""
    assert run_program(START + code, PEERAX_TIMEOUT_S="inf") < 10


def check_end_of_process(run_python):
    """The process ends while a rank is stuck, after Ctrl-C, whether or not the rank ever comes back."""
    code = """
import os, signal, threading, time
import jax, jax.numpy as jnp
from jax import lax
from tests.ops.ranks import on_ranks, pair, ring

def body(x):
    y = jax.pure_callback(lambda rank, x: (time.sleep(600 * (rank == 1)), x)[1], jax.typeof(x), lax.axis_index("x"), x)
    return pair(y, "x", ring(4))

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell runs in the background
threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
on_ranks(body)(jnp.arange(8.0))
"""
    done = run_python(code, env={"PYTHONPATH": with_the_tests(), "PEERAX_TIMEOUT_S": "inf"}, timeout_s=20)
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr, done.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_the_script_ends_with_work_that_nobody_awaits(run_python, fails):
    code = (
        START
        + f"""
for _ in range(20):
    on_ranks(lambda x: pair(x, "x", ring(4)))(X)
if {fails}:
    try:
        lone(X)
    except jax.errors.JaxRuntimeError:
        pass
    on_ranks(lambda x: pair(x, "x", ring(4)))(X)
"""
    )
    done = run_python(code, env={"PYTHONPATH": with_the_tests()}, timeout_s=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def test_a_fork_that_runs_no_program_is_harmless(run_program):
    """JAX warns of any; a program in the child would wait for threads that it does not have (docs/sharp-bits.md)."""
    code = """
check_the_next()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    child = os.fork()
    if child == 0:
        os._exit(7)
_, status = os.waitpid(child, 0)
check_the_next()
print(json.dumps([os.waitstatus_to_exitcode(status), [str(each.message) for each in caught]]))
"""
    status, warned = run_program(START + code)
    assert status == 7 and any("os.fork() is incompatible with multithreaded code" in each for each in warned), warned


def test_what_takes_as_long_as_a_callback_or_a_limit(run_program, run_python):
    """All at once, since they do nothing but wait."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        checks = [pool.submit(check, run_program) for check in (check_raises, check_late, check_slow, check_ctrl_c)]
        checks += [pool.submit(check, run_python) for check in (check_given_up, check_end_of_process)]
        for check in checks:
            check.result()
