"""The catalogue of the verifier and XLA:GPU's own check of sends and receives: a table of both verdicts in the docs.

What peerax calls safe must be accepted, and what it refuses does not get so far. For the table XLA is asked about the
refused programs too.
"""

import re
from pathlib import Path

import jax
import pytest

import peerax
from peerax.extract import _on_gpu
from peerax.targets import missing_package, parse_target
from peerax.verifier import Report
from tests.extract.catalogue import control_flow, messages, programs  # noqa: F401  they fill the catalogue
from tests.extract.catalogue.case import CASES

DOCUMENT = Path(__file__).parents[2] / "docs" / "verifier.md"
# What nobody gets as far as XLA with: tracing refuses it.
TRACED = [
    name
    for name, case in CASES.items()
    if not {*case.marks} & {"PX101", "PX102", "PX103", "PX104", "PX212"} and name != "W11"
]


def compile_case(name):
    case = CASES[name]
    target = f"h100:{case.mesh.size}"
    if (command := missing_package(parse_target(target))) is not None:
        pytest.skip(f"compiling for {target} needs: {command}")
    return peerax.compile_for(jax.jit(case.program(case.types[0])), case.argument(), target=target)


def verdict_of_xla(name):
    """Return "accepts" or "refuses", or None for a pair that does not fit: it is no operation of XLA's."""
    try:
        compile_case(name)
    except peerax.PeeraxError:
        return None
    except jax.errors.JaxRuntimeError as error:
        assert "hlo verifier" in str(error) or "Deadlock" in str(error), str(error)
        return "refuses"
    return "accepts"


@pytest.mark.parametrize("name", [name for name in TRACED if CASES[name].verdict == "safe"])
def test_what_is_safe_is_accepted(name):
    compile_case(name)


@pytest.mark.parametrize("name", [name for name in TRACED if CASES[name].verdict == "unsafe"])
def test_what_hangs_is_refused_with_its_code(name):
    case = CASES[name]
    ours = "peerax" in str(jax.make_jaxpr(case.program(case.types[0]))(case.argument()))
    # It may be right for the data that it will have; and what is JAX's alone is left to XLA.
    if {*case.marks} <= {"PX210"} or not ours:
        compile_case(name)
        return
    with pytest.raises(peerax.PeeraxError) as error:
        compile_case(name)
    assert error.value.code in CASES[name].marks


def test_the_table_in_the_docs(monkeypatch):
    monkeypatch.setattr(_on_gpu, "check_jaxpr", lambda *_, **__: Report("undecided", (), "rendezvous", 0))
    asked = {name: verdict_of_xla(name) for name in TRACED}
    rows = {name: xla for name, xla in asked.items() if xla is not None}
    expected = {
        name: (CASES[name].verdict, ", ".join(sorted(CASES[name].marks)), xla)
        for name, xla in rows.items()
        if (CASES[name].verdict == "safe") != (xla == "accepts")
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    found = {m[1]: (m[3], m[4] or "", m[5]) for m in re.finditer(_ROW, text, re.MULTILINE)}
    for name, (verdict, codes, xla) in expected.items():
        print(f"| {name} | {CASES[name].body.__doc__ or ''} | {verdict}{' ' + codes if codes else ''} | {xla} |")
    agree = len(rows) - len(expected)
    assert found == expected
    assert f"{len(rows)} programs" in text and f"In {agree} of them" in text


_ROW = r"^\| (\w[\w, ]*) \| ([^|]+) \| (safe|unsafe|undecided) ?([PX0-9, ]*) \| (accepts|refuses) \|$"
