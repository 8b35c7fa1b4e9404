"""`peerax run --check`: an unsafe program is refused."""

from tests.cli.programs import PRELUDE, START


def test_run_refuses_an_unsafe_program(run_program):
    done = run_program(PRELUDE + "jax.jit(on_ranks(cycle))(x)\nprint('went on')\n", "--devices", "4", "--check")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("PX208: ") == 1
    assert done.stderr.endswith("\n  more: peerax explain PX208\npeerax: no messages\n")
    assert f'program.py", line {START}, in <module>' in done.stderr and "peerax/" not in done.stderr


def test_run_refuses_it_each_time_with_an_error_that_can_be_handled(run_program):
    program = """
import peerax
step = jax.jit(on_ranks(cycle))
for _ in range(2):
    try:
        step(x)
    except peerax.PeeraxError as error:
        print(error.code)
print(jax.jit(on_ranks(shift))(x))
"""
    done = run_program(PRELUDE + program, "--devices", "4", "--check", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "PX208\nPX208\n[0. 0. 1. 2.]\n", "")


def test_run_warns_of_an_undecided_program(run_program):
    program = PRELUDE + "print(jax.jit(on_ranks(nobody_knows))(x))\n"
    done = run_program(program, "--devices", "4", "--check", "--quiet")
    assert (done.returncode, done.stdout) == (0, "[0. 0. 1. 2.]\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"peerax run: program.py:{START}: nobody_knows: it cannot be said ")
