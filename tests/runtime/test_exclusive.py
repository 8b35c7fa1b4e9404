"""One communicating program at a time: whose run it is, and how it ends when a callback ends a rank."""

import contextlib
import sys
import time

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from peerax._jax._execution import _ExclusiveExecution
from tests.ops.ranks import on_ranks, pair, ring

X = jnp.arange(8.0)


def test_a_run_that_ends_leaves_the_next_one_alone(monkeypatch):
    """Another thread may begin as soon as this one has let go, before the call returns here."""
    enter, others = _ExclusiveExecution.enter, object()

    @contextlib.contextmanager
    def enter_and_hand_on():
        with enter() as run:
            yield run
        _ExclusiveExecution.current = others

    monkeypatch.setattr(_ExclusiveExecution, "current", None)
    monkeypatch.setattr(_ExclusiveExecution, "enter", staticmethod(enter_and_hand_on))
    on_ranks(lambda x: pair(x, "x", ring(4)))(X)
    assert _ExclusiveExecution.current is others


def test_a_callback_that_exits_releases_the_others(monkeypatch):
    monkeypatch.setenv("PEERAX_TIMEOUT_S", "20")

    def callback(rank, x):
        if rank == 2:
            sys.exit(3)
        return x

    def body(x):
        return pair(jax.pure_callback(callback, jax.typeof(x), lax.axis_index("x"), x), "x", ring(4))

    start = time.monotonic()
    with pytest.raises(jax.errors.JaxRuntimeError, match="SystemExit: 3"):
        on_ranks(body)(X).block_until_ready()
    assert time.monotonic() - start < 15
