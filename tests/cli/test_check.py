"""`peerax check`: what is checked and when, what is said, and the exit code."""

import time

import pytest

from peerax.cli import _verdicts, main
from peerax.cli._start import separate
from tests.cli.programs import PRELUDE, START
from tests.documents import ROOT, fences


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
import time
from jax.experimental import io_callback

def fail(x):
    time.sleep(0.5)
    raise ValueError("no such file")

y = jax.jit(on_ranks(lambda x: io_callback(fail, x, x)))(x)
print("done")
"""
    done = check(program)
    assert done.returncode == 3
    assert "done\n" in done.stderr
    assert "peerax check: work failed that the program did not wait for\n" in done.stderr
    assert "ValueError: no such file" in done.stderr
    nothing, failure = done.stdout.split("; ")
    assert nothing == "peerax check: the script has compiled no program that communicates"
    assert failure.startswith("the script failed: JaxRuntimeError: ")


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
