"""Timelines to look at, made by simulation."""

from peerax.verifier import Collective, Cost, Exchange, Loop, Program, Recv, Send, simulate

TYPES = ("float32[1000]",)
COST = Cost(5e-5, 1e9, lambda rank, operation: 1e-3 if isinstance(operation, Send) else 0.0)


def line(ranks, microbatches, **options):
    """Microbatches that go down a line of ranks."""
    forward = tuple((i, i + 1) for i in range(ranks - 1))
    step = (Recv(forward, TYPES, ("pipe.py", 11)), Send(forward, TYPES, ("pipe.py", 12)))
    return simulate(Program.spmd(ranks, [Loop(microbatches, step, ("pipe.py", 10))]), COST, **options)


def ring_of_pairs(ranks=6):
    """Exchanges that go round, and a sum."""
    ring = tuple((i, (i + 1) % ranks) for i in range(ranks))
    exchange = Exchange(ring, TYPES, ("ring.py", 7), ("ring.py", 8), pair=0, tag=3)
    everyone = Collective("psum", (tuple(range(ranks)),), ("float32[]",), ("ring.py", 12))
    program = Program.spmd(ranks, [Loop(4, (exchange,), ("ring.py", 5)), everyone])
    return simulate(program, Cost(2e-6, 1e9, lambda rank, _: (1 + rank % 3) * 1e-4))


def deadlock(compute_s=1e-4):
    """Three ranks that send round, and one that has nothing to do with it."""
    ring = ((0, 1), (1, 2), (2, 0))
    everyone = Collective("psum", ((0, 1, 2, 3),), TYPES, ("dead.py", 3))
    program = Program.spmd(4, [everyone, Send(ring, TYPES, ("dead.py", 9)), Recv(ring, TYPES, ("dead.py", 10))])
    return simulate(program, Cost(1e-5 if compute_s else 0.0, compute_s=compute_s))
