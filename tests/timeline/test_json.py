"""A timeline is what it was when it is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Timeline
from peerax.verifier import Cost, simulate
from tests.timeline.timelines import deadlock, line, ring_of_pairs
from tests.verifier.programs import small_programs


@pytest.mark.parametrize("timeline", [line(3, 4), ring_of_pairs(), deadlock(), Timeline((), (), ())])
def test_round_trip(timeline):
    assert Timeline.from_json(timeline.to_json()) == timeline


@given(small_programs(), st.floats(0, 1e-3), st.sampled_from(["rendezvous", "buffered"]))
def test_round_trip_of_any(program, latency_s, semantics):
    timeline = simulate(program, Cost(latency_s, 7.0, 0.1), semantics=semantics)
    assert Timeline.from_json(timeline.to_json()) == timeline


def changed(**changes):
    return json.dumps({**json.loads(line(2, 1).to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", 'a JSON object with "timeline": 1'),
        ("{}", 'a JSON object with "timeline": 1'),
        (changed(timeline=2), 'a JSON object with "timeline": 1'),
        (changed(spans={"fields": ["rank"], "rows": [[0]]}), "the spans of a timeline have the fields"),
        (changed(spans=None), "this is no timeline"),
        (json.dumps({"timeline": 1}), "this is no timeline: 'ranks'"),
        (line(2, 1).to_json().replace("true]", "1]"), "complete of a Span is true or false, not 1"),
        (line(2, 1).to_json().replace("true]", "true, 1]"), "a Span has 12 fields, not 13"),
        (line(2, 1).to_json().replace("[0, 1, 0]", "[0, 2, 0]"), r"the ranks are 0\.\.1, not \[2\]"),
        (changed(origin="guessed"), "origin is 'simulated' or 'measured', not 'guessed'"),
        (changed(stuck=[5]), "ranks are 0..1"),
        ("no JSON", "Expecting value"),
    ],
)
def test_other_text(text, message):
    with pytest.raises(ValueError, match=message):
        Timeline.from_json(text)
