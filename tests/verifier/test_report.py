"""What a report says: both lines, ranks and channel in words, the cycle with its victims, bounded, and as JSON."""

import json

import pytest

from peerax.diagnostics import CODES, Diagnostic, PeeraxError
from peerax.verifier import Collective, Exchange, Loop, Program, Recv, Report, Send, check_program

SIZE = 64
RING = tuple((i, (i + 1) % SIZE) for i in range(SIZE))
FWD, BWD = RING[:-1], tuple((b, a) for a, b in RING[:-1])
ALL = (tuple(range(SIZE)),)


def at(line):
    return ("step.py", line)


def S(line, perm, type="float32[8]", tag=0):
    return Send(tuple(perm), (type,), at(line), tag)


def R(line, perm, type="float32[8]", tag=0):
    return Recv(tuple(perm), (type,), at(line), tag)


def text(*body, semantics="rendezvous"):
    return check_program(Program.spmd(SIZE, body), semantics).render()


def test_a_safe_program():
    assert text(S(1, FWD), R(2, FWD)) == (
        "safe: no rank can hang, and each message meets an end of its shape and dtype (64 ranks, rendezvous sends)\n"
        "\n"
        "assumed:\n"
        "  a send completes when it is received"
    )


def test_a_long_cycle_is_folded():
    assert """
PX208: cycle: hangs without buffers
  --> step.py:41
  --> step.py:42
  ranks 0-63 wait for each other; it works only while messages fit buffers
  ranks: 0-63
  channel: 0 -> 1, tag 0
  the cycle:
    each of 0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 0 waits in psend at step.py:41 for the next one to reach \
precv at step.py:42
  help: make each exchange a pair by giving precv the token of its psend, or let one rank of the cycle receive first
  more: peerax explain PX208
""" in text(S(41, RING), R(42, RING))


def test_victims_are_folded():
    cross = [S(1, ((0, 1),)), S(2, ((1, 0),)), R(3, ((0, 1),)), R(4, ((1, 0),))]
    report = text(Loop(9, (*cross, Collective("psum", ALL, (), at(5))), at(9)))
    expected = """
  the cycle:
    rank 0 waits in psend at step.py:1, iteration 1 of 9 for rank 1 to reach precv at step.py:3
    rank 1 waits in psend at step.py:2, iteration 1 of 9 for rank 0 to reach precv at step.py:4
  waiting for these:
    ranks 2-63 in psum at step.py:5
"""
    assert expected in report


def test_a_collective_in_a_cycle():
    report = text(S(1, ((0, 1),)), Collective("psum", ALL, ("float32[]",), at(2)), R(3, ((0, 1),)))
    assert "rank 1 waits in psum at step.py:2 for rank 0 to reach psum at step.py:2" in report
    assert "help: put the collective before the psend or behind the precv of the message, on every rank" in report


def test_expected_and_found():
    report = text(S(1, FWD, "float32[64,128]"), R(2, FWD, "float32[128,128]"))
    assert (
        """
PX203: shapes differ
  --> step.py:1
  --> step.py:2
  rank 0 sends float32[64,128] in psend at step.py:1, and rank 1 expects float32[128,128] in precv at step.py:2
  and 62 more on other channels
"""
        in report
    )


def test_which_message_is_left_over():
    program = Program.of([(Loop(6, (S(1, ((0, 1),)),), at(9)),), (Loop(5, (R(2, ((0, 1),)),), at(9)),)])
    assert """
  rank 0 sends to rank 1 in psend at step.py:1, iteration 6 of 6, and rank 1 never receives it
  on this channel: 6 messages sent, 5 received
""" in check_program(program).render()


def test_what_buffers_resolve_is_a_warning_with_buffers():
    report = check_program(Program.spmd(SIZE, [S(1, RING), R(2, RING)]), "buffered")
    assert report.ok and "\nwarning: PX208: cycle" in report.render()
    report.raise_if_unsafe()


def test_raising():
    with pytest.raises(PeeraxError) as caught:
        check_program(Program.spmd(SIZE, [R(1, RING), S(2, RING)])).raise_if_unsafe()
    assert caught.value.code == "PX207"
    assert "waits in precv at step.py:1" in str(caught.value)
    assert caught.value.title == "cycle: hangs always"


def test_a_report_is_bounded():
    body = [S(line, ((0, 1),), tag=line) for line in range(1, 100)]
    report = check_program(Program.spmd(2, body))
    assert len(report.diagnostics) == 99
    assert report.render().count("PX201: ") == 20 and "\nand 79 more\n" in report.render()


def test_json():
    report = check_program(Program.spmd(4, [S(1, FWD[:3]), R(2, FWD[:2])]))
    loaded = json.loads(report.to_json())
    (found,) = loaded.pop("diagnostics")
    assert loaded == {
        "verdict": "unsafe",
        "semantics": "rendezvous",
        "ranks": 4,
        "assumptions": ["a send completes when it is received"],
    }
    assert found["code"] == "PX201" and found["title"] == CODES["PX201"].title
    assert found["locations"] == [{"file": "step.py", "line": 1}]
    assert found["ranks"] == [2, 3] and found["channel"] == {"source": 2, "destination": 3, "tag": 0}


def test_assumptions_are_shown():
    report = Report("undecided", (), "buffered", 1, ("a call of foo does not communicate",))
    assert report.render().startswith("undecided: it cannot be said whether a rank can hang (1 rank, buffered sends)")
    assert report.render().endswith("\n  a call of foo does not communicate")


def test_semantics_are_checked():
    with pytest.raises(ValueError):
        check_program(Program.spmd(1, []), "eager")


def test_a_pair_that_one_rank_leaves_out_is_one_finding():
    pair = Exchange(RING, ("f[1]",), at(1), at(2), 0)
    program = Program.of([(), *[(pair,)] * (SIZE - 1)])
    (found,) = check_program(program).diagnostics
    assert (found.code, found.locations) == ("PX202", (at(1), at(2)))
    expected = "rank 1 takes part in the pair of psend and precv at step.py:1, and rank 0 does not"
    assert found.message.startswith(expected)


def test_html():
    report = check_program(Program.spmd(SIZE, [S(1, RING), R(2, RING), S(3, FWD), R(4, FWD, "<f>")]))
    page = report.to_html()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "PX208" in page and "step.py:1" in page and "and 48 more ranks" in page
    assert "http" not in page and "<script" not in page and "<f>" not in page
    found = Diagnostic("PX203", "x < y", (("step.py", 4),), severity="warning")
    assert "warning: PX203" in Report("safe", (found,), "buffered", 0).to_html()
    assert "and 1 more" in Report("safe", (found,) * 3, "buffered", 2).to_html(most=2)


def test_html_shows_the_lines(tmp_path):
    source = tmp_path / "step.py"
    source.write_text("first\nsecond <b>\n")
    found = Diagnostic("PX201", "", ((str(source), 2), (str(source), 99)))
    assert "second &lt;b&gt;" in Report("unsafe", (found,), "rendezvous", 2).to_html()
