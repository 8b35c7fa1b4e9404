"""The tables in the documents are what the programs above them print."""

import pytest

from tests.documents import ROOT, fences, programs, run

DOCUMENTS = [ROOT / "docs" / name for name in ("pipelines.md", "timeline.md")]


def shown():
    """Yield each program with the text that is below it, which may end with "...", and is no command line."""
    for document in DOCUMENTS:
        program = None
        by_line = {made.fence.line: made for made in programs(document)}
        for fence in fences(document):
            program = by_line.get(fence.line, program)
            if fence.info == ("text",) and not fence.code.startswith("peerax "):
                yield pytest.param(program, fence.code, id=str(fence))


@pytest.mark.parametrize(("program", "text"), list(shown()))
def test_what_is_shown_is_printed(program, text):
    outcome = run(program)
    assert text.removesuffix("...\n") in outcome.stdout, outcome


def test_they_are_found():
    assert len(list(shown())) == 4 + 3
