"""What is shown of a failed test: ranks that still run, and the last messages of its trace."""

PROGRAM = """
    import threading

    import jax
    import jax.numpy as jnp
    import numpy as np
    import pytest
    from jax.sharding import PartitionSpec as P

    import peerax

    def on(mesh, body):
        return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))

    def pair(x):
        return peerax.precv(peerax.psend(x, "x", [(0, 1)], tag=3), x, "x", [(0, 1)], tag=3)

    def receive(x):
        return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

    def test_that_has_run_nothing():
        assert False
"""


def test_sections(project):
    project.makepyfile(
        PROGRAM
        + """
    def test_trace(mesh):
        run, fail = on(mesh(2, "x"), pair), on(mesh(2, "x"), receive)
        with peerax.trace() as trace:
            run(jnp.arange(2.0))
            fail(jnp.arange(2.0))

    def test_nothing_is_left():
        assert False

    @pytest.fixture
    def late(mesh):
        # Rank 0 computes until the event is set; meanwhile rank 1 waits for it.
        event, started = threading.Event(), threading.Event()

        def compute(x):
            started.set()
            event.wait(40)
            return x

        def body(x):
            busy = lambda x: jax.pure_callback(compute, x, x)
            return pair(jax.lax.cond(jax.lax.axis_index("x") == 0, busy, lambda x: x, x))

        run = on(mesh(2, "x"), body)
        thread = threading.Thread(target=run, args=(jnp.arange(2.0),))
        thread.start()
        assert started.wait(20)
        yield
        event.set()
        thread.join()

    def test_while_a_program_runs(late):
        import time

        from peerax import runtime

        until_s = time.monotonic() + 30
        while "waits" not in str(runtime.extension().describe_sessions()) and time.monotonic() < until_s:
            time.sleep(0.01)
        assert False
    """
    )
    result = project.run_tests("--peerax-devices=2", "--peerax-timeout=60")
    result.assert_outcomes(failed=4)
    lines = result.outlines
    assert sum("peerax: in flight" in line for line in lines) == 2
    result.stdout.fnmatch_lines(
        [
            "*_ test_trace _*",
            "E *PX202: receive without send",
            "*- peerax: in flight -*",
            "operations of the trace that were not complete:",
            "  rank 1: precv (test_sections.py:*), 0 -> 1, since * ms",
            "the last messages of the trace (1 in all):",
            "  0 -> 1 tag 3, 4 bytes, sent at * ms, received at * ms",
            "*_ test_nothing_is_left _*",
            "*_ test_while_a_program_runs _*",
            "*- peerax: in flight -*",
            "the ranks of programs that still run:",
            "  rank 0: computes*",
            "  rank 1: waits in precv (test_sections.py:*) for float32[[]1] from rank 0, tag 3",
        ]
    )
