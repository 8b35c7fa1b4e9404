"""`peerax schedule`: what it prints, what it writes, and what it says about what there is not."""

import pytest

from peerax.cli import main
from peerax.pipeline.schedules import SCHEDULES, Costs, Schedule, compare, schedule

NUMBERS = ["--stages", "4", "--microbatches", "8"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_each(name, capsys):
    assert main(["schedule", name, *NUMBERS]) == 0
    made = schedule(name, 4, 8)
    replay = made.replay(Costs().for_chunks(made.chunks))
    assert capsys.readouterr() == (f"{replay.to_text()}\n\n{replay.table()}\n", "")


def test_numbers_and_costs(capsys):
    words = ["--chunks", "3", "--group", "5", "--forward", "3e-3", "--weight", "1.5e-3", "--latency", "1e-4"]
    words += ["--message-bytes", "1000", "--bandwidth", "1e9"]
    assert main(["schedule", "interleaved-zb", "--stages", "2", "--microbatches", "10", *words]) == 0
    costs = Costs(1e-3, 2e-3, weight_s=0.5e-3, latency_s=1e-4, message_bytes=1000, bandwidth_bytes_per_s=1e9)
    replay = schedule("interleaved-zb", 2, 10, 3, group=5).replay(costs)
    assert capsys.readouterr().out == f"{replay.to_text()}\n\n{replay.table()}\n"


def test_files(tmp_path, capsys):
    paths = {option: tmp_path / f"out.{option}" for option in ("html", "svg", "csv")}
    words = [word for option, path in paths.items() for word in (f"--{option}", str(path))]
    assert main(["schedule", "1f1b", *NUMBERS, *words]) == 0
    assert capsys.readouterr().err.splitlines() == [f"peerax schedule: wrote {path}" for path in paths.values()]
    made = schedule("1f1b", 4, 8)
    assert paths["csv"].read_text("utf-8") == made.to_csv()
    assert paths["svg"].read_text("utf-8") == made.to_svg()
    assert paths["html"].read_text("utf-8") == made.to_html()
    assert main(["schedule", str(paths["csv"])]) == 0
    assert capsys.readouterr().out.splitlines()[1:6] == made.to_text().splitlines()[1:] + [""]


def test_a_file_that_cannot_be_run(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n", encoding="utf-8")
    assert main(["schedule", str(path), "--html", str(tmp_path / "out.html")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and not (tmp_path / "out.html").exists()
    assert err.startswith(
        "peerax schedule: the schedule mine cannot be run\n  rank 0: 0B0 (action 2 of its list) waits"
    )


def test_compare(capsys):
    words = ["--stages", "8", "--microbatches", "32", "--forward", "1", "--backward", "2", "--chunks", "4"]
    assert main(["schedule", "compare", *words, "--message-bytes", "100", "--bandwidth", "1000"]) == 0
    costs = Costs(1.0, 2.0, message_bytes=100, bandwidth_bytes_per_s=1000.0)
    assert capsys.readouterr().out == f"{compare(8, 32, costs, chunks=4)}\n"


def test_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["schedule", "zb-h1", *NUMBERS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("\x1b[1mzb-h1: 4 ranks") and lines[1] == "from 0 s"
    assert (
        "\x1b[37;44mF3\x1b[0m \x1b[2m. \x1b[0m \x1b[2m. \x1b[0m \x1b[2m. \x1b[0m \x1b[37;45mI0\x1b[0m \x1b[30;42mW0"
        in lines[2]
    )
    assert main(["schedule", "compare", *NUMBERS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("\x1b[1mschedule") and lines[1].startswith("\x1b[32mzbv")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1f1b"], "1f1b needs --stages and --microbatches, such as --stages 4 --microbatches 8"),
        (["compare", "--stages", "4"], "compare needs --microbatches"),
        (["1fb", *NUMBERS], "there is no schedule '1fb'"),
        (["dualpipev", "--stages", "8", "--microbatches", "8"], "help: take 16 of them, or zbv"),
        (["1f1b", *NUMBERS, "--forward", "-1"], "forward_s is a number, 0 or more, not -1.0"),
        (["compare", *NUMBERS, "--csv", "out.csv"], "compare has no --csv: it is for one schedule"),
        (["nowhere.csv"], "cannot read nowhere.csv: No such file or directory"),
        (["nowhere.csv", "--stages", "4"], "are not for a file"),
        (["1f1b", *NUMBERS, "--svg", "/nowhere/out.svg"], "cannot write /nowhere/out.svg"),
    ],
)
def test_there_is_none(words, said, capsys):
    assert main(["schedule", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_a_file_that_is_no_schedule(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,what\n", encoding="utf-8")
    assert main(["schedule", str(path)]) == 2
    assert f"{path} is no schedule: row 1, column 2: 'what' is no action" in capsys.readouterr().err


def test_help_names_all(capsys):
    with pytest.raises(SystemExit):
        main(["schedule", "--help"])
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in SCHEDULES)


def test_a_schedule_is_public():
    import peerax.pipeline

    assert peerax.pipeline.Schedule is Schedule and set(peerax.pipeline.__all__) <= set(dir(peerax.pipeline))
