"""Programs of 64 ranks that hang since one does not do its part; test_reports_of_many_ranks.py looks at the reports."""

import json
import time

import jax
import jax.numpy as jnp
from jax import lax

import peerax
from peerax.runtime import extension, load
from tests.ops.ranks import chain, on_ranks, pair, ring

SIZE = 64
X = jnp.arange(2.0 * SIZE)


def receive(like, perm):
    return peerax.precv(peerax.create_token(), like, "x", perm)  # LONE


def skips_a_send(x):
    """Rank 17 leaves out one of its sends, so that each rank beyond it lacks one message."""

    def step(x, t):
        skips = (lax.axis_index("x") == 17) & (t == 2)

        def send(x):
            peerax.psend(x, "x", chain(SIZE))
            return x

        x = lax.cond(skips, lambda x: x, send, x)
        return peerax.precv(peerax.create_token(), x, "x", chain(SIZE)), None  # RECEIVE

    return lax.scan(step, x, jnp.arange(4))[0]


def each_waits_for_the_one_before(x):
    """Rank 17 leaves out its only send, and nobody beyond it sends before it has received."""
    y = lax.cond(lax.axis_index("x") == 0, lambda x: x, lambda x: receive(x, chain(SIZE)), x)

    def send(y):
        peerax.psend(y, "x", chain(SIZE))
        return y

    return lax.cond(lax.axis_index("x") == 17, lambda y: y, send, y)


def never_joins(x):
    pair(x, "x", ring(SIZE))
    return lax.cond(lax.axis_index("x") == 40, lambda x: x, lambda x: x + lax.psum(x, "x"), x)  # SUM


def every_other_joins(x):
    pair(x, "x", ring(SIZE))
    return lax.cond(lax.axis_index("x") % 2 == 1, lambda x: x, lambda x: x + lax.psum(x, "x"), x)  # SUM


def ring_of_separate_sends(x):
    peerax.psend(x, "x", ring(SIZE))  # SEND
    return receive(x, ring(SIZE))


def one_computes(x):
    """Messages go down from rank 60, which computes for long, and each rank below waits for the one above it."""

    def callback(rank, x):
        if rank == 60:
            time.sleep(3)
        return x

    down = [(rank + 1, rank) for rank in range(60)]
    x = pair(x, "x", ring(SIZE))
    x = jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), x)
    y = x + receive(x, down)
    peerax.psend(y, "x", down)
    return y


def report(body, rendezvous=False, timeout_s=60.0):
    """Return the report of a run that fails."""
    extension().set_rendezvous(rendezvous)
    extension().set_timeout_s(timeout_s)
    try:
        jax.block_until_ready(on_ranks(body, SIZE)(X))
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition("\n------")[0]
    return "no error"


def print_reports():
    load()
    bodies = [skips_a_send, each_waits_for_the_one_before, never_joins, every_other_joins]
    reports = {body.__name__: report(body) for body in bodies}
    reports["ring_of_separate_sends"] = report(ring_of_separate_sends, rendezvous=True)
    reports["one_computes"] = report(one_computes, timeout_s=1.5)
    print(json.dumps(reports))
