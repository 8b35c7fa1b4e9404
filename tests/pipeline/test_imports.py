"""Schedules need nothing but the standard library."""


def test_neither_jax_nor_numpy(run_python):
    program = """
import sys
from peerax.pipeline import Costs, compare, schedule
made = schedule("zbv", 2, 3)
assert made.timeline().makespan_s == made.replay().makespan_s and made.to_html() and compare(2, 4)
heavy = {name.partition(".")[0] for name in sys.modules} & {"jax", "jaxlib", "numpy", "rich"}
assert not heavy, heavy
"""
    done = run_python(program, devices=None)
    assert (done.returncode, done.stderr) == (0, "")
