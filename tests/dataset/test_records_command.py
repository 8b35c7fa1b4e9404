"""`peerax records`: its commands, what they write, and how they refuse."""

import json
import sys

import pytest

from peerax.cli import main
from peerax.diagnostics import records

pytest.importorskip("packaging")
COUNT = sum(record.origin == "peerax" for record in records().values())


def test_build_prints_lines_and_reports_what_is_not_covered(capsys):
    assert main(["records", "build", "--package", "peerax"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["record"]["repo"] for line in out.splitlines()] == ["peerax"] * COUNT
    first, second = err.splitlines()
    assert first == f"peerax records build: {COUNT} records"
    assert second.startswith("  raise sites of peerax that no record is about: ")


def test_build_writes_a_file_that_check_accepts(tmp_path, capsys):
    pytest.importorskip("jsonschema")
    file = str(tmp_path / "records.jsonl")
    assert main(["records", "build", "--package", "peerax", "--out", file]) == 0
    assert capsys.readouterr().out == ""
    assert main(["records", "check", "--no-run", file]) == 0
    assert capsys.readouterr().out == f"{COUNT} records, 0 not valid\n"


def test_build_lists_what_is_not_covered_on_demand(capsys):
    assert main(["records", "build", "--package", "peerax", "--uncovered"]) == 0
    lines = capsys.readouterr().err.splitlines()[2:]
    assert any(line.startswith("    peerax/diagnostics/_diagnostic.py:") and "ValueError: " in line for line in lines)


def test_build_says_which_records_are_gone(capsys, monkeypatch):
    from peerax.dataset import _build

    manual = records()["jax-psend-manual-sharding"]
    monkeypatch.setattr(_build, "harvest", lambda directory: iter(()))
    monkeypatch.setattr(_build, "text_of", lambda record, source: None)
    monkeypatch.setattr(_build, "records", lambda: {manual.slug: manual})
    assert main(["records", "build", "--package", "jax"]) == 1
    out, err = capsys.readouterr()
    assert f"  raised no more where its record says: {manual.slug} (now: nowhere)\n" in err
    assert json.loads(out)["record"]["filePath"] is None


def test_package_that_is_not_there(capsys):
    assert main(["records", "build", "--package", "no_such_package"]) == 2
    assert capsys.readouterr().err == "peerax records build: no package 'no_such_package' is installed here\n"


def test_file_that_cannot_be_written(tmp_path, capsys):
    assert main(["records", "index", "--out", str(tmp_path / "no" / "x.md")]) == 2
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    pytest.importorskip("markdown_it")
    assert main(["records", "pages", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_index(capsys):
    assert main(["records", "index"]) == 0
    assert capsys.readouterr().out.startswith("# Known errors\n")


def test_without_a_command_they_are_shown(capsys):
    assert main(["records"]) == 2
    assert all(name in capsys.readouterr().err for name in ["build"])


@pytest.mark.parametrize("command", ["build", "check", "pages", "index"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["records", command, "--help"])
    assert caught.value.code == 0
    assert f"peerax records {command}" in capsys.readouterr().out


def test_progress_is_shown_on_a_terminal_only(tmp_path, capsys, monkeypatch):
    pytest.importorskip("jsonschema")
    from tests.dataset.test_check import line

    (tmp_path / "x.jsonl").write_text(line())
    assert main(["records", "check", str(tmp_path / "x.jsonl")]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["records", "check", str(tmp_path / "x.jsonl")]) == 0
    assert capsys.readouterr().out == "1 records, 0 not valid; 1 fixes executed, 0 do not run\n"
