"""The tables in the documents are what the programs above them print."""

import re

import pytest

from peerax.pipeline import SCHEDULES, Costs, schedule
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
    assert len(list(shown())) == 5 + 3


def test_the_pictures_of_schedules_are_those_of_today():
    """`peerax schedule NAME --stages 4 --microbatches 8 --svg docs/schedules/NAME.svg` draws one anew."""
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    for name in SCHEDULES:
        made = schedule(name, 4, 8)
        picture = ROOT / "docs" / "schedules" / f"{name}.svg"
        assert picture.read_text(encoding="utf-8") == made.to_svg(Costs().for_chunks(made.chunks)), name
        assert f"(schedules/{name}.svg)" in text
    assert len(list(picture.parent.iterdir())) == len(SCHEDULES)


def test_the_formulas_of_schedules_are_what_replays_say():
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (\(p-1\)/\S+) \| (\S+) \|$", text, re.MULTILINE)
    assert [name for name, *_ in rows] == list(SCHEDULES)
    for ranks, microbatches in ((4, 8), (3, 9), (8, 16), (2, 20)):
        for name, *formulas in rows:
            if name == "combined-tick" and microbatches % ranks:
                continue
            made = schedule(name, ranks, microbatches)
            values = {"p": ranks, "m": microbatches, "v": made.chunks}
            bubble, most = (eval(re.sub(r"(?<=[\w)])(?=[a-z(])", "*", formula), values) for formula in formulas)
            replay = made.replay()
            assert replay.bubble == pytest.approx(bubble), (name, ranks, microbatches)
            assert max(replay.peaks) == most, (name, ranks, microbatches)
