"""What is judged to be safe runs to its end, and what is judged to be a cycle is stopped as a deadlock."""

import json
import os
import sys

import pytest

from tests.verifier.test_against_oracle import PROGRAMS

ENVIRONMENT = {
    "PEERAX_SEND": "rendezvous",
    "PEERAX_TIMEOUT_S": "20",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "PYTHONPATH": os.pathsep.join(sys.path),
}
CYCLES = {"PX207", "PX208"}


@pytest.fixture
def run(run_python):
    def run(*arguments, timeout_s):
        code = f"import runpy, sys; sys.argv[1:] = {list(arguments)}\n"
        code += "runpy.run_module('tests.extract.run_programs', run_name='__main__')"
        result = run_python(code, env=ENVIRONMENT, timeout_s=timeout_s)
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_the_catalogue(run):
    shown = run("catalogue", timeout_s=300)
    assert len(shown) > 50
    for found in shown:
        assert found["result"] == ("ended" if found["verdict"] == "safe" else "PX302"), found


def test_random_programs(run):
    number = PROGRAMS // 50
    shown = run("random", str(number), timeout_s=200 + 4 * number)
    assert len(shown) == number
    for found in shown:
        if found["verdict"] == "safe":
            assert found["result"] == "ended", found
        elif set(found["codes"]) <= CYCLES:
            assert found["result"] == "PX302", found
        else:
            assert found["result"] != "ended", found
