"""Diagnostics: what the text looks like, and the exception that carries it."""

import copy
import dataclasses
import pickle

import pytest

from peerax.diagnostics import CODES, Diagnostic, PeeraxError

FULL = Diagnostic(
    "PX203",
    "psend sends float32[2],\nprecv expects float32[8]",
    locations=(("train.py", 41), ("train.py", 43)),
    ranks=(0, 1),
    channel=(0, 1, 7),
    evidence=("rank  0 1\nsend  * .", "recv  . *"),
    help="pass the array itself",
)


def test_shortest_text():
    assert Diagnostic("PX103", "rank 1 is a destination twice").render() == (
        "PX103: source or destination twice\n"
        "  rank 1 is a destination twice\n"
        f"  help: {CODES['PX103'].help}\n"
        "  more: peerax explain PX103"
    )


def test_longest_text():
    assert FULL.render() == (
        "PX203: shapes differ\n"
        "  --> train.py:41\n"
        "  --> train.py:43\n"
        "  psend sends float32[2],\n"
        "  precv expects float32[8]\n"
        "  ranks: 0, 1\n"
        "  channel: 0 -> 1, tag 7\n"
        "  rank  0 1\n"
        "  send  * .\n"
        "  recv  . *\n"
        "  help: pass the array itself\n"
        "  more: peerax explain PX203"
    )


def test_text_of_rank_and_channel_zero():
    text = Diagnostic("PX302", "m", ranks=(0,), channel=(0, 0, 0)).render()
    assert "  ranks: 0\n  channel: 0 -> 0, tag 0\n" in text


def test_a_line_that_is_both_ends_is_shown_once():
    text = Diagnostic("PX302", "m", locations=(("a.py", 2), ("b.py", 1), ("a.py", 2))).render()
    assert text.count("-->") == 2
    assert text.index("a.py:2") < text.index("b.py:1")


def test_severity_is_error_unless_said_otherwise():
    assert Diagnostic("PX302", "m").severity == "error"
    assert Diagnostic("PX302", "m", severity="warning").severity == "warning"


def test_unknown_code_is_refused():
    with pytest.raises(ValueError, match="'PX999' is not a diagnostic code"):
        Diagnostic("PX999", "m")


def test_diagnostics_are_values():
    assert FULL == dataclasses.replace(FULL)
    assert len({FULL, dataclasses.replace(FULL), Diagnostic("PX203", "m")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.message = "other"


def test_error_has_the_text_and_the_parts_of_its_diagnostic():
    error = PeeraxError(FULL)
    assert str(error) == FULL.render()
    assert error.diagnostic is FULL
    assert (error.code, error.title) == ("PX203", "shapes differ")
    assert error.locations == (("train.py", 41), ("train.py", 43))
    assert error.help == "pass the array itself"


def test_error_shows_the_help_of_its_code_by_default():
    assert PeeraxError.of("PX203", "m").help == CODES["PX203"].help


def test_error_of_parts_is_the_error_of_the_diagnostic():
    error = PeeraxError.of(
        FULL.code,
        FULL.message,
        locations=list(FULL.locations),
        evidence=list(FULL.evidence),
        help=FULL.help,
        ranks=range(2),
        channel=FULL.channel,
    )
    assert error.diagnostic == FULL


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_error_can_be_copied_and_pickled(again):
    error = again(PeeraxError(FULL))
    assert type(error) is PeeraxError
    assert error.diagnostic == FULL


def test_traceback_shows_the_public_name():
    assert f"{PeeraxError.__module__}.{PeeraxError.__qualname__}" == "peerax.diagnostics.PeeraxError"
