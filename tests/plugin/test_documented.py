"""The tests that docs/testing.md shows."""

import pytest

from tests.documents import ROOT, fences, programs

DOCUMENT = ROOT / "docs" / "testing.md"
TESTS = [program for program in programs(DOCUMENT) if "def test_" in program.fence.code]


@pytest.mark.parametrize("program", TESTS, ids=lambda program: str(program.fence))
def test_the_tests_pass(program, project):
    (configuration,) = [fence.code for fence in fences(DOCUMENT) if fence.info == ("toml",)]
    project.makepyprojecttoml(configuration)
    project.makepyfile(program.fence.code)
    project.run_tests().assert_outcomes(passed=program.fence.code.count("def test_"))


def test_there_are_some():
    assert TESTS
