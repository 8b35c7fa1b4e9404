"""The tables in the document are those that its programs print."""

import pytest

from tests.documents import ROOT, fences, programs, run

DOCUMENT = ROOT / "docs" / "timeline.md"


def shown():
    """Yield each program with the text below it."""
    program = None
    by_line = {made.fence.line: made for made in programs(DOCUMENT)}
    for fence in fences(DOCUMENT):
        program = by_line.get(fence.line, program)
        if fence.info == ("text",) and not fence.code.startswith("peerax "):
            yield pytest.param(program, fence.code, id=f"line {fence.line}")


@pytest.mark.parametrize(("program", "text"), list(shown()))
def test_what_is_shown_is_printed(program, text):
    outcome = run(program)
    assert text.removesuffix("...\n") in outcome.stdout, outcome


def test_they_are_found():
    assert len(list(shown())) == 3
