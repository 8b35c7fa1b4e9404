"""A trace follows the rules of its format, and says what the timeline says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Message, RankTime, Span, Timeline
from peerax.verifier import Cost, Loop, Program, Recv, Send, simulate
from tests.timeline.timelines import deadlock, line, ring_of_pairs
from tests.timeline.trace_format import bound, checked, end_of, ns
from tests.verifier.programs import small_programs
from tests.verifier.times import BYTES_PER_S, LATENCY_S, compute_s

COSTS = [Cost(LATENCY_S, BYTES_PER_S, compute_s, 2.0), Cost(1e-6, 1e9, 3.3e-7), Cost(0.0, 7.0, 1e-10), Cost()]


@pytest.mark.parametrize(
    "timeline",
    [line(1, 0), line(3, 2), line(3, 2, semantics="buffered"), ring_of_pairs(), ring_of_pairs(1), deadlock()],
)
def test_the_rules(timeline):
    events = checked(timeline.to_trace_events())
    assert len(events["b"]) == len(events["s"]) == len(timeline.messages)
    assert sum(event["name"] == "thread_name" for event in events["M"]) == timeline.size


def test_nothing_at_all():
    assert set(checked(Timeline((), (), ()).to_trace_events())) <= set("MXbesfC")


@given(small_programs(), st.sampled_from(COSTS), st.sampled_from(["rendezvous", "buffered"]), st.integers(0, 40))
def test_the_rules_for_any(program, cost, semantics, most_spans):
    timeline = simulate(program, cost, semantics=semantics, most_spans=most_spans)
    text = timeline.to_trace_events()
    events = checked(text)
    outer = [event for event in events["X"] if event["cat"] not in ("waits", "moves")]
    assert len(outer) == len(timeline.spans)
    # With all that is kept, each message is an arrow from its sender to its receiver, and lies within both.
    arrows = bound(json.loads(text)["traceEvents"])
    assert len(arrows) == len(timeline.messages) == len(events["b"])
    for number, (source, destination) in arrows.items():
        message = timeline.messages[number]
        assert (source["tid"], destination["tid"]) == (message.source + 1, message.destination + 1)
        assert ns(source["ts"]) <= round(message.posted_s * 1e9) <= end_of(source)
        assert ns(destination["ts"]) <= round(message.received_s * 1e9) <= end_of(destination)
        assert f"> {message.destination}" in source["name"] and f"< {message.source}" in destination["name"]
    values = [event["args"]["bytes"] for event in events["C"]]
    assert not values or values[-1] == 0


def test_an_arrow_ends_in_its_slice_for_who_adds_up_floating_point_numbers():
    step = (Recv(((0, 1),), ("float32[4]",), ("a.py", 1)), Send(((0, 1),), ("float32[4]",), ("a.py", 2)))
    program = Program.spmd(2, [Loop(40, step, ("a.py", 0))])
    # Messages take no time: an arrow ends exactly where its slice does.
    timeline = simulate(program, Cost(compute_s=lambda rank, operation: 1.1e-4 / 3 * (rank == 0)))
    text = timeline.to_trace_events()
    arrows = bound(json.loads(text)["traceEvents"])
    for event in checked(text)["f"]:
        destination = arrows[event["id"]][1]
        # As chrome://tracing does it, in milliseconds.
        assert destination["ts"] / 1000 + destination["dur"] / 1000 >= event["ts"] / 1000


def test_what_an_operation_says():
    events = checked(line(2, 3).to_trace_events())
    first = next(event for event in events["X"] if event["tid"] == 2)
    assert first == {
        "ph": "X",
        "name": "precv < 0",
        "cat": "recv",
        "pid": 1,
        "tid": 2,
        "ts": 0.0,
        "dur": pytest.approx(1054.0, abs=2e-4),
        "args": {
            "location": "pipe.py:11",
            "bytes": 4000,
            "channels": ["0 > 1"],
            "iterations": ["1/3"],
            "waited_us": 1000.0,
        },
    }
    waits, moves = [event for event in events["X"] if event["tid"] == 2][1:3]
    assert (waits["name"], waits["ts"], waits["dur"]) == ("waits", 0.0, pytest.approx(1000.0, abs=2e-4))
    assert (moves["name"], moves["ts"], moves["dur"]) == ("moves data", 1000.0, pytest.approx(54.0, abs=2e-4))


def test_bytes_in_flight():
    perm, types = ((0, 1),), ("float32[1000]",)
    program = Program.spmd(2, [Send(perm, types, ("a.py", 1))] * 2 + [Recv(perm, types, ("a.py", 2))] * 2)
    timeline = simulate(program, Cost(1e-3, compute_s={("a.py", 1): 1e-4}), semantics="buffered")
    counts = [(event["ts"], event["args"]["bytes"]) for event in checked(timeline.to_trace_events())["C"]]
    assert counts == [(100.0, 4000), (200.0, 8000), (1100.0, 4000), (1200.0, 0)]


def test_who_is_stuck():
    events = checked(deadlock().to_trace_events())
    names = [event["args"]["name"] for event in events["M"] if event["name"] == "thread_name"]
    assert names == ["rank 0 (stuck)", "rank 1 (stuck)", "rank 2 (stuck)", "rank 3"]
    stuck = [event for event in events["X"] if event["cat"] == "stuck"]
    assert [event["name"] for event in stuck] == ["stuck: psend > 1", "stuck: psend > 2", "stuck: psend > 0"]


def test_messages_that_are_received_before_they_are_sent():
    """Clocks may be wrong; that costs arrows, and nothing else."""
    spans, messages = [], []
    for rank, other in ((0, 1), (1, 0)):
        spans.append(Span(rank, "recv", "precv", 0.0, 0.5, 1.0, channels=((other, rank, 0),)))
        spans.append(Span(rank, "send", "psend", 2.0, 2.5, 3.0, channels=((rank, other, 0),)))
        messages.append(Message(rank, other, 0, 2.5, 0.5))
    timeline = Timeline((RankTime(3.0, 1.0, 1.0, 1.0, 2),) * 2, tuple(spans), tuple(messages), (), "measured")
    events = json.loads(timeline.to_trace_events())["traceEvents"]
    assert [(event["ph"], event["ts"]) for event in events if event["ph"] in "sf"] == [("f", 0.5e6)] * 2 + [
        ("s", 2.5e6)
    ] * 2
    assert sum(event["ph"] == "X" for event in events) == 3 * 4


def changed(find, change):
    """A trace in which the first event that is like this is another one."""
    trace = json.loads(line(3, 2).to_trace_events())
    event = next(event for event in trace["traceEvents"] if find.items() <= event.items())
    if change is None:
        trace["traceEvents"].remove(event)
    else:
        event.update(change)
    return json.dumps(trace)


@pytest.mark.parametrize(
    ("find", "change"),
    [
        ({"ph": "e"}, None),
        ({"ph": "b"}, {"id2": {"local": "0x99"}}),
        ({"ph": "e"}, {"ts": 0.0}),
        ({"ph": "s"}, None),
        ({"ph": "f"}, {"bp": "s"}),
        ({"ph": "f"}, {"ts": 1e9}),
        ({"ph": "s"}, {"ts": 0.0}),
        ({"ph": "X", "tid": 1}, {"dur": 1080.0}),
        ({"ph": "X"}, {"ts": -1.0}),
        ({"ph": "X"}, {"tid": 9}),
        ({"ph": "M", "name": "thread_name"}, None),
        ({"ph": "C"}, {"args": {"bytes": -1}}),
    ],
)
def test_the_rules_can_be_broken(find, change):
    with pytest.raises((AssertionError, KeyError, IndexError)):
        checked(changed(find, change))
