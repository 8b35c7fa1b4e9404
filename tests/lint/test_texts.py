"""Files of every kind: not Python, not UTF-8, empty, deep, in other encodings, with other line ends; and noqa."""

import ast
import pathlib
import random
import re
import sys
import time

import pytest

from peerax.lint import RULES, CannotRead, Unreadable, lint_file, lint_source
from peerax.lint._file import may_have_findings
from tests.documents import documents, programs
from tests.lint.linted import PRELUDE, found, lint
from tests.lint.written_for_gpus import PROGRAMS

SEND = 'from jax import lax\nlax.psend(1, "x", [(0, 0)])'


def lint_bytes(data):
    return [(f.code, f.line, f.column) for f in lint_source(data, "a.py", {"PXL001"})]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"# psend\n", b"\xef\xbb\xbf", b"'psend precv shard_map axis_index cond'"]
)
def test_nothing_in_it(data):
    assert lint_source(data, "a.py", set(RULES)) == []


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"x = 1\ndef f(:\n", 2, "syntax error in Python 3."),
        (b"def psend():\nreturn\n", 2, "syntax error in Python 3."),
        (b"x = 1\ny = '\xe9' # lax.psend\n", 2, "it is not UTF-8: byte 0xe9"),
        (b"# coding: ascii\nx = '\xc3\xa9'\n", 2, "it is not ASCII: byte 0xc3"),
        (b"# coding: klingon\n", 1, "its encoding cannot be told"),
        (b"psend = 1\0\n", 1, "null bytes"),
        (b"psend = " + b"(" * 1000 + b")" * 1000, 1, "too"),
        (b"psend = x" + b" + x" * 20_000, 1, "it is nested too deeply"),
    ],
)
def test_what_cannot_be_read(data, line, reason):
    with pytest.raises(CannotRead) as caught:
        lint_source(data, "a.py", set(RULES))
    assert caught.value.line == line and reason in caught.value.reason


def test_files(tmp_path):
    path = tmp_path / "a.py"
    assert lint_file(str(path), set(RULES)) == Unreadable(str(path), 1, "cannot read it: No such file or directory")
    path.write_bytes(b"def f(:")
    assert isinstance(lint_file(str(path), set(RULES)), Unreadable)
    assert lint_file(str(tmp_path), set(RULES)) == Unreadable(str(tmp_path), 1, "cannot read it: Is a directory")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end):
    assert lint_bytes(SEND.replace("\n", end).encode()) == [("PXL001", 2, 1)]
    assert lint_bytes(f"{SEND}  # noqa\nx = 1\n".replace("\n", end).encode()) == []


@pytest.mark.parametrize(
    "before", ["\x0c", "'''a\x0bb\x1cc\u2028d\u0085e'''; ", "# \u2028\u2029\n"], ids=["form feed", "in text", "comment"]
)
def test_what_ends_no_line(before):
    line = 2 + before.count("\n")
    ((_, found_line, _),) = lint_bytes(("from jax import lax\n" + before + SEND.splitlines()[1]).encode())
    assert found_line == line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_columns_are_of_characters(encoding):
    cookie = "" if encoding.startswith("utf") else f"# coding: {encoding}\n"
    text = f'{cookie}from jax import lax\n"äöü"; lax.psend("é", "x", [(0, 0)]); x = 1'
    (finding,) = lint_source(text.encode(encoding), "a.py", {"PXL001"})
    line = text.splitlines()[finding.line - 1]
    assert line[finding.column - 1 : finding.end_column - 1] == 'lax.psend("é", "x", [(0, 0)])'


def test_the_warnings_of_a_program_are_its_own():
    assert lint_bytes(b"x = '\\d'\nassert (1, 'psend')\n") == []


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("", True),
        ("# noqa", False),
        ("#noqa", False),
        ("# NOQA", False),
        ("# noqa: PXL001", False),
        ("# noqa:pxl001", False),
        ("# noqa : E501, PXL001", False),
        ("# noqa: E501 PXL001", False),
        ("# type: ignore # noqa: PXL001 - sent by hand", False),
        ("# noqa: PXL002", True),
        ("# noqa: E501", True),
        ("# noqa: E501,PXL0011", True),
        ("# noqanything", True),
        ("# do not say no qa", True),
        ("'# noqa'", True),
    ],
)
def test_noqa(comment, kept):
    joint = "; " if comment.startswith("'") else "  "
    text = f'peerax.psend(1, "x", right){joint}{comment}\n'
    assert found(text, "PXL001") == ([("PXL001", 1)] if kept else [])


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_noqa_in_a_statement_of_several_lines(line):
    lines = ["token = (peerax", '    .psend(1, "x",', "    right)", ")"]
    lines[line] += "  # noqa: PXL001"
    assert found("\n".join(lines), "PXL001") == ([("PXL001", 1)] if line == 1 else [])


@pytest.mark.parametrize("line", [0, 1, 2])
def test_noqa_in_the_statement_around(line):
    lines = ["x, token = (1,", '    peerax.psend(1, "x", right)', ")"]
    lines[line] += "  # noqa: PXL001"
    assert found("\n".join(lines), "PXL001") == []


def test_noqa_in_another_statement():
    text = 'if True:  # noqa\n    peerax.psend(1, "x", right)\nx = 1  # noqa\n'
    assert found(text, "PXL001") == [("PXL001", 2)]


def test_a_file_without_its_words_has_no_finding():
    """The words that a file is searched for before it is analysed are in all programs of these tests with findings."""
    here = pathlib.Path(__file__).parent
    texts = [
        node.value
        for path in here.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value
    ]
    seen = 0
    for text in texts:
        try:
            findings = lint(text)
        except CannotRead:
            continue
        seen += bool(findings)
        assert not findings or may_have_findings(text.encode()), text
    assert seen > 30


def test_programs_with_other_words():
    """Whatever a program is, linting it ends without an exception of its own."""
    draw = random.Random(0)
    texts = [*PROGRAMS.values(), *(program.fence.code for path in documents() for program in programs(path))]
    words = sorted({word for text in texts for word in re.findall(r"\w+", text)})
    parsed = 0
    for _ in range(1500):
        parts = re.split(r"(\W+)", draw.choice(texts))  # every other one is a word
        for _ in range(draw.randint(1, 4)):
            parts[2 * draw.randrange(len(parts) // 2)] = draw.choice([draw.choice(words), draw.choice(parts[::2])])
        try:
            lint_source("".join(parts).encode(), "a.py", set(RULES))
            parsed += 1
        except CannotRead:
            continue
    assert parsed > 500


def test_deep_programs_leave_the_limit_alone():
    limit = sys.getrecursionlimit()
    for deep in ("x" + " + x" * 600, "x" + ".x" * 600, "x" + "(x)" * 600, "[" * 90 + "x" + "]" * 90):
        assert found(f'peerax.psend({deep}, "x", right)\n', "PXL001") == [("PXL001", 1)]
        assert sys.getrecursionlimit() == limit
    with pytest.raises(CannotRead):
        lint_source((PRELUDE + "psend" + ".x" * 5000).encode(), "a.py", set(RULES))
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    "line",
    [
        "f = jax.jit(f)",
        "f = f.g",
        "f = f or lax.axis_index('x') + f",
        "f = functools.partial(f, mesh=mesh)",
        "mesh = mesh if mesh else f(mesh)",
        "f, x = x, f",
        "f = lambda g: g(f)",
        "f = f(f)",
        "perm = perm + perm",
    ],
)
def test_names_that_are_bound_to_themselves_many_times(line):
    """It ends, and soon; what is found is not asked."""
    text = f"def f(x): return x\nperm = right\n{(line + chr(10)) * 40}"
    text += "lax.cond(f, f, f, f)\njax.shard_map(f, mesh=mesh)(1)\nf(1)\n"
    text += "y = peerax.precv(peerax.psend(f, 'x', perm), f, 'x', perm)\njnp.where(f, y, y)\n"
    start = time.process_time()
    lint(text)
    assert time.process_time() - start < 2
