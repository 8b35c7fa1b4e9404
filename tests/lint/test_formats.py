"""Text, JSON, GitHub annotations and SARIF."""

import json
import os
import pathlib
import re
import urllib.parse

import pytest

from peerax.lint import RULES, Result, Settings, Unreadable, lint_paths, to_github, to_json, to_sarif, to_text

TEXT = """\
import jax
from jax import lax

perm = [(0, 1), (0, 2)]
lax.psend(1, "x",
          perm)
"""


@pytest.fixture
def result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "my code, 100%"
    directory.mkdir()
    (directory / "a:b.py").write_text(TEXT, encoding="utf-8")
    (directory / "broken.py").write_text("x = (\n", encoding="utf-8")
    return lint_paths([directory.name], Settings(tmp_path))


def test_text(result):
    path = os.path.join("my code, 100%", "a:b.py")
    assert to_text(result).splitlines() == [
        f"{path}:4:8: PXL004 the perm perm has rank 0 as a source more than once",
        "  line 5: psend takes it here",
        f"  help: {RULES['PXL004'].help}",
        f"{path}:5:1: PXL001 psend is called at the level of the module, where no axis is manual",
        f"  help: {RULES['PXL001'].help}",
        f"{path}:5:1: PXL008 jax.lax.psend runs on GPUs only, and nothing asks for one",
        f"  help: {RULES['PXL008'].help}",
        f"{path}:5:1: PXL009 jax.lax.psend is deprecated since JAX 0.12",
        f"  help: {RULES['PXL009'].help}",
        "4 findings in 1 of 2 files; --fix fixes 1",
    ]


def test_numbers_in_words():
    assert to_text(Result(1, (), ())) == "1 file: nothing found"
    assert to_text(Result(1234, (), ())) == "1,234 files: nothing found"


def test_json(result):
    read = json.loads(to_json(result))
    assert read["files"] == 2
    assert [one["code"] for one in read["findings"]] == ["PXL004", "PXL001", "PXL008", "PXL009"]
    assert read["findings"][0] == {
        "code": "PXL004",
        "name": "rank-twice-in-perm",
        "severity": "error",
        "message": "the perm perm has rank 0 as a source more than once",
        "help": RULES["PXL004"].help,
        "path": os.path.join("my code, 100%", "a:b.py"),
        "line": 4,
        "column": 8,
        "end_line": 4,
        "end_column": 24,
        "related": [{"line": 5, "message": "psend takes it here"}],
        "fixable": False,
    }
    assert [one["fixable"] for one in read["findings"]] == [False, False, False, True]
    (broken,) = read["unreadable"]
    assert broken["line"] == 1 and broken["message"].startswith("syntax error")


def _unescape(text):
    return urllib.parse.unquote(text)


def test_github(result):
    lines = to_github(result).splitlines()
    assert len(lines) == 5 and all("file=my code%2C 100%25/" in line for line in lines)
    pattern = re.compile(r"^::(error|warning|notice) ((?:[A-Za-z]+=[^,:]*,?)+)::(.+)$")
    commands = [pattern.fullmatch(line) for line in lines]
    assert [command[1] for command in commands] == ["error", "error", "warning", "warning", "error"]
    properties = [
        {key: _unescape(value) for key, value in (item.split("=", 1) for item in command[2].split(","))}
        for command in commands
    ]
    assert properties[0] == {
        "file": "my code, 100%/a:b.py",
        "line": "4",
        "endLine": "4",
        "title": "PXL004 rank-twice-in-perm",
        "col": "8",
        "endColumn": "24",
    }
    assert "col" not in properties[1] and (properties[1]["line"], properties[1]["endLine"]) == ("5", "6")
    assert _unescape(commands[1][3]).splitlines() == [
        "psend is called at the level of the module, where no axis is manual",
        f"help: {RULES['PXL001'].help}",
    ]
    assert properties[4]["file"].endswith("broken.py")


def test_nothing_is_no_annotation():
    assert to_github(Result(3, (), ())) == ""


LEVELS = {"none", "note", "warning", "error"}


def check_location(location, tmp_path):
    physical = location["physicalLocation"]
    uri = physical["artifactLocation"]["uri"]
    parts = urllib.parse.urlsplit(uri)
    assert re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", uri), "RFC 3986"
    assert parts.scheme in ("", "file") and not (parts.scheme == "" and ":" in uri.split("/")[0])
    path = tmp_path / urllib.parse.unquote(parts.path)
    assert path.is_file()
    region = physical["region"]
    assert region["startLine"] >= 1
    assert region.get("startColumn", 1) >= 1
    if "endLine" in region:
        assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"])
    return path, region


def test_sarif_is_as_the_standard_requires(result, tmp_path):
    """SARIF 2.1.0: the required properties, and the rules that tie them together (the numbers are its sections)."""
    log = json.loads(to_sarif(result, "1.2.3"))
    assert set(log) == {"$schema", "version", "runs"}  # 3.13
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]  # 3.14
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = run["tool"]["driver"]  # 3.18, 3.19
    assert driver["name"] and driver["version"] == "1.2.3"
    rules = driver["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert len({rule["name"] for rule in rules}) == len(rules)  # 3.49
    for rule in rules:
        assert re.fullmatch(r"[A-Z][A-Za-z]+", rule["name"])
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in LEVELS
        assert isinstance(rule["defaultConfiguration"]["enabled"], bool)
    (invocation,) = run["invocations"]  # 3.20
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]  # 3.58
    assert notification["level"] in LEVELS and notification["message"]["text"]
    check_location(notification["locations"][0], tmp_path)
    assert len(run["results"]) == 4
    for found in run["results"]:  # 3.27
        assert found["level"] in LEVELS and found["message"]["text"]
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        (location,) = found["locations"]
        path, region = check_location(location, tmp_path)
        lines = path.read_text().splitlines()
        assert region["endColumn"] <= len(lines[region["endLine"] - 1]) + 1
        ids = [related["id"] for related in found.get("relatedLocations", [])]
        assert len(set(ids)) == len(ids) and all(number >= 0 for number in ids)
        for related in found.get("relatedLocations", []):
            assert related["message"]["text"]
            check_location(related, tmp_path)


def test_sarif_of_nothing():
    (run,) = json.loads(to_sarif(Result(0, (), ()), "1"))["runs"]
    assert run["results"] == []  # present: the tool ran and found nothing (3.14.23)
    assert run["invocations"][0]["executionSuccessful"] is True


def test_sarif_of_a_file_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = Result(1, (), (Unreadable(os.path.abspath(os.sep + "else where.py"), 1, "it is not there"),))
    (run,) = json.loads(to_sarif(result, "1"))["runs"]
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    uri = notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == pathlib.Path(os.path.abspath(os.sep + "else where.py")).as_uri()
