"""[tool.peerax.lint] in pyproject.toml: which rules for which files, and what is said of a mistake in it."""

import pytest

from peerax.lint import DEFAULT_CODES, RULES, Settings, SettingsError, lint_paths, read_settings

SEND = "from jax import lax\nlax.psend(1, 'x', [(0, 0)])\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that makes a project, and returns the files in which linting found something."""

    def make(table, files=("a.py",), paths=(".",), **given):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text(f"[project]\n\n{table}\n", encoding="utf-8")
        for name in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(SEND, encoding="utf-8")
        settings = read_settings(list(paths), **given)
        found = {}
        for finding in lint_paths(list(paths), settings).findings:
            path = finding.path.replace("\\", "/").removeprefix("./")
            found.setdefault(path, set()).add(finding.code)
        return found

    return make


ALL = {"PXL001", "PXL008", "PXL009"}


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        ("", ALL),
        ("[tool.peerax]", ALL),
        ("[tool.peerax.lint]", ALL),
        ('[tool.peerax.lint]\nselect = ["PXL001"]', {"PXL001"}),
        ('[tool.peerax.lint]\nselect = ["pxl00"]\nignore = ["PXL009"]', {"PXL001", "PXL008"}),
        ('[tool.peerax.lint]\nselect = ["ALL"]', ALL),
        ('[tool.peerax.lint]\nignore = ["PXL"]', set()),
        ("[tool.peerax.lint]\nselect = []", set()),
        ("[tool]\npeerax.lint.ignore = ['PXL008', 'PXL001']", {"PXL009"}),
    ],
)
def test_rules(project, table, codes):
    assert project(table) == ({"a.py": codes} if codes else {})


def test_the_command_line_takes_precedence(project):
    table = '[tool.peerax.lint]\nselect = ["PXL001"]\nignore = ["PXL008"]'
    assert project(table, select=["PXL008", "PXL009"]) == {"a.py": {"PXL009"}}
    assert project(table, ignore=["PXL001"]) == {}


FILES = ("a.py", "tests/test_a.py", "tests/deep/test_b.py", "src/gen/c.py", "src/d_pb2.py", "build/e.py", ".x/f.py")


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ("[]", {"a.py", "tests/test_a.py", "tests/deep/test_b.py", "src/gen/c.py", "src/d_pb2.py"}),
        ('["tests"]', {"a.py", "src/gen/c.py", "src/d_pb2.py"}),
        ('["tests/"]', {"a.py", "src/gen/c.py", "src/d_pb2.py"}),
        ('["tests/deep", "*_pb2.py"]', {"a.py", "tests/test_a.py", "src/gen/c.py"}),
        ('["src/*", "test_*.py"]', {"a.py"}),
        ('["./a.py", "gen", "**/deep/**"]', {"tests/test_a.py", "src/d_pb2.py"}),
    ],
)
def test_exclude(project, patterns, left):
    assert set(project(f"[tool.peerax.lint]\nexclude = {patterns}", FILES)) == left


def test_a_file_that_is_named_may_be_excluded_too(project):
    table = '[tool.peerax.lint]\nexclude = ["tests"]'
    assert project(table, FILES, ["tests/test_a.py", "build/e.py"]) == {"build/e.py": ALL}


def test_per_file_ignores(project):
    table = '[tool.peerax.lint.per-file-ignores]\n"tests/*" = ["PXL008", "PXL001"]\n"a.py" = ["ALL"]'
    assert project(table, FILES[:4]) == {
        "src/gen/c.py": ALL,
        "tests/deep/test_b.py": {"PXL009"},
        "tests/test_a.py": {"PXL009"},
    }


def test_the_nearest_table_counts(project, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pyproject.toml").write_text('[tool.peerax.lint]\nselect = ["PXL009"]\n')
    table = '[tool.peerax.lint]\nselect = ["PXL008"]'
    assert project(table, ["sub/a.py"], ["sub"]) == {"sub/a.py": {"PXL009"}}
    assert project(table, ["sub/a.py", "b.py"]) == {"sub/a.py": {"PXL008"}, "b.py": {"PXL008"}}
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\n")
    assert project(table, ["sub/a.py"], ["sub/a.py"]) == {"sub/a.py": {"PXL008"}}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[tool.peerax.lint]\nselect = ["PXL099"]', "there is no rule 'PXL099'; the rules are PXL001, PXL002"),
        ('[tool.peerax.lint]\nselect = ["E501"]', "there is no rule 'E501'"),
        ('[tool.peerax.lint]\nselect = [""]', "there is no rule ''"),
        ('[tool.peerax.lint]\nselect = "PXL001"', 'select in tool.peerax.lint must be a list of strings, such as ["'),
        ("[tool.peerax.lint]\nexclude = [1]", "exclude in tool.peerax.lint must be a list of strings"),
        ("[tool.peerax.lint]\nselct = []", "has no 'selct'; it has select, ignore, exclude, per-file-ignores"),
        ("[tool.peerax.lint]\nper-file-ignores = []", "per-file-ignores must be a table"),
        ('[tool.peerax.lint]\nper-file-ignores = {"a" = "PXL001"}', "per-file-ignores of 'a' in tool.peerax.lint must"),
        ("[tool.peerax]\nlint = 1", "tool.peerax.lint must be a table"),
        ("[tool", "is no TOML"),
    ],
)
def test_mistakes(project, table, said):
    with pytest.raises(SettingsError) as caught:
        project(table)
    assert said in str(caught.value) and "pyproject.toml" in str(caught.value)


def test_unknown_rules_of_the_command_line(project):
    with pytest.raises(SettingsError, match="--select: there is no rule 'X'"):
        project("", select=["X"])
    with pytest.raises(SettingsError, match="--ignore: there is no rule 'PXL1'"):
        project("", ignore=["PXL1"])


def test_defaults(tmp_path):
    assert {code for code, rule in RULES.items() if not rule.default} == {"PXL007"}
    assert Settings(tmp_path).codes == DEFAULT_CODES == set(RULES) - {"PXL007"}


def test_each_file_once(project, tmp_path, monkeypatch):
    project("", FILES)
    settings = Settings(tmp_path)
    assert lint_paths([".", "a.py", str(tmp_path / "a.py"), "tests"], settings).files == 5
    assert lint_paths(["notes.txt"], settings).unreadable[0].message == "there is no such file or directory"
    (tmp_path / "script").write_text(SEND)
    assert len(lint_paths(["script"], settings).findings) == 3  # named, so it is Python whatever its name ends with
