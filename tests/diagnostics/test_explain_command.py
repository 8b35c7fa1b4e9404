"""`peerax explain`: pages on stdout, unknown codes on stderr and in the exit code."""

import argparse
import re

import pytest

from peerax.cli._explain import add_parser
from peerax.diagnostics import explain


def call(*words):
    parser = argparse.ArgumentParser(prog="peerax")
    add_parser(parser.add_subparsers(required=True))
    namespace = parser.parse_args(["explain", *words])
    return namespace.run(namespace)


def test_prints_plain_markdown_where_there_is_no_terminal(capsys):
    assert call("px203") == 0
    assert capsys.readouterr() == (explain("PX203"), "")


def test_prints_several_pages(capsys):
    assert call("203", "204") == 0
    assert capsys.readouterr().out == f"{explain('PX203')}\n{explain('PX204')}"


def test_renders_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert call("PX203") == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without the colours
    assert "PX203: shapes differ" in out
    assert "def shift(x):" in out
    assert "# PX203" not in out and "```" not in out


def test_unknown_code(capsys):
    assert call("PX230") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("peerax explain: there is no diagnostic code 'PX230'\ndid you mean PX20")


def test_unknown_code_does_not_hide_the_known_ones(capsys):
    assert call("PX230", "PX203") == 2
    assert capsys.readouterr().out == explain("PX203")


def test_needs_a_code(capsys):
    with pytest.raises(SystemExit) as caught:
        call()
    assert caught.value.code == 2
    assert "CODE" in capsys.readouterr().err
