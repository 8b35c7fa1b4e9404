"""Run the programs that the documents show: one that fails must do so with its code, the others must work."""

import importlib.util
import pathlib
import tomllib

import pytest

from peerax.diagnostics import CODES
from tests.documents import ROOT, Fence, Program, documents, fences, programs, prose, run

PROGRAMS = [program for path in documents() for program in programs(path)]
LONGEST_FAILURE_S = 30


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.fence))
def test_program(program):
    if program.fragment:
        assert "fragment" in prose(program.fence.path), "the document does not say which code is a fragment"
        pytest.skip("a fragment, not a program")
    for package in program.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    outcome = run(program)
    report = f"{outcome}\n--- stdout\n{outcome.stdout}\n--- stderr\n{outcome.stderr}"
    assert outcome.returncode is not None, f"{program.fence} did not end\n{report}"
    if program.fails is None:
        assert outcome.returncode == 0, f"{program.fence} failed\n{report}"
    else:
        # Negative means that a signal ended the process: an error must leave it alive.
        assert outcome.returncode > 0, f"{program.fence} did not end with an exception\n{report}"
        # With the title, so that a code in a line of the program itself does not count.
        expected = f"{program.fails}: {CODES[program.fails].title}"
        assert expected in outcome.stderr, f"{program.fence} did not report {expected}\n{report}"
        assert outcome.wall_s < LONGEST_FAILURE_S, f"{program.fence} took {outcome.wall_s:.0f} s\n{report}"


def test_the_documents_are_found():
    assert {"README.md", "semantics.md", "testing.md"} <= {path.name for path in documents()}


TEXT = """\
Some text.

```python devices=2 fails=PX203 env=A=1 env=B=x=y
first
    second
```

1.  In a list:

    ~~~~sh
    echo '
    ~~~
    '
    ~~~~

```
no language
```
The end.
"""


@pytest.fixture
def document(tmp_path):
    def write(text: str) -> pathlib.Path:
        path = tmp_path / "document.md"
        path.write_text(text)
        return path

    return write


def test_fences(document):
    path = document(TEXT)
    assert list(fences(path)) == [
        Fence(path, 3, ("python", "devices=2", "fails=PX203", "env=A=1", "env=B=x=y"), "first\n    second\n"),
        Fence(path, 10, ("sh",), "echo '\n~~~\n'\n"),
        Fence(path, 16, (), "no language\n"),
    ]


def test_prose_has_no_code(document):
    text = prose(document(TEXT))
    assert text.split() == ["Some", "text.", "1.", "In", "a", "list:", "The", "end."]
    assert len(text.splitlines()) == len(TEXT.splitlines())


def test_words_of_a_program(document):
    (program,) = programs(document(TEXT))
    assert (program.devices, program.env, program.fails) == (2, (("A", "1"), ("B", "x=y")), "PX203")
    assert not program.fragment
    (program,) = programs(document("```python fragment\n...\n```\n"))
    assert (program.devices, program.env, program.fails, program.fragment) == (1, (), None, True)
    (program,) = programs(document("```python needs=optax needs=orbax\n...\n```\n"))
    assert program.needs == ("optax", "orbax")


@pytest.mark.parametrize("words", ["device=4", "devices=four", "fails=203", "env=A", "needs=", "fragments", "run"])
def test_misspelt_word_is_an_error(document, words):
    with pytest.raises(ValueError, match=r"document\.md:1: cannot understand"):
        list(programs(document(f"```python {words}\n```\n")))


def test_other_name_of_python_is_an_error(document):
    with pytest.raises(ValueError, match="write `python`"):
        list(programs(document("```py\n```\n")))


def test_open_fence_is_an_error(document):
    with pytest.raises(ValueError, match=r"document\.md:2: .*never closed"):
        list(fences(document("text\n```python\ncode\n~~~\n")))


def program_of(path: pathlib.Path, code: str, **changes) -> Program:
    options = {"devices": 1, "env": (), "fails": None, "fragment": False, **changes}
    return Program(Fence(path, 7, ("python",), code), **options)


def test_run_gives_the_readers_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PEERAX_SEND", "rendezvous")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    code = """
import os, sys
print({name: value for name, value in os.environ.items() if name.startswith(("JAX", "XLA", "PEERAX"))})
sys.exit(os.path.basename(__file__))
"""
    outcome = run(program_of(tmp_path / "page.md", code, devices=3, env=(("PEERAX_TIMEOUT_S", "1"),)))
    assert eval(outcome.stdout) == {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
        "PEERAX_TIMEOUT_S": "1",
    }
    assert (outcome.returncode, outcome.stderr) == (1, "page_line_7.py\n")


def test_run_ends_at_the_limit(tmp_path):
    code = "import time\nprint('started', flush=True)\ntime.sleep(60)\n"
    outcome = run(program_of(tmp_path / "page.md", code), limit_s=2)
    assert (outcome.returncode, outcome.stdout) == (None, "started\n")
    assert outcome.wall_s < 30


def test_contributing_names_the_rooms_as_the_contract_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    rooms = [name for name in layers if not name.startswith("(")]
    assert f"`{' → '.join(rooms)}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
