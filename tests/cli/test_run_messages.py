"""`peerax run` on programs that send: what they compute, and what their user reads when they fail."""

import pytest

# Counts as a program that knows nothing of peerax; the bodies follow.
PRELUDE = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

RIGHT = [(0, 1), (1, 2), (2, 3)]


def run(body):
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return jax.jit(mapped)(jnp.arange(8.0))


"""
START = PRELUDE.count("\n")
SHIFT = f"""{PRELUDE}
def shift(x):
    token = lax.psend(x, "x", RIGHT)
    x, token = lax.optimization_barrier((x, token))
    return lax.precv(token, jax.ShapeDtypeStruct(x.shape, x.dtype), "x", RIGHT)

print(*run(shift))
"""
SHIFTED = "0.0 0.0 0.0 1.0 2.0 3.0 4.0 5.0\n"
LONE_RECEIVE = f"""{PRELUDE}
def lone_receive(x):
    return lax.precv(lax.create_token(), x, "x", RIGHT)

"""
RING = f"""{PRELUDE}
def ring(x):
    perm = [(0, 1), (1, 2), (2, 3), (3, 0)]
    lax.psend(x, "x", perm)
    return lax.precv(lax.create_token(), x, "x", perm)

print(*run(ring))
"""
SLOW = f"""{PRELUDE}
import time
def late(x, rank):
    time.sleep(3 if rank == 0 else 0)
    return np.asarray(x)

def send(x):
    x = jax.pure_callback(late, x, x, lax.axis_index("x"))
    lax.psend(x, "x", RIGHT)
    return lax.precv(lax.create_token(), x, "x", RIGHT)

print(*run(send))
"""
LATE_FAILURE = f"""{PRELUDE}
import time
from jax.experimental import io_callback

def fail(x):
    time.sleep(0.5)
    raise ValueError("no such file")

y = run(lambda x: io_callback(fail, x, x))
"""


def check_report(done, code, line):
    """The report comes once, as the last thing but for the line at the end, and without frames of ours."""
    assert done.returncode == 1
    *_, last, summary = done.stderr.splitlines()
    assert (last, summary[:8]) == (f"  more: peerax explain {code}", "peerax: ")
    assert done.stderr.count(f"{code}: ") == 1
    assert f"  --> program.py:{line}\n" in done.stderr
    assert not any(frame in done.stderr for frame in ("peerax/", "runpy", "importlib", "atexit"))


def test_unmodified_program_and_the_line_at_its_end(run_program):
    done = run_program(SHIFT, "--devices", "4")
    assert (done.returncode, done.stdout) == (0, SHIFTED), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("peerax: 4 ranks, 3 messages, 24 bytes, ")
    assert line.endswith((f" at program.py:{START + 5}", f" at program.py:{START + 3}", ", nobody waited"))


def test_quiet(run_program):
    done = run_program(SHIFT, "--devices", "4", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, SHIFTED, "")


@pytest.mark.parametrize("names_are_deleted", [False, True])
def test_no_deprecation_and_no_need_of_jaxs_names(peerax, python, sitecustomize, names_are_deleted):
    delete = """
import jax
for name in ("psend", "precv", "create_token"):
    vars(jax.lax).pop(name, None)
    jax.lax._deprecations.pop(name, None)
    assert not hasattr(jax.lax, name)
"""
    env = sitecustomize(delete if names_are_deleted else "")
    words = ["-W", "error", "-m", "peerax", "run", "program.py", "--devices", "4", "--quiet"]
    done = python(*words, files={"program.py": SHIFT}, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, SHIFTED, "")


def test_error_while_tracing(run_program):
    program = PRELUDE + "run(lambda x: lax.precv(lax.psend(x, 'x', [(0, 9)]), x, 'x', RIGHT))\n"
    check_report(run_program(program, "--devices", "4"), "PX102", START + 1)


def test_error_at_run_time(run_program):
    done = run_program(LONE_RECEIVE + "run(lone_receive).block_until_ready()\n", "--devices", "4")
    check_report(done, "PX202", START + 3)
    assert f'program.py", line {START + 5}, in <module>' in done.stderr


def test_error_that_the_program_handles_is_none(run_program):
    handle = "try:\n    run(lone_receive).block_until_ready()\nexcept jax.errors.JaxRuntimeError:\n    pass\n"
    done = run_program(LONE_RECEIVE + handle, "--devices", "4", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")


def test_report_inside_of_another_exception(run_program):
    handle = "try:\n    run(lone_receive).block_until_ready()\n"
    handle += "except Exception as error:\n    raise ValueError('step 7') from error\n"
    done = run_program(LONE_RECEIVE + handle, "--devices", "4")
    assert done.stderr.splitlines()[-2] == "  more: peerax explain PX202"
    assert "ValueError: step 7\n\nPX202: receive without send\n" in done.stderr


def test_result_that_nobody_waits_for(run_program):
    check_report(run_program(LONE_RECEIVE + "run(lone_receive)\n", "--devices", "4"), "PX202", START + 3)


def test_work_that_nobody_waits_for(run_program):
    done = run_program(LATE_FAILURE + "print('done')\n", "--devices", "4", "--quiet")
    assert (done.returncode, done.stdout) == (1, "done\n")
    _, shown = done.stderr.split("peerax run: work failed that the program did not wait for\n")
    assert shown.startswith("jax.errors.JaxRuntimeError: ") and shown.endswith("ValueError: no such file\n")


def test_work_that_fails_and_that_the_program_handles(run_program):
    handle = "try:\n    y.block_until_ready()\nexcept jax.errors.JaxRuntimeError:\n    print('handled')\n"
    done = run_program(LATE_FAILURE + handle, "--devices", "4")
    assert (done.returncode, done.stdout) == (0, "handled\n")
    assert "did not wait" not in done.stderr and "atexit" not in done.stderr


def test_exit_code_of_the_program_goes_first(run_program):
    done = run_program(LATE_FAILURE + "raise SystemExit(5)\n", "--devices", "4")
    assert done.returncode == 5
    assert "peerax run: work failed that the program did not wait for\n" in done.stderr


def test_rendezvous(run_program):
    done = run_program(RING, "--devices", "4", "--send", "buffered")
    assert (done.returncode, done.stdout) == (0, "6.0 7.0 0.0 1.0 2.0 3.0 4.0 5.0\n")
    check_report(run_program(RING, "--devices", "4", "--send", "rendezvous"), "PX302", START + 4)


def test_timeout(run_program):
    done = run_program(SLOW, "--devices", "4", "--timeout", "0.5")
    check_report(done, "PX301", START + 10)
    assert "since more than 0.5 s" in done.stderr
