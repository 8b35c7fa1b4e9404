"""Each code has a page, each page a code, and all are built alike. test_records runs the examples."""

import pytest

from peerax.diagnostics import CODES, explain
from tests.documents import PAGES, fences, programs, prose

LONGEST_EXAMPLE = 24


def test_every_page_has_a_code_and_every_code_a_page():
    assert {path.name for path in PAGES.iterdir()} == {f"{code}.md" for code in CODES}


@pytest.mark.parametrize("code", CODES)
class TestPage:
    def test_first_line_is_code_and_title(self, code):
        first, second, *_ = explain(code).splitlines()
        assert (first, second) == (f"# {code}: {CODES[code].title}", "")

    def test_meaning_then_failing_example_then_why_then_fixed_example(self, code):
        path = PAGES / f"{code}.md"
        failing, fixed = programs(path)
        assert len(list(fences(path))) == 2
        assert (failing.fails, fixed.fails) == (code, None)
        assert failing.fence.info[1:3] == (f"fails={code}", "devices=4")
        assert fixed.fence.info[1] == "devices=4"
        lines = path.read_text(encoding="utf-8").splitlines()
        why, after = lines.index("## Why") + 1, lines.index("## Fixed") + 1
        assert failing.fence.line < why < after < fixed.fence.line
        meaning = "\n".join(lines[1 : failing.fence.line - 1])
        assert 2 <= meaning.count(". ") + meaning.count(".\n") <= 4

    def test_examples_are_short_and_the_fixed_one_checks_its_result(self, code):
        failing, fixed = programs(PAGES / f"{code}.md")
        for program in (failing, fixed):
            assert program.fence.code.count("\n") <= LONGEST_EXAMPLE
            compile(program.fence.code, str(program.fence), "exec")
        assert "assert" in fixed.fence.code

    def test_text_names_known_codes_only(self, code):
        text = prose(PAGES / f"{code}.md")
        assert text.isascii()
        assert all(word[:5] in CODES for word in text.replace("(", " ").split() if word.startswith("PX"))


def test_explain_takes_a_code_as_people_type_it():
    page = explain("PX203")
    assert page.startswith("# PX203: shapes differ\n")
    for spelling in ("px203", "203", " Px203 "):
        assert explain(spelling) == page


@pytest.mark.parametrize("code", ["PX230", "px230", "230", "PX2030", "PX23"])
def test_explain_names_codes_that_look_like_an_unknown_one(code):
    with pytest.raises(LookupError) as caught:
        explain(code)
    first, near, *rest = str(caught.value).splitlines()
    assert first == f"there is no diagnostic code {code!r}"
    assert near.startswith("did you mean ") and "PX203" in near
    assert rest[1:] == [f"  {entry.code}  {entry.title}" for entry in CODES.values()]


@pytest.mark.parametrize("code", ["", "hello", "../PX203", "PX", "PX203.md/.."])
def test_explain_lists_the_codes_when_nothing_is_known(code):
    with pytest.raises(LookupError) as caught:
        explain(code)
    assert all(known in str(caught.value) for known in CODES)
