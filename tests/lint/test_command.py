"""`peerax lint`: its exit codes, what it prints where, and that it is quick."""

import builtins
import json
import os
import re
import time

import pytest

from peerax.cli import main
from peerax.lint import RULES, Settings, lint_paths
from tests.documents import ROOT
from tests.lint.linted import PRELUDE

CLEAN = PRELUDE + "on_ranks(lambda x: peerax.precv(peerax.psend(x, 'x', right), x, 'x', right))\n"
SEND = "from jax import lax\nlax.psend(1, 'x', [(0, 0)])\n"


@pytest.fixture
def lint(tmp_path, monkeypatch, capsys):
    """Return a function that runs `peerax lint` on some files: lint(*words, name=text) -> exit code, out, err."""
    monkeypatch.chdir(tmp_path)

    def run(*words, **files):
        for name, text in files.items():
            data = text if isinstance(text, bytes) else text.encode()
            (tmp_path / f"{name}.py").write_bytes(data)
        exit_code = main(["lint", *words])
        out, err = capsys.readouterr()
        return exit_code, out, err

    return run


def test_clean(lint):
    assert lint(".", clean=CLEAN) == (0, "1 file: nothing found\n", "")
    assert lint(".", "--format", "github") == (0, "", "")


def test_findings(lint):
    exit_code, out, err = lint("a.py", a=SEND)
    assert (exit_code, err) == (1, "")
    assert out.startswith("a.py:2:1: PXL001 psend is called")
    assert out.endswith("\n3 findings in 1 of 1 file; --fix fixes 1\n")


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_forms_are_for_machines(lint, form):
    exit_code, out, err = lint(".", "--format", form, a=SEND, b="def f(:")
    assert exit_code == 2 and json.loads(out)
    assert err.startswith("peerax lint: ./b.py:1: syntax error in Python 3.")


@pytest.mark.parametrize(
    ("words", "files", "said"),
    [
        (["nowhere"], {}, "nowhere: there is no such file or directory"),
        (["nowhere.py", "a.py"], {"a": SEND}, "nowhere.py: there is no such file or directory"),
        (["a.py"], {"a": "x = 1\nif:\n"}, "a.py:2: syntax error in Python 3."),
        (["a.py"], {"a": b"\n# lax.psend \xff\n"}, "a.py:2: it is not UTF-8: byte 0xff"),
        ([".", "--select", "PXL1"], {"a": SEND}, "--select: there is no rule 'PXL1'"),
    ],
)
def test_what_cannot_be_done(lint, words, files, said):
    exit_code, out, err = lint(*words, **files)
    assert exit_code == 2 and err.startswith(f"peerax lint: {said}")


@pytest.mark.parametrize("words", [[], [".", "--format", "xml"], [".", "--fixx"]])
def test_usage(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["lint", *words])
    assert caught.value.code == 2 and "usage: peerax lint" in capsys.readouterr().err


def test_readable_files_are_linted_all_the_same(lint):
    exit_code, out, _ = lint(".", a=SEND, b="def f(:", empty="")
    assert exit_code == 2 and "3 findings in 1 of 3 files" in out


def test_what_is_no_file(lint, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    os.symlink("nowhere", tmp_path / "link.py")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text(SEND)
    exit_code, out, err = lint(".")
    assert (exit_code, err) == (1, "") and out.startswith("./\ufffd.py:2:1: PXL001 ")
    for form in ("json", "sarif", "github"):
        assert lint(".", "--format", form)[0] == 1
    assert lint("pipe.py")[2] == "peerax lint: pipe.py: it is neither a file nor a directory\n"


def test_selection(lint):
    assert lint(".", "--select", "PXL001,PXL007", a=SEND)[1].splitlines()[-1] == "1 finding in 1 of 1 file"
    assert lint(".", "--ignore", "PXL001, PXL008,PXL009")[0] == 0
    assert lint(".", "--select", "PXL", "--ignore", "pxl00")[0] == 0


def test_fix(lint, tmp_path):
    exit_code, out, err = lint(".", "--fix", "--ignore", "PXL001", a=SEND, clean=CLEAN, broken="def psend(:")
    assert (exit_code, out) == (2, "3 files: nothing found\n")
    assert err.splitlines()[0] == "peerax lint: fixed ./a.py"
    assert (tmp_path / "a.py").read_text() == "from jax import lax\nimport peerax\npeerax.psend(1, 'x', [(0, 0)])\n"
    assert (tmp_path / "clean.py").read_text() == CLEAN
    before = (tmp_path / "a.py").stat().st_mtime_ns
    (tmp_path / "broken.py").unlink()
    assert lint(".", "--fix", "--ignore", "PXL001") == (0, "2 files: nothing found\n", "")
    assert (tmp_path / "a.py").stat().st_mtime_ns == before


def test_fix_keeps_to_the_settings(lint, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.peerax.lint.per-file-ignores]\n"a.py" = ["PXL"]\n')
    assert lint(".", "--fix", a=SEND) == (0, "1 file: nothing found\n", "")
    assert lint(".", "--fix", "--ignore", "PXL009", b=SEND)[2] == ""
    assert (tmp_path / "a.py").read_text() == (tmp_path / "b.py").read_text() == SEND


def test_fix_without_libcst(lint, monkeypatch):
    imported = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "libcst":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert lint(".", "--fix", a=SEND) == (
        2,
        "",
        'peerax lint: --fix needs libcst, which is not installed\n  help: pip install "peerax[lint]"\n',
    )
    assert lint(".")[0] == 1  # to lint nothing is needed


def test_a_file_that_cannot_be_written(lint, tmp_path, monkeypatch):
    opened = builtins.open

    def refuse(path, mode="r", *rest, **named):
        if mode == "wb":
            raise PermissionError(13, "Permission denied")
        return opened(path, mode, *rest, **named)

    monkeypatch.setattr(builtins, "open", refuse)
    exit_code, _, err = lint("a.py", "--fix", a=SEND)
    assert (exit_code, err) == (2, "peerax lint: cannot fix a.py: Permission denied\n")


def test_on_a_terminal(lint, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, _ = lint("a.py", "--select", "PXL009", a=SEND)
    assert out.splitlines()[0] == (
        "\x1b[1ma.py:2:1:\x1b[0m \x1b[31mPXL009\x1b[0m jax.lax.psend is deprecated since JAX 0.12"
    )


def test_help_names_the_rules(capsys):
    with pytest.raises(SystemExit):
        main(["lint", "--help"])
    out = capsys.readouterr().out
    assert all(f"\n  {rule.code}  {rule.title}" in out for rule in RULES.values())


def test_nothing_heavy_is_imported(run_python):
    program = f"""
import sys
from peerax.cli import main
assert main(["lint", {__file__!r}, "--format", "sarif", "--select", "PXL004"]) == 0
heavy = {{name.partition(".")[0] for name in sys.modules}} & {{"jax", "jaxlib", "numpy", "rich", "libcst"}}
assert not heavy, heavy
"""
    done = run_python(program, devices=None)
    assert (done.returncode, done.stderr) == (0, "")


def test_several_processes(lint, tmp_path):
    for i in range(30):
        (tmp_path / f"m{i}.py").write_text(SEND if i % 2 else CLEAN)
    (tmp_path / "m3.py").write_text("def f(:")
    one, two = (lint_paths(["."], Settings(tmp_path), processes=processes) for processes in (1, 2))
    assert one == two and len(one.findings) == 3 * 14 and len(one.unreadable) == 1


def test_a_thousand_files(tmp_path):
    """One file in five communicates, the others are parsed only. Five seconds of one core are enough for all."""
    filler = "\n".join(f"def function_{i}(x, y=None):\n    return [x + {i}, y, 'text']\n" for i in range(80))
    for i in range(1000):
        (tmp_path / f"m{i}.py").write_text(f"{CLEAN if i % 5 == 0 else ''}\n{filler}")
    (tmp_path / "m0.py").write_text(SEND)
    start = time.process_time()  # not the time on the clock, which depends on what else the machine does
    result = lint_paths([str(tmp_path)], Settings(tmp_path))
    assert time.process_time() - start < 5
    assert (result.files, len(result.findings)) == (1000, 3)


def test_the_hooks_of_pre_commit(lint):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^  entry: peerax (.+)$", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^- id: ", text, re.MULTILINE)) == 2
    for entry in entries:
        command, *options = entry.split()
        assert command == "lint" and lint(*options, "clean.py", clean=CLEAN)[0] == 0


def test_many_files_go_to_several_processes(lint, tmp_path):
    for i in range(250):
        (tmp_path / f"m{i}.py").write_text(SEND)
    assert lint(".")[1].splitlines()[-1] == "750 findings in 250 of 250 files; --fix fixes 250"


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_no_code_is_an_error(lint, option):
    code, _, err = lint(option, " , ", "a.py", a=SEND)
    assert code == 2 and "take codes such as PXL001" in err


def test_a_file_that_cannot_be_replaced_stays(lint, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    code, _, err = lint("--fix", "a.py", a=SEND)
    assert code == 2 and "cannot fix a.py: No space left on device" in err
    assert (tmp_path / "a.py").read_text() == SEND
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".peerax")] == []


def test_a_fixed_file_keeps_its_mode_and_its_links(lint, tmp_path):
    (tmp_path / "real.py").write_text(SEND)
    (tmp_path / "real.py").chmod(0o754)
    (tmp_path / "a.py").symlink_to("real.py")
    lint("--fix", "a.py")
    assert (tmp_path / "a.py").is_symlink() and "peerax" in (tmp_path / "real.py").read_text()
    assert (tmp_path / "real.py").stat().st_mode & 0o777 == 0o754
