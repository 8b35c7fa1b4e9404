"""`peerax records check`: what is wrong with a file of records is named, and each fix is run."""

import json

import pytest

from peerax.cli import main
from peerax.dataset import build, read, run_fixes, schema
from peerax.dataset._check import Fix
from peerax.dataset._extra import Missing
from peerax.dataset._running import program_of, run_fix

jsonschema = pytest.importorskip("jsonschema")

NOW = "2026-11-30T21:00:00+00:00"
RECORD = {
    "id": "0123456789abcdef",
    "repo": "jax-ml/jax",
    "slug": "too-many-shards",
    "errorCode": None,
    "errorMessage": "{count} shards are too many",
    "messagePattern": r"shards\s+are\s+too\s+many",
    "errorType": "exception",
    "errorClass": "ValueError",
    "httpStatus": None,
    "severity": "error",
    "filePath": "jax/a.py",
    "lineNumber": 7,
    "sourceCode": "raise ValueError(...)",
    "sourceCodeStart": 7,
    "sourceCodeEnd": 7,
    "githubUrl": "https://github.com/jax-ml/jax/blob/main/jax/a.py#L7",
    "documentation": "# Too many shards\n",
    "triggerScenarios": "- more shards than devices",
    "commonSituations": None,
    "solutions": ["use fewer"],
    "exampleFix": "assert 1 + 1 == 2",
    "handlingStrategy": "fail fast",
    "validationCode": None,
    "typeGuard": None,
    "tryCatchPattern": None,
    "preventionTips": [],
    "tags": ["shards"],
    "backgroundTag": None,
    "analyzedSha": "0.10.2",
    "analyzedAt": NOW,
    "schemaVersion": 2,
}


def line(**changes):
    record = {name: value for name, value in {**RECORD, **changes}.items() if value is not ...}
    return json.dumps({"record": record, "datasetVersion": NOW})


def other(number, **changes):
    return line(id=f"{number:016x}", slug=f"other-{number}", **changes)


@pytest.fixture
def check(tmp_path, capsys):
    """Return a function that checks lines, and returns the exit code and what is printed."""

    def run(*lines, words=("--no-run",)):
        file = tmp_path / "records.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        code = main(["records", "check", str(file), *words])
        out, err = capsys.readouterr()
        assert err == ""
        return code, out.replace(f"{file}: ", "")

    return run


def test_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_good_file(check):
    assert check(line(), "", other(1)) == (0, "2 records, 0 not valid\n")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"errorClass": ...}, "record: 'errorClass' is a required property"),
        ({"lineNumber": "7"}, "record.lineNumber: '7' is not of type 'integer', 'null'"),
        ({"lineNumber": 0}, "record.lineNumber: 0 is less than the minimum of 1"),
        ({"schemaVersion": 1}, "record.schemaVersion: 2 was expected"),
        ({"id": "0123"}, "record.id: '0123' does not match '^[0-9a-f]{16}$'"),
        ({"slug": "no slug"}, "record.slug: 'no slug' does not match"),
        ({"solutions": []}, "record.solutions: [] should be non-empty"),
        ({"solutions": "use fewer"}, "record.solutions: 'use fewer' is not of type 'array'"),
        ({"tags": [1]}, "record.tags[0]: 1 is not of type 'string'"),
        ({"severity": "bad"}, "record.severity: 'bad' is not one of ['warning', 'error', 'fatal'"),
        ({"githubUrl": "http://example.org"}, "record.githubUrl: 'http://example.org' is not valid"),
        ({"analyzedAt": "yesterday"}, "record.analyzedAt: 'yesterday' does not match"),
        ({"messagePattern": "("}, "record.messagePattern: '(' is not a regular expression"),
        ({"fixed": True}, "record: Additional properties are not allowed ('fixed' was unexpected)"),
    ],
)
def test_what_is_wrong_is_named(check, changes, what):
    code, out = check(other(1), line(**changes))
    first, last = out.splitlines()
    slug = changes.get("slug", "too-many-shards")
    assert code == 1
    assert first.startswith(f"line 2 ({slug}): {what}")
    assert last == "2 records, 1 not valid"


def test_line_that_is_no_json(check):
    code, out = check(line(), "{", "[]", json.dumps({"record": RECORD}))
    assert code == 1
    assert "line 2 (?): it is no JSON: Expecting property name" in out
    assert "line 3 (?): the line: [] is not of type 'object'" in out
    assert "line 4 (too-many-shards): the line: 'datasetVersion' is a required property" in out
    assert out.endswith("4 records, 3 not valid\n")


def test_records_with_the_same_name(check):
    code, out = check(line(), other(1), line(slug="another"))
    assert code == 1
    assert out.splitlines()[0] == "line 3 (another): its id '0123456789abcdef' is that of line 1"


def test_empty_file(check):
    assert check() == (1, "0 records, 0 not valid\n")


def test_fixes_that_do_not_run_are_named(check):
    assert check(
        line(),
        other(1, exampleFix="import sys\nraise ValueError('still\\nwrong')"),
        other(2, exampleFix="while True: pass"),
        other(3, exampleFix="token = psend(x, ..., )) # as published"),
        other(4, exampleFix=None),
        other(5, exampleFix="import os, signal\nos.kill(os.getpid(), signal.SIGABRT)"),
        other(6, exampleFix="import sys; sys.exit(3)"),
        words=("--limit", "3"),
    ) == (
        1,
        "line 2 (other-1): its fix fails: ValueError: still\n"
        "line 3 (other-2): its fix is not done after 3 s\n"
        "line 4 (other-3): its fix is not a Python program: unmatched ')' (fix.py, line 1)\n"
        "line 6 (other-5): its fix fails: signal SIGABRT\n"
        "line 7 (other-6): its fix fails: exit code 3\n"
        "7 records, 0 not valid; 6 fixes executed, 5 do not run\n",
    )


def test_fix_has_the_environment_of_a_reader(monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("PEERAX_SEND", "rendezvous")
    code = (
        "import os\nseen = {n: v for n, v in os.environ.items() if n[:4] in ('JAX_', 'XLA_', 'PEER')}\n"
        "assert seen == {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': '--xla_force_host_platform_device_count=3'}, seen"
    )
    assert run_fix(code, devices=3, limit_s=20) is None


def test_what_a_fix_starts_ends_with_it(tmp_path):
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(2); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    assert run_fix(code, devices=1, limit_s=1) == "its fix is not done after 1 s"
    import time

    time.sleep(2.5)
    assert not mark.exists()


def test_published_fixes_run():
    """The first fixes of the data set that peerax builds itself; test_records runs them all."""
    count, problems, fixes = read(build(["peerax"]).lines)
    assert (count, problems) == (len(fixes), [])
    done = []
    assert list(run_fixes(fixes[:2], devices=1, limit_s=60, jobs=2, done=done.append)) == []
    assert sorted(done, key=lambda fix: fix.line) == fixes[:2]


def test_fixes_are_run_in_parallel_and_told_in_order():
    fixes = [Fix(1, "a", "import time; time.sleep(1); 1/0"), Fix(2, "b", "1/0")]
    problems = list(run_fixes(fixes, devices=1, limit_s=20, jobs=2, done=lambda fix: None))
    assert [problem.line for problem in problems] == [1, 2]


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("x = 1", "x = 1"),
        ("# Before:\nx = 1/0\n\n# After:\nx = 1\n", "\nx = 1\n"),
        ("// before\nx = 1/0\n// after (fixed)\nx = 1\n", "\nx = 1\n"),
        ("Do this:\n```python\nx = 1\n```\n", "x = 1\n"),
        ("```python\nx = 1/0\n```\nbecomes\n```python\nx = 1\n```\n", "x = 1\n"),
        ("# after the loop\nx = 1", "# after the loop\nx = 1"),
    ],
)
def test_program_of_a_fix(text, program):
    assert program_of(text) == program


@pytest.mark.parametrize("option", ["--limit", "--devices", "--jobs"])
def test_numbers_must_be_positive(option, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["records", "check", str(tmp_path / "x.jsonl"), option, "0"])
    assert f"{option} is 0" in capsys.readouterr().err


def test_file_that_cannot_be_read(tmp_path, capsys):
    assert main(["records", "check", str(tmp_path / "x.jsonl")]) == 2
    assert "x.jsonl: No such file or directory" in capsys.readouterr().err
    (tmp_path / "y.jsonl").write_bytes(b"\xff\xfe")
    assert main(["records", "check", str(tmp_path / "y.jsonl")]) == 2
    assert "y.jsonl: it is no text" in capsys.readouterr().err


def test_package_that_is_not_installed(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jsonschema", None)
    (tmp_path / "x.jsonl").write_text(line())
    assert main(["records", "check", str(tmp_path / "x.jsonl")]) == 2
    text = 'peerax records check: this needs the package jsonschema\n  help: pip install "peerax[records]"\n'
    assert capsys.readouterr().err == text
    with pytest.raises(Missing):
        read([])
