"""Runs programs whose verdict is known, and prints what came of each: one JSON object a line.

    python -m tests.extract.run_programs catalogue|random COUNT

For a process of its own, in which sends wait for their receive: what is wrong about a program may end the process.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
from hypothesis import HealthCheck, Phase, given, settings

import peerax
from peerax.verifier import check_program
from tests.extract.catalogue import control_flow, messages, programs  # noqa: F401  they fill the catalogue
from tests.extract.catalogue.case import CASES
from tests.extract.lowering import arguments, as_in_jax, to_function
from tests.verifier.programs import small_nodes


def outcome(function, arguments) -> str:
    """Run a program; return "ended", or the code of the error that stopped it."""
    try:
        jax.block_until_ready(jax.jit(function)(*arguments))
    except jax.errors.JaxRuntimeError as error:
        return re.search(r"PX\d{3}", str(error))[0]
    return "ended"


def show(name, verdict, codes, result):
    print(json.dumps({"name": name, "verdict": verdict, "codes": sorted(codes), "result": result}), flush=True)


def run_catalogue():
    for name, case in CASES.items():
        if case.verdict == "safe" or set(case.marks) <= {"PX207", "PX208"}:
            x = jnp.arange(float(case.argument().size)) / 100
            show(name, case.verdict, case.marks, outcome(case.program(case.types[-1]), (x,)))


def run_random(number):
    options = {"derandomize": True, "database": None, "phases": [Phase.generate], "deadline": None}

    @settings(max_examples=number, suppress_health_check=list(HealthCheck), **options)
    @given(small_nodes())
    def run(made):
        size, nodes = made[0], as_in_jax(made[1])
        function = to_function(size, nodes, runs=True)
        report = check_program(peerax.program(function, *arguments(size)))
        values = [jnp.ones(x.shape, x.dtype) for x in arguments(size)]
        codes = {found.code for found in report.diagnostics}
        result = outcome(function, values)
        show(str(nodes), report.verdict, codes, result)

    run()


if __name__ == "__main__":
    run_catalogue() if sys.argv[1] == "catalogue" else run_random(int(sys.argv[2]))
