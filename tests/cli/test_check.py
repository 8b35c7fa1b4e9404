"""`peerax check` and `peerax run --check`: what is checked and when, what is said, and the exit code."""

import json
import time

import pytest

from peerax.cli import _verdicts, main
from peerax.cli._start import separate
from peerax.targets import missing_package, parse_target
from tests.documents import ROOT, fences

PRELUDE = """\
import functools, itertools, sys
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

RIGHT = [(0, 1), (1, 2), (2, 3)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
on_ranks = functools.partial(
    jax.shard_map, mesh=Mesh(np.array(jax.devices()[:4]), ("x",)), in_specs=P("x"), out_specs=P("x"), check_vma=False
)
x = jnp.arange(4.0)


def shift(x):
    return lax.precv(lax.psend(x, "x", RIGHT), x, "x", RIGHT)


def separate(x):
    lax.psend(x, "x", RIGHT)
    return lax.precv(lax.create_token(), x, "x", RIGHT)


def cycle(x):
    lax.psend(x, "x", RING)
    return lax.precv(lax.create_token(), x, "x", RING)


def receive_first(x):
    y = lax.precv(lax.create_token(), x, "x", RING)
    lax.psend(y, "x", RING)
    return y


def lone_send(x):
    lax.psend(x, "x", RIGHT)
    return x


def shapes_differ(x):
    lax.psend(x, "x", RIGHT)
    return x + lax.precv(lax.create_token(), jax.ShapeDtypeStruct((2,), x.dtype), "x", RIGHT).sum()


def nobody_knows(x, number=lambda: np.int32(0)):
    n = jax.pure_callback(number, jax.ShapeDtypeStruct((), jnp.int32))
    return lax.cond(n == 0, shift, lambda x: x, x)


"""
START = PRELUDE.count("\n") + 1  # the line of what follows


@pytest.fixture
def check(peerax):
    """Return a function that runs `peerax check program.py` with some words, where the program is a text."""

    def run(text, *words, **rest):
        files = {"program.py": PRELUDE + text, **rest.pop("files", {})}
        return peerax("check", "program.py", "--devices", "4", *words, files=files, **rest)

    return run


@pytest.fixture
def check_json(check):
    """Return a function that does that with --json, and returns the programs and the summary."""

    def run(text, *words, **rest):
        done = check(text, "--json", *words, **rest)
        *programs, summary = map(json.loads, done.stdout.splitlines())
        assert [record["kind"] for record in [*programs, summary]] == ["program"] * len(programs) + ["summary"]
        assert summary["exit_code"] == done.returncode, done.stderr
        return programs, summary

    return run


def found(programs):
    return [(record["name"], record["call"]["line"], record["verdict"]) for record in programs]


@pytest.mark.parametrize(
    "words, ours, rest",
    [
        ("a.py --target h100:8 --json --target=v5e:2x4 x", "a.py --target h100:8 --json --target=v5e:2x4", "x"),
        ("--json -m a.b --quiet", "--json -m a.b", "--quiet"),
    ],
)
def test_which_words_are_ours_and_which_the_scripts(words, ours, rest):
    assert separate(["check", *words.split()]) == (["check", *ours.split()], rest.split())


@pytest.mark.parametrize("words", ["", "--unknown a.py", "--devices 0 a.py", "--target"])
def test_mistakes_in_the_options_are_no_verdict(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["check", *words.split()])
    assert caught.value.code == 3
    assert "peerax check: error: " in capsys.readouterr().err


def test_safe_program_runs(check):
    done = check("step = jax.jit(on_ranks(shift))\nprint(step(x))\nstep(x)\n")
    assert done.returncode == 0
    assert done.stdout == f"program.py:{START + 1}: shift: safe (4 ranks)\npeerax check: 1 program, 1 safe\n"
    assert done.stderr == "[0. 0. 1. 2.]\n"


@pytest.mark.parametrize(
    "body, code",
    [
        ("receive_first", "PX207: cycle: hangs always"),
        ("cycle", "PX208: cycle: hangs without buffers"),
        ("lone_send", "PX201: send without receive"),
        ("shapes_differ", "PX203: shapes differ"),
    ],
)
@pytest.mark.parametrize("call", ["jax.jit(on_ranks({}))(x)", "on_ranks({})(x)"])
def test_unsafe_program_does_not_run(check, body, code, call):
    program = f"try:\n    {call.format(body)}\nexcept Exception:\n    pass\nprint('went on')\n"
    done = check(program)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"program.py:{START + 1}: {body}: unsafe: ")
    assert f"\n{code}\n  --> program.py:" in done.stdout
    assert done.stdout.endswith("\npeerax check: 1 program, 1 unsafe; the script was stopped\n")


def test_undecided_program_runs(check, check_json):
    program = "print(jax.jit(on_ranks(nobody_knows))(x))\n"
    done = check(program)
    assert (done.returncode, done.stderr) == (2, "[0. 0. 1. 2.]\n")
    assert done.stdout.startswith(f"program.py:{START}: nobody_knows: undecided: ") and "\nPX211: " in done.stdout
    assert done.stdout.endswith("\npeerax check: 1 program, 1 undecided\n")

    programs, summary = check_json(program + "jax.jit(on_ranks(cycle))(x)\n")
    assert [record["verdict"] for record in programs] == ["undecided", "unsafe"]
    assert (summary["exit_code"], summary["script"]) == (1, "stopped")

    _, summary = check_json(program + "1 / 0\n")
    assert (summary["exit_code"], summary["script"]) == (3, "failed")


def test_undecided_program_that_fails_is_unsafe(check):
    program = """
numbers = itertools.count()  # one rank alone gets the 0
once = functools.partial(nobody_knows, number=lambda: np.int32(next(numbers)))
jax.jit(on_ranks(once))(x).block_until_ready()
"""
    done = check(program)
    assert done.returncode == 1, done.stderr
    title = done.stderr.splitlines()[-1].removeprefix("  more: peerax explain ")
    assert done.stdout.splitlines()[-1].startswith(
        f"peerax check: 1 program, 1 undecided; the script failed: {title}: "
    )


def test_check_that_fails_decides_nothing(check_json):
    program = """
import peerax.extract.compiled as compiled
def broken(*_):
    raise KeyError("a mistake of peerax")
compiled.check_call = broken
jax.jit(on_ranks(shift))(x)
"""
    (record,), summary = check_json(program)
    assert (record["verdict"], summary["exit_code"], summary["script"]) == ("undecided", 2, "finished")
    assert record["diagnostics"][0]["message"] == "the check failed: KeyError: 'a mistake of peerax'"


def test_mistake_that_is_found_when_it_is_traced(check, check_json):
    program = "jax.jit(on_ranks(lambda x: lax.precv(lax.psend(x, 'x', [(0, 9)]), x, 'x', RIGHT)))(x)\n"
    done = check(program)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(
        f"unsafe: it cannot be traced\n\nPX102: rank outside 0..size-1\n  --> program.py:{START}"
    )
    (record,), summary = check_json(program)
    assert (record["name"], record["call"], record["diagnostics"][0]["code"]) == (None, None, "PX102")
    assert (summary["unsafe"], summary["script"]) == (1, "stopped")


def test_script_error(check):
    done = check("jax.jit(on_ranks(shift))(x)\n\ndef f():\n    1 / 0\n\nf()\n")
    assert done.returncode == 3
    assert done.stdout.endswith("1 program, 1 safe; the script failed: ZeroDivisionError: division by zero\n")
    assert f'program.py", line {START + 5}, in <module>' in done.stderr and "peerax/" not in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_work_that_nobody_waits_for(check):
    program = """
from jax.experimental import io_callback
def fail(x):
    raise ValueError("no such file")
y = jax.jit(on_ranks(lambda x: io_callback(fail, x, shift(x))))(x)
"""
    done = check(program)
    assert done.returncode == 3
    assert "ValueError: no such file" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("peerax check: 1 program, 1 safe; the script failed: ")


@pytest.mark.parametrize("value, exit_code", [("0", 0), ("None", 0), ("4", 3), ("'too bad'", 3)])
def test_exit_code_of_the_script(check_json, value, exit_code):
    _, summary = check_json(f"sys.exit({value})\n")
    assert summary["exit_code"] == exit_code
    assert summary["error"] == {"4": "exit code 4", "'too bad'": "exit code 1"}.get(value)


@pytest.mark.parametrize("words", [["missing.py"], ["-m", "missing"], ["."]])
def test_no_script(peerax, words):
    done = peerax("check", *words)
    assert (done.returncode, done.stdout, done.stderr[:23]) == (3, "", "peerax check: there is ")


def test_no_communication(check):
    done = check("print(jax.jit(on_ranks(lambda x: 2 * x))(x), jax.jit(jnp.sum)(x))\n")
    assert (done.returncode, done.stderr) == (0, "[0. 2. 4. 6.] 6.0\n")
    assert done.stdout == "peerax check: the script has compiled no program that communicates\n"


def test_what_is_not_compiled_is_not_checked(check_json):
    programs, _ = check_json("jax.jit(on_ranks(cycle)).lower(x)\njax.make_jaxpr(on_ranks(cycle))(x)\n")
    assert programs == []


def test_each_program_is_checked_once(check_json):
    program = """
step = jax.jit(on_ranks(shift))
for _ in range(3):
    y = step(x)  # nobody waits
step(x + 1)
step.lower(x).compile()
step(jnp.arange(8.0))
for _ in range(3):
    on_ranks(separate)(x)
    jax.jit(lambda x: on_ranks(shift)(x) + on_ranks(lambda x: lax.psum(x, "x"))(x))(x)
"""
    programs, summary = check_json(program)
    lines = [START + n for n in (3, 6, 8, 9)]
    names = ["shift", "shift", "separate", "<lambda>"]
    assert found(programs) == [(name, line, "safe") for name, line in zip(names, lines, strict=True)]
    assert (summary["programs"], summary["safe"], summary["exit_code"]) == (4, 4, 0)


@pytest.mark.filterwarnings("ignore:.*pmap")
def test_pmap(check_json):
    programs, _ = check_json("jax.pmap(shift, axis_name='x')(x)\njax.pmap(cycle, axis_name='x')(x)\n")
    assert [record["verdict"] for record in programs] == ["safe", "unsafe"]


def test_gradient(check_json):
    programs, _ = check_json("jax.grad(lambda x: jax.jit(on_ranks(shift))(x).sum())(x)\n")
    assert {*found(programs)} == {("shift", START, "safe")}
    # Its transpose has as many messages, the other way round.
    programs, _ = check_json("jax.grad(lambda x: jax.jit(on_ranks(receive_first))(x).sum())(x)\n")
    assert programs[-1]["verdict"] == "unsafe"


def test_collectives_of_jax(check_json):
    program = """
jax.jit(on_ranks(lambda x: lax.psum(x, "x")))(x)
jax.jit(on_ranks(lambda x: lax.cond(lax.axis_index("x") == 0, lambda x: lax.psum(x, "x"), lambda x: x, x)))(x)
"""
    programs, _ = check_json(program)
    assert [record["verdict"] for record in programs] == ["safe", "unsafe"]


def test_values_of_arguments_where_these_decide(check, check_json):
    program = """
def by_table(table, x):
    def tick(x, t):
        actions = [
            lambda x: x,
            lambda x: lax.optimization_barrier((x, lax.psend(x, "x", [(0, 1)])))[0],
            lambda x: x + lax.precv(lax.create_token(), x, "x", [(0, 1)]),
        ]
        return lax.switch(table[0, t], actions, x), None
    return lax.scan(tick, x, jnp.arange(2))[0]

step = on_ranks(by_table, in_specs=(P("x"), P("x")))
if sys.argv[1] == "jit":
    step = jax.jit(step)
elif sys.argv[1] == "lower":
    step = lambda *operands: jax.jit(on_ranks(by_table, in_specs=(P("x"), P("x")))).lower(*operands).compile()
step(np.array([[1, 0], [0, 2], [0, 0], [0, 0]]), x)
step(np.array([[1, 0], [0, 2], [0, 0], [0, 0]]), jnp.arange(8.0))
step(np.array([[1, 0], [0, 0], [0, 0], [0, 0]]), jnp.arange(12.0))
"""
    for way in ("jit", "eager"):
        programs, _ = check_json(program, way)
        assert [record["verdict"] for record in programs] == ["safe", "safe", "unsafe"]
        assert programs[0]["assumptions"][1:] == ["integer and boolean arguments have the values that were given"]
        assert programs[2]["diagnostics"][0]["code"] == "PX201"
    assert "  assumed: integer and boolean arguments have the values" in check(program, "jit").stdout
    (record,), _ = check_json(program, "lower")
    assert record["diagnostics"][0]["code"] == "PX210"


def test_sends_may_be_judged_as_buffered(check_json):
    (record,), summary = check_json("jax.jit(on_ranks(cycle))(x)\n", "--send", "buffered")
    assert (record["verdict"], record["semantics"], summary["exit_code"]) == ("safe", "buffered", 0)
    assert [(each["code"], each["severity"]) for each in record["diagnostics"]] == [("PX208", "warning")]


def test_module(peerax):
    files = {
        "package/__init__.py": "",
        "package/__main__.py": "import sys\nfrom .steps import jax, on_ranks, cycle, x\njax.jit(on_ranks(cycle))(x)\n",
        "package/steps.py": PRELUDE,
    }
    done = peerax("check", "--devices", "4", "-m", "package", "word", files=files)
    assert (done.returncode, done.stdout.splitlines()[0][:38]) == (1, "package/__main__.py:3: cycle: unsafe: ")


def test_stdout_has_the_report_only(check_json):
    program = """
import os, subprocess
print("from Python")
os.write(1, b"from C\\n")
subprocess.run(["echo", "from a process"])
jax.jit(on_ranks(shift))(x)
import atexit
atexit.register(print, "at exit")
"""
    (record,), summary = check_json(program)
    assert record == {
        "kind": "program",
        "name": "shift",
        "call": {"file": "program.py", "line": START + 5},
        "verdict": "safe",
        "semantics": "rendezvous",
        "ranks": 4,
        "assumptions": ["a send completes when it is received"],
        "diagnostics": [],
        "targets": [],
    }
    assert summary == {
        "kind": "summary",
        "exit_code": 0,
        "programs": 1,
        "safe": 1,
        "unsafe": 0,
        "undecided": 0,
        "not_compiled": 0,
        "script": "finished",
        "error": None,
    }


def pretend(found):
    """Return a sitecustomize that says whether libtpu is installed."""
    return f"""
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: {"True" if found else None} if name == "libtpu" else find_spec(name, *a)
"""


def test_target_without_its_compiler(check, sitecustomize):
    done = check("print('started')\n", "--target", "v5e:2x4", env=sitecustomize(pretend(found=False)))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("PX403: ") and '\n  help: pip install "peerax[tpu]"\n' in done.stderr


def test_unknown_target(check):
    done = check("print('started')\n", "--target", "abacus:8")
    assert (done.returncode, done.stdout, done.stderr[:28]) == (3, "", "PX403: target not available\n")


def test_program_that_cannot_be_compiled_for_a_target(check, check_json, sitecustomize):
    env = sitecustomize(pretend(found=True))
    program = "jax.jit(on_ranks(separate))(x)\nprint('went on')\n"
    done = check(program, "--target", "v5e:2x2", env=env)
    assert (done.returncode, done.stderr) == (1, "went on\n")
    first, second, *_ = done.stdout.splitlines()
    assert first == f"program.py:{START}: separate: safe (4 ranks)"
    assert second == "  v5e:2x2: PX213: separate operation on a backend that has pairs only"
    assert done.stdout.endswith("\npeerax check: 1 program, 1 safe; 1 not compiled for a target\n")

    (record,), summary = check_json(program, "--target", "v5e:2x2", "--target", "v5e:2x4", env=env)
    assert [(each["target"], each["code"]) for each in record["targets"]] == [
        ("v5e:2x2", "PX213"),
        ("v5e:2x4", "PX213"),
    ]
    assert (summary["not_compiled"], summary["safe"]) == (2, 1)

    (record,), _ = check_json("jax.jit(on_ranks(shift))(x)\n", "--target", "v5e:2x4", env=env)
    assert record["targets"][0]["code"] == "PX403" and "is for 4 devices" in record["targets"][0]["error"]


@pytest.mark.parametrize("target", ["h100:4", "v5e:2x2"])
def test_program_is_compiled_for_a_target(check_json, target):
    command = missing_package(parse_target(target))
    if command is not None:
        pytest.skip(f"compiling for {target} needs: {command}")
    (record,), summary = check_json("jax.jit(on_ranks(shift))(x)\n", "--target", target)
    (outcome,) = record["targets"]
    assert (summary["exit_code"], outcome["target"]) == (0, target)
    assert outcome["memory"]["arguments"] > 0


def test_long_work_is_named(monkeypatch, capsys):
    monkeypatch.setattr(_verdicts, "_LONG_S", 0.01)
    with _verdicts.long_work("checking a.py:1"):
        for _ in range(500):
            time.sleep(0.01)
            if (err := capsys.readouterr().err) != "":
                break
    assert err == "checking a.py:1 ...\n"


def test_short_work_is_not(capsys):
    with _verdicts.long_work("checking a.py:1"):
        pass
    assert capsys.readouterr().err == ""


def test_report_in_the_document(peerax):
    script, command, report, *_ = fences(ROOT / "docs" / "checking.md")
    done = peerax(*command.code.split()[1:], files={"train.py": script.code})
    assert done.stdout == report.code


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
