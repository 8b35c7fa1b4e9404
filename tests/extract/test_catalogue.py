"""The catalogue: for each case the verdict, the codes, the lines, and nothing else."""

import collections

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import peerax
from tests.extract.catalogue import control_flow, messages, programs  # noqa: F401  they fill the catalogue
from tests.extract.catalogue.case import CASES, named, square
from tests.ranks import pair

RUNS = [(name, types) for name, case in CASES.items() for types in case.types]
SAFE = [name for name, case in CASES.items() if case.verdict == "safe"]


def judged(report, case):
    """Return what a report got right: the verdict, the codes, the lines, and that there is nothing else in it."""
    found = collections.defaultdict(set)
    for diagnostic in report.diagnostics:
        found[diagnostic.code].add(named(diagnostic.locations[0]))
    all_lines = {named(location) for diagnostic in report.diagnostics for location in diagnostic.locations}
    return {
        "verdict": report.verdict == case.verdict,
        "codes": set(found) >= set(case.marks),
        "lines": all(lines <= found[code] for code, lines in case.marks.items()) and case.lines <= all_lines,
        "no noise": len(report.diagnostics) <= sum(map(len, case.marks.values())) and all_lines <= case.lines,
    }


@pytest.mark.parametrize("name, types", RUNS)
def test_case(name, types):
    case = CASES[name]
    report = case.report(types)
    assert all(judged(report, case).values()), f"{judged(report, case)}\n{report}"
    # With buffers, a cycle that they resolve is a warning.
    buffered = peerax.check(case.program(types), case.argument(), semantics="buffered")
    assert buffered.ok == (set(case.marks) <= {"PX208"}), str(buffered)


@pytest.mark.parametrize("name", [name for name in SAFE if CASES[name].reverse])
def test_the_gradient_of_what_is_safe(name):
    case = CASES[name]
    for types in case.types:
        program = case.program(types)
        report = peerax.check(jax.grad(lambda x, program=program: (program(x) ** 2).sum()), case.argument())
        assert report.ok and not report.diagnostics, f"check_vma={types}: {report}"


@pytest.mark.parametrize("name", SAFE)
def test_the_batch_and_the_tangent_of_what_is_safe(name):
    case = CASES[name]
    for types in case.types:
        program, x = case.program(types), case.argument()
        batch = jax.ShapeDtypeStruct((3, *x.shape), x.dtype)
        for report in (
            peerax.check(lambda x, program=program: jax.jvp(program, (x,), (x,)), x),
            peerax.check(jax.vmap(program), batch),
        ):
            assert report.ok and not report.diagnostics, f"check_vma={types}: {report}"


def test_what_is_left_automatic():  # I7
    def body(x):
        return pair(x, "b", [(0, 1)])

    program = jax.shard_map(body, mesh=square(), in_specs=P("a"), out_specs=P("a"), axis_names={"a"}, check_vma=False)
    report = jax.jit(program) and peerax.check(program, jnp.zeros(8))
    assert [found.code for found in report.diagnostics] == ["PX104"] and report.verdict == "unsafe"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("K")])
def test_case_as_written_for_lax(name):
    case = CASES[name]
    report = peerax.check(case.program(True), case.argument(), as_written_for="jax.lax")
    assert report.verdict == ("safe" if name in ("K1", "K3") else "unsafe"), str(report)
    # K1 is safe in both orders.
    severity = "warning" if name == "K1" else "error"
    assert {(found.code, found.severity) for found in report.diagnostics} == {
        (code, severity) for code in case.lax_marks
    }
    # Both lines are among those whose order matters.
    for found in report.diagnostics:
        assert {named(location) for location in found.locations} <= case.lax_marks[found.code]


def test_summary():
    """Print a table: how many cases of each category the check gets right, in each way."""
    right = collections.defaultdict(collections.Counter)
    for name, types in RUNS:
        case = CASES[name]
        right[case.category] += collections.Counter(runs=1, **judged(case.report(types), case))
    ways = ("verdict", "codes", "lines", "no noise")
    print(f"\n| category | runs | {' | '.join(ways)} |\n|---|---:|---:|---:|---:|---:|")
    for category, counts in sorted(right.items()):
        print(f"| {category} | {counts['runs']} | {' | '.join(str(counts[way]) for way in ways)} |")
    assert all(counts[way] == counts["runs"] for counts in right.values() for way in ways)
    # Each category of the catalogue has cases of its own.
    assert set(right) == set("UPTDLBWCKGMIVXQ")
