"""The rules of the trace-event format, as chrome://tracing and Perfetto read it."""

import json
import math
from collections import defaultdict


def checked(text):
    """Return the events of a trace by phase; a rule that is broken is an AssertionError."""
    trace = json.loads(text, parse_constant=lambda name: AssertionError(name))
    events = trace["traceEvents"]
    by_phase = defaultdict(list)
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["name"], event
        if event["ph"] != "M":
            assert isinstance(event["ts"], (int, float)) and math.isfinite(event["ts"]) and event["ts"] >= 0, event
        by_phase[event["ph"]].append(event)
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert set(by_phase) <= set("MXbesfC")
    _check_names(by_phase)
    _check_flights(by_phase)
    for event in by_phase["C"]:
        assert all(isinstance(value, int) and value >= 0 for value in event["args"].values()), event
    assert bound(events).keys() == {event["id"] for event in by_phase["s"]}
    return by_phase


def _check_names(by_phase):
    found = defaultdict(dict)
    for event in by_phase["M"]:
        assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
        assert event["name"] not in found[event["pid"], event["tid"]]
        found[event["pid"], event["tid"]][event["name"]] = event["args"]
    for event in by_phase["X"]:
        names = found[event["pid"], event["tid"]]
        assert isinstance(names["thread_name"]["name"], str) and isinstance(
            names["thread_sort_index"]["sort_index"], int
        )
        # Thread 0 and process 0 are the idle task.
        assert event["pid"] > 0 and event["tid"] > 0 and event["dur"] >= 0


def _check_flights(by_phase):
    begun = {}
    for event in by_phase["b"]:
        key = event["pid"], event["cat"], event["id2"]["local"]
        assert key not in begun
        begun[key] = event
    for event in by_phase["e"]:
        begin = begun.pop((event["pid"], event["cat"], event["id2"]["local"]))
        assert begin["name"] == event["name"] and begin["ts"] <= event["ts"]
    assert not begun


def bound(events):
    """Return, by id, the outermost slices from which and to which each arrow goes.

    As in Perfetto: events are read in the order of time, and equal ones in that of the file; a slice is over when
    another one begins in its thread at its end or later; an arrow is bound to the slice that was last begun.
    """
    stacks, starts, arrows = defaultdict(list), {}, {}
    for event in sorted((event for event in events if event["ph"] in "Xsf"), key=lambda event: event["ts"]):
        stack = stacks[event["pid"], event["tid"]]
        at = ns(event["ts"])
        if event["ph"] == "X":
            while stack and end_of(stack[-1]) <= at:
                stack.pop()
            assert not stack or end_of(event) <= end_of(stack[-1]), f"{event} is not inside of {stack[-1]}"
            stack.append(event)
            continue
        assert ns(stack[-1]["ts"]) <= at <= end_of(stack[-1]), f"{event} is not in a slice"
        if event["ph"] == "s":
            assert event["id"] not in starts and event["id"] not in arrows
            starts[event["id"]] = stack[0]
        else:
            assert event["bp"] == "e"
            arrows[event["id"]] = starts.pop(event["id"]), stack[0]
    assert not starts
    return arrows


def ns(us):
    return round(us * 1000)


def end_of(event):
    return ns(event["ts"]) + ns(event["dur"])
