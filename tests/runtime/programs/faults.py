"""Programs that go wrong, and what this process sees of it: prints it as one JSON object, for test_faults.py."""

import json
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import peerax
from peerax.runtime import extension
from tests.ops import test_errors_at_run_time as found_at_once
from tests.ops.ranks import chain, on_ranks, pair, ring

X = jnp.arange(4 * 16_384.0)  # 64 KiB on each rank, so that a message that leaks is seen
WARM, TIMES = 20, 100


def ring_of_separate_sends(x):
    peerax.psend(x, "x", ring(4))  # SEND
    return peerax.precv(peerax.create_token(), x, "x", ring(4))  # RECEIVE


def other_trip_counts(x):
    """Rank 1 goes round once more than the others."""

    def step(_, x):
        peerax.psend(x, "x", chain(4))  # SEND
        return peerax.precv(peerax.create_token(), x, "x", chain(4))  # RECEIVE

    return lax.fori_loop(0, jnp.where(lax.axis_index("x") == 1, 3, 2), step, x)


def branch_by_data(x):
    """Only rank 0 has an element below 1, and so no part in the exchange."""

    def exchange(x):
        token = peerax.psend(x, "x", ring(4))  # SEND
        return peerax.precv(token, x, "x", ring(4))  # RECEIVE

    return lax.cond(jnp.min(x) < 1, lambda x: x, exchange, x)


def raises_before_its_send(x):
    def callback(rank, x):
        if rank == 2:
            raise ValueError("the data of rank 2 is bad")
        return x

    y = pair(x, "x", ring(4))
    y = jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), y)
    peerax.psend(y, "x", chain(4))
    return peerax.precv(peerax.create_token(), x, "x", chain(4))  # AWAITED


def one_sleeps(x):
    """Rank 1 has done the first exchange, and is late for the second one."""

    def callback(rank, x):
        if rank == 1:
            time.sleep(20)
        return x

    token = peerax.psend(x, "x", ring(4))  # FIRST
    y = peerax.precv(token, x, "x", ring(4))
    y = jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), y)
    return peerax.precv(peerax.psend(y, "x", ring(4)), y, "x", ring(4))  # SECOND


def body_named(name):
    return globals().get(name) or getattr(found_at_once, name)


def check_the_next():
    np.testing.assert_array_equal(NEXT(X), np.roll(X, X.size // 4))


def failure(program):
    """Return what the call raises, and after how long."""
    start = time.monotonic()
    try:
        jax.block_until_ready(program(X))
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        return {"class": type(error).__name__, "text": text, "after_s": time.monotonic() - start}
    raise AssertionError("no error was raised")


def threads():
    """Return how many threads this process has, without those that wait a few seconds for more to do."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    of_python = sum(not isinstance(each, threading._DummyThread) for each in threading.enumerate())
    return int(fields["Threads"]) - extension().resume_threads(), of_python


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def fail_often(name, warm=WARM, times=TIMES):
    program = on_ranks(body_named(name))
    first = failure(program)
    check_the_next()
    for _ in range(warm):
        failure(program)
    before, before_mib = threads(), resident_mib()
    later = [failure(program) for _ in range(times)] or [first]
    check_the_next()
    wait_for_ends()
    print(
        json.dumps(
            {
                **first,
                "after_s": sorted(each["after_s"] for each in later)[len(later) // 2],
                "more_threads": [now - then for now, then in zip(threads(), before, strict=True)],
                "resume_threads": extension().resume_threads(),
                "more_mib": resident_mib() - before_mib,
                "same": all(each["class"] == first["class"] for each in later),
            }
        )
    )


def wait_for_ends(limit_s=5.0):
    until_s = time.monotonic() + limit_s
    while extension().open_sessions() or extension().buffered_bytes():
        assert time.monotonic() < until_s, (extension().open_sessions(), extension().buffered_bytes())
        time.sleep(0.01)


NEXT = on_ranks(lambda x: pair(x, "x", ring(4)))
