"""`peerax check --target`: each program is compiled for devices that are not there."""

import pytest

from peerax.targets import missing_package, parse_target
from tests.cli.programs import START


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
