"""`peerax explain`: pages on stdout, what is not known on stderr and in the exit code."""

import argparse
import io
import json
import re

import pytest

from peerax.cli._explain import add_parser
from peerax.diagnostics import explain, records
from peerax.lint import RULES

MANUAL = "jax-psend-manual-sharding"
PAGE = records()["PX203"].page()


def call(*words):
    parser = argparse.ArgumentParser(prog="peerax")
    add_parser(parser.add_subparsers(required=True))
    namespace = parser.parse_args(["explain", *words])
    return namespace.run(namespace)


@pytest.fixture
def standard_input(monkeypatch):
    def put(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def test_page_of_a_code_says_how_to_prevent_it():
    assert PAGE.startswith(explain("PX203"))
    assert PAGE.removeprefix(explain("PX203")) == (
        "\n## Prevention\n\nWhere it is raised: give precv the shape of the array that psend sends.\n\n"
        "- check the program before it runs, with peerax.check, `peerax check` or the fixture peerax_check\n"
    )


def test_page_of_another_error_says_what_it_looks_like():
    lines = records()[MANUAL].page().splitlines()
    assert lines[0] == "# psend was lowered outside of the manual axes of a shard_map"
    assert lines[2] == "    NotImplementedError: psend currently only supports manual sharding"
    assert lines[4] == "Raised by JAX in `jax/_src/lax/parallel.py`, seen with JAX >=0.10.1."
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## When it happens", "## Fails", "## Why", "## Fixed", "## Prevention"]


def test_prints_plain_markdown_where_there_is_no_terminal(capsys):
    assert call("px203") == 0
    assert capsys.readouterr() == (PAGE, "")


def test_prints_several_pages(capsys):
    assert call("203", "204") == 0
    assert capsys.readouterr().out == f"{PAGE}\n{records()['PX204'].page()}"


def test_renders_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert call("PX203") == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without the colours
    assert "PX203: shapes differ" in out
    assert "def shift(x):" in out
    assert "# PX203" not in out and "```" not in out


def test_prints_markdown_on_a_terminal_if_asked(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert call("--md", "PX203") == 0
    assert capsys.readouterr().out == PAGE


@pytest.mark.parametrize(
    "words",
    [
        ["psend currently only supports manual sharding"],
        "NotImplementedError: psend currently only supports manual sharding".split(),  # without quotes
        [MANUAL],
    ],
)
def test_message(capsys, words):
    assert call(*words) == 0
    assert capsys.readouterr() == (records()[MANUAL].page(), "")


def test_file(capsys, tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff step 1\nINFO: NotImplementedError: psend currently only supports\nmanual sharding\n")
    assert call(str(log)) == 0
    assert capsys.readouterr() == (records()[MANUAL].page(), "")


def test_standard_input(capsys, standard_input):
    standard_input(b"E   NotImplementedError: psend currently only supports manual sharding\n")
    assert call("-") == 0
    assert capsys.readouterr() == (records()[MANUAL].page(), "")


def test_other_errors_in_the_text_are_named(capsys, standard_input):
    standard_input(b"PX204: dtypes differ\nPX203: shapes differ\n")
    assert call("-") == 0
    others = "\n## Also in this text\n\n- `peerax explain PX204`: PX204: dtypes differ\n"
    assert capsys.readouterr() == (PAGE + others, "")


def test_json(capsys):
    assert call("--json", MANUAL, "PX230", "hello world") == 1
    known, near, unknown = map(json.loads, capsys.readouterr().out.splitlines())
    assert (known["query"], known["known"], known["near"]) == (MANUAL, True, [])
    (match,) = known["matches"]
    record = records()[MANUAL]
    assert (match["slug"], match["errorClass"], match["errorMessage"]) == (MANUAL, record.exception, record.message)
    assert record.fixed.code in match["exampleFix"] and record.failing.code in match["exampleFailure"]
    assert match["preventionTips"] == list(record.prevention)
    assert (near["known"], near["matches"]) == (False, [])
    assert "PX203" in [record["slug"] for record in near["near"]]
    assert unknown == {"query": "hello world", "known": False, "matches": [], "near": []}


def test_unknown_code(capsys):
    assert call("PX230") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("peerax explain: not known: 'PX230'\nknown errors with a similar name or message, which may")
    assert "  PX203: shapes differ\n" in err


def test_unknown_code_does_not_hide_the_known_ones(capsys):
    assert call("PX230", "PX203") == 1
    assert capsys.readouterr().out == PAGE


def test_near_miss_is_no_match(capsys):
    assert call("psend is curently only implemneted on GPUs") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "not known" in err and "jax-psend-on-gpus-only" in err


def test_unknown_text(capsys):
    assert call("KeyError: 'stage'") == 1
    assert capsys.readouterr() == (
        "",
        "peerax explain: not known: \"KeyError: 'stage'\"\n"
        "  help: give the whole traceback; docs/errors.md lists what is known\n",
    )


def test_file_that_is_not_there(capsys):
    assert call("nowhere/train.log") == 2
    assert capsys.readouterr() == ("", "peerax explain: cannot read nowhere/train.log: No such file or directory\n")


def test_needs_an_argument(capsys):
    with pytest.raises(SystemExit) as caught:
        call()
    assert caught.value.code == 2
    assert "CODE|MESSAGE|FILE|-" in capsys.readouterr().err


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_rule_of_the_linter(rule, capsys):
    assert call(rule.code.lower()) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# {rule.code}: {rule.title}\n") and rule.help in out
    assert call("--json", rule.code) == 0
    assert json.loads(capsys.readouterr().out)["matches"][0]["fix"] == rule.help
