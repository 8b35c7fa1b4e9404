"""`peerax run`: a program finds what Python would give it, and its exit code is its own."""

import os
import signal
import zipfile

import pytest

from peerax.cli import main
from peerax.cli._start import separate


@pytest.mark.parametrize(
    "words, ours, rest",
    [
        ("a.py", "a.py", ""),
        ("a.py x --quiet", "a.py", "x --quiet"),
        ("--devices 4 a.py --devices 8", "--devices 4 a.py --devices 8", ""),
        ("a.py --devices=4 --quiet -v", "a.py --devices=4 --quiet", "-v"),
        ("a.py --quiet -- --devices 4", "a.py --quiet", "--devices 4"),
        ("a.py -- -- x", "a.py", "-- x"),
        ("a.py --dev 4", "a.py", "--dev 4"),
        ("a.py --timeout", "a.py --timeout", ""),
        ("--send buffered -m a.b --quiet -m", "--send buffered -m a.b --quiet", "-m"),
        ("--help a.py", "--help a.py", ""),
        ("-m", "-m", ""),
        ("", "", ""),
    ],
)
def test_which_words_are_ours_and_which_the_scripts(words, ours, rest):
    assert separate(["run", *words.split()]) == (["run", *ours.split()], rest.split())


def test_words_of_other_commands_are_left_alone():
    assert separate(["explain", "PX203", "--", "x"]) == (["explain", "PX203", "--", "x"], [])


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("", "-m script.py is required"),
        ("--devices 0 a.py", "'0' is not a number of devices"),
        ("--devices four a.py", "'four' is not a number of devices"),
        ("--timeout never a.py", "'never' is not a number of seconds above 0, or inf"),
        ("a.py --timeout=-1", "'-1' is not a number of seconds above 0, or inf"),
        ("a.py --send fast", "invalid choice: 'fast'"),
        ("--unknown a.py", "unrecognized arguments: --unknown"),
    ],
)
def test_mistakes_in_the_options(words, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", *words.split()])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_names_and_arguments_are_those_of_python(peerax, python):
    program = """'''Text.'''
import sys
import beside
print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, __doc__, __builtins__)
"""
    words = ["there/program.py", "a", "--devices", "3", "--", "--quiet"]
    plain = python(*words, files={"there/program.py": program, "there/beside.py": ""})
    assert plain.stdout.startswith("['there/program.py', 'a', '--devices', '3', '--', '--quiet'] /")
    done = peerax("run", "--quiet", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")


def test_main_module_is_there_for_pickle_and_for_new_processes_also_at_exit(run_program):
    program = """
import atexit, multiprocessing, pickle, __main__

class Thing:
    pass

def double(x):
    return 2 * x

if __name__ == "__main__":
    assert __main__.Thing is Thing and pickle.loads(pickle.dumps(Thing)) is Thing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
    atexit.register(lambda: print("at exit", pickle.loads(pickle.dumps(Thing)) is Thing))
"""
    done = run_program(program)
    assert (done.returncode, done.stdout) == (0, "[2, 4]\nat exit True\n"), done.stderr
    assert done.stderr == "peerax: no messages\n"


def test_line_comes_after_what_the_program_prints_at_exit(run_program):
    program = """
import atexit, sys
atexit.register(print, "at exit")
sys.stderr = sys.stdout
print("now")
"""
    assert run_program(program).stdout == "now\nat exit\npeerax: no messages\n"


def test_module(peerax):
    files = {
        "package/__init__.py": "",
        "package/__main__.py": "import sys\nfrom . import beside\nprint(beside.x, sys.argv, sys.path[0])",
        "package/beside.py": "x = 5",
    }
    done = peerax("run", "-m", "package", "--quiet", "--", "--quiet", files=files)
    where = done.stdout.split()[-1]
    assert done.stdout == f"5 ['{where}/package/__main__.py', '--quiet'] {where}\n"


def test_directory_and_zip_file(peerax, tmp_path):
    files = {"program/__main__.py": "import beside, sys\nprint(__name__, sys.argv)", "program/beside.py": ""}
    done = peerax("run", "program", "--quiet", "a", files=files)
    assert (done.stdout, done.stderr) == ("__main__ ['program', 'a']\n", "")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(name.removeprefix("program/"), text)
    done = peerax("run", "program.zip", "--quiet", "a")
    assert (done.stdout, done.stderr) == ("__main__ ['program.zip', 'a']\n", "")


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("missing.py", "there is no file 'missing.py'"),
        ("-m missing.module", "there is no module named missing.module"),
        ("-m json", "json is a package without a __main__, and cannot be run"),
        (".", "there is no __main__.py in '.'"),
    ],
)
def test_no_program(peerax, words, complaint):
    done = peerax("run", *words.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"peerax run: {complaint}\n")


@pytest.mark.parametrize(
    "value, exit_code, text", [("3", 3, ""), ("None", 0, ""), ("True", 1, ""), ("'too bad'", 1, "too bad\n")]
)
def test_exit_code(run_program, value, exit_code, text):
    done = run_program(f"import sys\nsys.exit({value})\n", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", text)


CHAIN_OF_EXCEPTIONS = """
def outer():
    try:
        inner()
    except ZeroDivisionError as error:
        raise ValueError("wrong") from error

def inner():
    1 / 0

print("before")
outer()
"""


@pytest.mark.parametrize("program", [CHAIN_OF_EXCEPTIONS, "x = (\n", "import missing_module\n", "raise SystemError"])
def test_traceback_is_that_of_python(run_program, python, program):
    plain = python("program.py", files={"program.py": program})
    done = run_program(program, "--quiet")
    assert plain.returncode == 1 and "Error" in plain.stderr
    assert (done.returncode, done.stdout, done.stderr) == (1, plain.stdout, plain.stderr)


def test_hook_of_the_program_shows_its_exceptions(run_program):
    program = "import sys\nsys.excepthook = lambda kind, *_: print('hook', kind.__name__)\n1 / 0\n"
    done = run_program(program, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (1, "hook ZeroDivisionError\n", "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupt(run_program):
    default = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell may have it ignored
    done = run_program(f"import os, signal, time\n{default}\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n")
    assert done.returncode == -signal.SIGINT  # a shell makes 130 of it
    assert "peerax/" not in done.stderr and "runpy" not in done.stderr
    assert done.stderr.endswith("\nKeyboardInterrupt\npeerax: no messages\n")


def test_jax_is_imported_after_the_environment_is_set_and_makes_no_devices(run_program):
    program = """
import os
import jax
jax.config.update("jax_num_cpu_devices", 2)  # an error if there are devices already
print(len(jax.devices()), *(os.environ[name] for name in ("XLA_FLAGS", "JAX_PLATFORMS", "PEERAX_TIMEOUT_S")))
"""
    env = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=9"}
    done = run_program(program, "--devices", "3", "--timeout", "7", "--quiet", env=env)
    flags = "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=3"
    assert (done.stdout, done.stderr) == (f"2 {flags} cpu 7\n", "")


@pytest.mark.parametrize(
    "env, complaint",
    [
        ({"PEERAX_SEND": "fast"}, "PX404: environment variable is not valid\n  PEERAX_SEND='fast' is not "),
        ({"JAX_PLATFORMS": "cuda"}, "peerax run: --devices asks for CPU devices, but JAX_PLATFORMS=cuda"),
    ],
)
def test_environment_that_cannot_work_is_told_before_the_program_starts(run_program, env, complaint):
    done = run_program("print('started')\n", "--devices", "2", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(complaint)


def test_devices_that_cannot_be_had(run_program, sitecustomize):
    env = sitecustomize("import jax\njax.config.update('jax_platforms', 'cpu')\njax.devices()\n")
    done = run_program("print('started')\n", "--devices", "4", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("peerax run: 4 devices were asked for, but JAX has 1 (cpu)\n")
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=4" in done.stderr
