"""docs/linting.md has each rule with a program that breaks it and one that does not; other documents are clean."""

import re

import pytest

from peerax.lint import DEFAULT_CODES, RULES, Settings, lint_paths, lint_source, to_text
from tests.documents import PAGES, ROOT, documents, fences, programs

PAGE = ROOT / "docs" / "linting.md"


def _sections():
    """Return the common first lines, and for each rule its title and its programs."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    headings = {n: m for n, line in enumerate(lines, 1) if (m := re.fullmatch(r"### (PXL\d{3}): (.+)", line))}
    fragments = [fence for fence in fences(PAGE) if fence.info == ("python", "fragment")]
    first = min(headings)
    (prelude,) = [fence.code for fence in fragments if fence.line < first]
    sections = {}
    for line, heading in headings.items():
        end = min([other for other in headings if other > line], default=len(lines))
        sections[heading[1]] = (heading[2], [fence.code for fence in fragments if line < fence.line < end])
    return prelude, sections


PRELUDE, SECTIONS = _sections()


def codes_in(program):
    return [finding.code for finding in lint_source((PRELUDE + "\n\n" + program).encode(), "page.py", set(RULES))]


def test_each_rule_has_a_section():
    assert {code: title for code, (title, _) in SECTIONS.items()} == {code: r.title for code, r in RULES.items()}


@pytest.mark.parametrize("code", RULES)
def test_the_first_program_breaks_the_rule_and_the_second_breaks_none(code):
    _, (wrong, right) = SECTIONS[code]
    assert set(codes_in(wrong)) == {code}
    assert codes_in(right) == []


def test_the_second_programs_run(run_python):
    program = "\n\n".join(f"def {code}():\n" + _indented(right) for code, (_, (_, right)) in SECTIONS.items())
    calls = "\n".join(f"{code}()\nprint('{code}')" for code in SECTIONS)
    done = run_python(f"{PRELUDE}\n\n{program}\n\n{calls}\n", devices=8)  # more than the mesh has
    assert done.stdout.split() == list(RULES), done.stderr


def _indented(program):
    return "\n".join(f"    {line}" for line in program.splitlines())


def test_what_is_shown_of_the_output(tmp_path, monkeypatch):
    """train.py has the first lines of all programs and the first one of PXL005."""
    (shown,) = [fence.code for fence in fences(PAGE) if fence.info == ("text",)]
    monkeypatch.chdir(tmp_path)
    for name, text in {"train.py": PRELUDE + "\n\n" + SECTIONS["PXL005"][1][0], "a.py": "", "b.py": ""}.items():
        (tmp_path / name).write_text(text)
    assert to_text(lint_paths(["train.py", "a.py", "b.py"], Settings(tmp_path))) + "\n" == shown


FAILS_AS = {
    "PXL001": {"PX104"},
    "PXL002": {"PX201", "PX202", "PX302"},
    "PXL004": {"PX103"},
    "PXL005": {"PX102"},
    "PXL011": {"PX209"},
    "PXL012": {"PX202"},
}


def test_programs_of_the_documents():
    """These run in other tests: what is found in them is why they fail, and nothing is found in those that do not."""
    ran = failed = 0
    for path in [*documents(), *PAGES.glob("*.md")]:
        for program in programs(path):
            if program.fragment:
                continue
            found = {finding.code for finding in lint_source(program.fence.code.encode(), str(path), DEFAULT_CODES)}
            found -= {"PXL008", "PXL009"}  # a document may be about the operations of jax.lax
            assert all(program.fails in FAILS_AS.get(code, ()) for code in found), (program.fence, found)
            ran += program.fails is None
            failed += bool(found)
    assert ran > 60 and failed >= 6


def test_the_projects_own_programs_are_clean():
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        codes = {finding.code for finding in lint_source(path.read_bytes(), str(path), DEFAULT_CODES)}
        assert codes <= ({"PXL008", "PXL009"} if path.name == "pipeline.py" else set()), path
