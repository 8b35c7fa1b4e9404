"""Nothing grows over many runs, good ones and failing ones, and threads go away."""

import time

import jax
from rig import (
    RANKS,
    check_nothing_left,
    check_shifted,
    exchange,
    failure,
    lone_receive,
    lone_send,
    numbers,
    on_ranks,
    receive,
    resident_mib,
    send,
    shifted,
)

from peerax.runtime import extension, statistics

RUNS, FAILING_RUNS = 1_000, 300
TOLERANCE_MIB = 16
KIB = 128  # of a message; one that leaks in each run would make 125 MiB, or 37 in the failing ones


@on_ranks
def run(x):
    send(x)
    return exchange(x) + receive(x)


def good(runs):
    for _ in range(runs):
        jax.block_until_ready(run(x))


def bad(runs):
    for i in range(runs):
        program, code = (lone_receive, "PX202") if i % 2 else (lone_send, "PX201")
        assert code in failure(lambda program=program: program(x))


x = numbers(RANKS, KIB * 256)
good(100)
bad(30)
check_nothing_left()
most_threads, before_mib = 0, resident_mib()
for _ in range(RUNS // 100):
    good(100)
    most_threads = max(most_threads, extension().resume_threads())
check_nothing_left()
after_good_mib = resident_mib()
for _ in range(FAILING_RUNS // 30):
    bad(30)
    most_threads = max(most_threads, extension().resume_threads())
check_nothing_left()
after_bad_mib = resident_mib()
print(f"{before_mib:.0f} MiB, then {after_good_mib:.0f}, and {after_bad_mib:.0f} after the failing runs")
print(f"at most {most_threads} resume threads")
assert after_good_mib - before_mib < TOLERANCE_MIB, (before_mib, after_good_mib)
assert after_bad_mib - after_good_mib < TOLERANCE_MIB, (after_good_mib, after_bad_mib)
assert most_threads <= 4 * RANKS, most_threads
check_shifted(x, shifted(x))

totals = statistics()
assert totals["runs"] == 100 + 30 + RUNS + FAILING_RUNS + 1, totals
assert totals["failed_runs"] == 30 + FAILING_RUNS, totals

end = time.monotonic() + 15  # an idle thread ends after 5 s
while extension().resume_threads():
    assert time.monotonic() < end, extension().resume_threads()
    time.sleep(0.1)
check_shifted(x, shifted(x))
