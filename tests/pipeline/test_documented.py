"""What the document shows is what its programs print."""

import pytest

from tests.documents import ROOT, fences, programs, run

DOCUMENT = ROOT / "docs" / "pipelines.md"


def shown():
    """Yield each program with the text that is below it."""
    program = None
    by_line = {made.fence.line: made for made in programs(DOCUMENT)}
    for fence in fences(DOCUMENT):
        program = by_line.get(fence.line, program)
        if fence.info == ("text",):
            yield pytest.param(program, fence.code, id=f"line {fence.line}")


@pytest.mark.parametrize(("program", "text"), list(shown()))
def test_what_is_shown_is_printed(program, text):
    outcome = run(program)
    assert text in outcome.stdout, outcome


def test_they_are_found():
    assert len(list(shown())) == 4
