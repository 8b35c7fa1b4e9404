"""How long the check of a program takes.

    python benchmarks/verifier.py [--large] [--quick]

Prints a Markdown table. 1F1B is a table-driven scan: in each tick tables say what a rank receives and sends.
--large adds 1,024 ranks x 4,096 microbatches.
"""

import argparse
import resource
import subprocess
import sys
import time

from peerax.verifier import Branch, Loop, Program, Recv, Send, Table, check_program

TYPES = ("float32[8,128]",)


def one_f_one_b(ranks: int, microbatches: int) -> Program:
    """One forward and one backward in turn. After each tick activations move on, then gradients move back."""
    forward = tuple((i, i + 1) for i in range(ranks - 1))
    backward = tuple((b, a) for a, b in forward)
    ticks = 2 * (microbatches + ranks - 1)
    # What each rank sends in each tick, with nothing beyond both ends of the line.
    activations, gradients = ([bytearray(ticks) for _ in range(ranks + 2)] for _ in range(2))
    for rank in range(ranks):
        for microbatch in range(microbatches):
            warm_up = microbatch < ranks - 1 - rank
            activations[rank][rank + microbatch if warm_up else rank + 2 * microbatch] = rank < ranks - 1
            gradients[rank][2 * ranks - 1 - rank + 2 * microbatch] = rank > 0
    sends = [[tuple(row) for row in table] for table in (activations, gradients)]

    def step(table, kind, perm, tag, line):
        return Branch(Table(table), ((), (kind(perm, TYPES, ("pipeline.py", line), tag=tag),)), ("pipeline.py", line))

    bodies = []
    for rank in range(ranks):
        body = (
            step(sends[0][rank], Send, forward, 0, 11),
            step(sends[0][rank - 1], Recv, forward, 0, 12),
            step(sends[1][rank], Send, backward, 1, 13),
            step(sends[1][rank + 1], Recv, backward, 1, 14),
        )
        bodies.append((Loop(ticks, body, ("pipeline.py", 10)),))
    return Program.of(bodies)


def ring_of_phases(ranks: int, phases: int) -> Program:
    """A straight line of operations: even edges, then odd edges, again and again, each with a line of its own."""
    edges = tuple((i, (i + 1) % ranks) for i in range(ranks))
    halves = edges[::2], edges[1::2]
    body = []
    for phase in range(phases):
        perm = halves[phase % 2]
        body += [Send(perm, TYPES, ("line.py", 2 * phase)), Recv(perm, TYPES, ("line.py", 2 * phase + 1))]
    return Program.spmd(ranks, body)


def long_scan(ranks: int, trips: int) -> Program:
    """A scan whose body sends along a line and back."""
    forward = tuple((i, i + 1) for i in range(ranks - 1))
    backward = tuple((b, a) for a, b in forward)
    body = tuple(
        kind(perm, TYPES, ("scan.py", line))
        for line, (kind, perm) in enumerate([(Send, forward), (Recv, forward), (Send, backward), (Recv, backward)])
    )
    return Program.spmd(ranks, [Loop(trips, body, ("scan.py", 9))])


CASES = {
    "1F1B, 64 ranks x 256 microbatches": (one_f_one_b, 64, 256, 4 * 63 * 256),
    "1F1B, 256 x 256": (one_f_one_b, 256, 256, 4 * 255 * 256),
    "1F1B, 256 x 512": (one_f_one_b, 256, 512, 4 * 255 * 512),
    "1F1B, 256 x 1,024": (one_f_one_b, 256, 1024, 4 * 255 * 1024),
    "straight line, 100,000 operations on 8 ranks": (ring_of_phases, 8, 50_000, 100_000),
    "scan of 1,000,000,000 steps, 256 ranks": (long_scan, 256, 10**9, 4 * 255 * 10**9),
}
LARGE = {"1F1B, 1,024 x 4,096": (one_f_one_b, 1024, 4096, 4 * 1023 * 4096)}


def measure(name: str) -> None:
    make, *sizes, operations = (CASES | LARGE)[name]
    begin = time.perf_counter()
    program = make(*sizes)
    made = time.perf_counter()
    report = check_program(program)
    seconds = time.perf_counter() - made
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {name} | {operations:,} | {made - begin:.2f} | {seconds:.2f} | {memory_mib:.0f} | {report.verdict} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the first case only")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return measure(options.child)
    print("| program | operations | making it, s | checking it, s | memory, MiB | verdict |")
    print("|---|---:|---:|---:|---:|---|", flush=True)
    for name in list(CASES)[:1] if options.quick else [*CASES, *(LARGE if options.large else ())]:
        subprocess.run([sys.executable, __file__, "--child", name], check=True)


if __name__ == "__main__":
    main()
