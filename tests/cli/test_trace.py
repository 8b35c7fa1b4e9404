"""`peerax trace`: what it prints, what it writes, and what it says about files that it cannot use."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerax.cli import main
from peerax.timeline import Timeline
from tests.timeline.timelines import deadlock, line
from tests.timeline.trace_format import checked

HELP = """\
  help: keep one with open("run.json", "w").write(timeline.to_json()), and show it with peerax trace run.json
"""


@pytest.fixture
def kept(tmp_path):
    """Return a function that keeps a timeline, or a text, in a file, and returns its path."""

    def keep(content, name="run.json"):
        path = tmp_path / name
        path.write_text(content.to_json() if isinstance(content, Timeline) else content, encoding="utf-8")
        return str(path)

    return keep


def test_tables(kept, capsys):
    timeline = line(3, 2)
    assert main(["trace", kept(timeline)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"{timeline.table()}\n\n{timeline.channel_table()}\n", "")


def test_matrix(kept, capsys):
    timeline = line(3, 2)
    assert main(["trace", kept(timeline), "--matrix"]) == 0
    matrix = timeline.matrix()
    assert capsys.readouterr().out.endswith(f"\n\n{matrix.table('data')}\n\n{matrix.table('waits')}\n")


def test_nothing_is_sent(kept, capsys):
    assert main(["trace", kept(line(1, 0))]) == 0
    assert capsys.readouterr().out == f"{line(1, 0).table()}\n"


def test_pictures(kept, tmp_path, capsys):
    timeline = line(3, 2)
    paths = {option: tmp_path / f"out.{option}" for option in ("html", "svg", "chrome")}
    words = [word for option, path in paths.items() for word in (f"--{option}", str(path))]
    assert main(["trace", kept(timeline), *words]) == 0
    assert capsys.readouterr().err.splitlines() == [f"peerax trace: wrote {path}" for path in paths.values()]
    texts = {option: path.read_text("utf-8") for option, path in paths.items()}
    assert texts["html"] == timeline.to_html() and texts["svg"] == timeline.to_svg()
    assert len(checked(texts["chrome"])["s"]) == len(timeline.messages)


def test_compare(kept, tmp_path, capsys):
    first, second = line(3, 2), replace(line(3, 2, semantics="buffered"), origin="measured")
    files = [kept(first), "--compare", kept(second, "other.json")]
    svg, html = tmp_path / "out.svg", tmp_path / "out.html"
    assert main(["trace", *files, "--svg", str(svg), "--html", str(html)]) == 0
    assert capsys.readouterr().out == f"{first.compare(second)}\n"
    assert svg.read_text("utf-8") == first.compare(second).to_svg()
    assert html.read_text("utf-8") == first.compare(second).to_html()


def test_on_a_terminal(kept, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["trace", kept(deadlock())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("\x1b[31msimulated: 4 ranks") and lines[2].startswith("\x1b[1mrank ")
    assert len(lines) == len(f"{deadlock().table()}\n\n{deadlock().channel_table()}".splitlines())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("no JSON", "Expecting value: line 1 column 1 (char 0)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{}", 'a timeline is a JSON object with "timeline": 1'),
        ("[" * 100_000, "it is nested too deeply"),
        (line(2, 1).to_trace_events(), "it is a trace, for ui.perfetto.dev and chrome://tracing"),
        (line(2, 1).to_json().replace('"send"', '"sent"'), "kind of a Span is one of ('send', 'recv', "),
        (
            line(2, 1).to_json().replace("0.001,", "-1,"),
            "busy_s of a RankTime is a number of seconds from 0 to 1e12, not -1",
        ),
        (
            line(2, 1).to_json().replace("0.001,", "NaN,"),
            "busy_s of a RankTime is a number of seconds from 0 to 1e12, not nan",
        ),
        (line(2, 1).to_json().replace('["pipe.py", 12]', '"pipe.py"'), "location of a Span is [file, line] or null"),
    ],
)
def test_what_is_no_timeline(kept, capsys, content, why):
    path = kept(content)
    assert main(["trace", path]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"peerax trace: {path} is no timeline: {why}") and err.endswith(HELP)


def test_files_that_cannot_be_used(kept, tmp_path, capsys):
    path, missing = kept(line(2, 1)), str(tmp_path / "none" / "at_all")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for words, why in [
        ([missing], f"cannot read {missing}: No such file or directory"),
        ([str(tmp_path)], f"cannot read {tmp_path}: Is a directory"),
        ([str(tmp_path / "bytes")], f"{tmp_path / 'bytes'} is no timeline: it is no text"),
        ([path, "--compare", missing], f"cannot read {missing}: No such file or directory"),
        ([path, "--svg", missing], f"cannot write {missing}: No such file or directory"),
        (
            [path, "--compare", kept(line(3, 1), "other.json")],
            f"cannot compare {path} and {tmp_path / 'other.json'}: timelines of one program have as many ranks, "
            "but these have 2 and 3",
        ),
    ]:
        assert main(["trace", *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"peerax trace: {why}")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.just(1e308),
    st.just(10**400),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
)


@given(st.data())
@settings(max_examples=150)
def test_no_file_is_a_traceback(tmp_path_factory, data):
    """A timeline in which one value is another one is refused, or shown."""
    found = json.loads(line(2, 2).to_json())
    places = list(_places(found))
    where = data.draw(st.sampled_from(places))
    inside = found
    for step in where[:-1]:
        inside = inside[step]
    inside[where[-1]] = data.draw(ODD)
    path = tmp_path_factory.getbasetemp() / "odd.json"
    path.write_text(json.dumps(found))
    out = [str(tmp_path_factory.getbasetemp() / f"odd.{option}") for option in ("html", "svg", "chrome")]
    words = ["--matrix", "--html", out[0], "--svg", out[1], "--chrome", out[2]]
    assert main(["trace", str(path), *words]) in (0, 2)


def _places(value, before=()):
    if before:
        yield before
    if isinstance(value, (dict, list)):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[step], (*before, step))


def test_jax_is_not_imported(kept, python):
    program = "import sys; from peerax.cli import main; main(sys.argv[1:]); print('jax' in sys.modules)"
    done = python("-c", program, "trace", kept(line(2, 1)), "--svg", "out.svg", "--matrix")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False"), done.stderr
