"""A timeline in the trace-event format, which Perfetto and chrome://tracing open.

Each rank is a thread, each operation a slice, in which it waits and then moves data. Messages are arrows from slice to
slice and, one row for each channel, slices of their own; the bytes in flight are a counter. Times are in microseconds
there. They are rounded to nanoseconds, as Perfetto does: what is inside of something else stays inside.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from peerax.timeline._boxes import describe
from peerax.timeline._table import heading_of
from peerax.timeline._timeline import Span, Timeline
from peerax.timeline._transfers import Transfer, transfers
from peerax.timeline._units import channel_text, line_of

_PROCESS = 1  # 0 stands for the idle task in Perfetto, and so does thread 0

Event = dict[str, Any]


def to_trace_events(timeline: Timeline) -> str:
    """Return the JSON object."""
    found = transfers(timeline)
    sent: dict[int, list[int]] = {}
    received: dict[int, list[int]] = {}
    for number, transfer in enumerate(found):
        if transfer.send is not None and transfer.recv is not None:
            sent.setdefault(id(transfer.send), []).append(number)
            received.setdefault(id(transfer.recv), []).append(number)
    threads: list[list[Event]] = [[] for _ in range(timeline.size)]
    for span in timeline.spans:
        whole, *parts = _operation(span)
        # Perfetto binds an arrow to the slice that was last begun, in the order of the file: it ends in the last part.
        events = [whole, *(_arrow("s", n, found[n]) for n in sent.get(id(span), ()))]
        events += [*parts, *(_arrow("f", n, found[n]) for n in received.get(id(span), ()))]
        threads[span.rank] += events
    events = [*_merged(threads), *_bytes_in_flight(timeline)]
    for number, transfer in enumerate(found):
        events += _flight(number, transfer)
    # Of equal times, the order above is kept.
    events.sort(key=lambda event: event["ts"])
    about = {"origin": timeline.origin, "semantics": timeline.semantics, "operations not kept": timeline.left_out}
    trace = {"traceEvents": [*_names(timeline), *events], "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(trace, separators=(",", ":"))


def _merged(threads: list[list[Event]]) -> Iterator[Event]:
    """Yield the events of all threads so that each arrow begins before it ends, also if its message took no time."""
    ready = [iter(events) for events in reversed(threads)]
    begun: set[int] = set()
    held: dict[int, tuple[Event, Iterator[Event]]] = {}  # ends of arrows that have not begun, and what is behind them
    while ready or held:
        if not ready:  # the times of a message are wrong: its arrow is lost, and nothing else
            number, (event, events) = held.popitem()
            begun.add(number)
            ready.append(chain([event], events))
        events = ready.pop()
        for event in events:
            if event["ph"] == "f" and event["id"] not in begun:
                held[event["id"]] = event, events
                break
            yield event
            if event["ph"] == "s":
                begun.add(event["id"])
                if event["id"] in held:
                    end, others = held.pop(event["id"])
                    ready.append(chain([end], others))


def _names(timeline: Timeline) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "tid": 0, "args": {"name": heading_of(timeline)}}
    for rank in range(timeline.size):
        name = f"rank {rank}" + (" (stuck)" if rank in timeline.stuck else "")
        where = {"ph": "M", "pid": _PROCESS, "tid": _thread(rank)}
        yield {**where, "name": "thread_name", "args": {"name": name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": rank}}


def _operation(span: Span) -> Iterator[Event]:
    start = _ns(span.start_s)
    matched = max(start, _ns(span.matched_s))
    end = max(matched, _ns(span.end_s))
    args: dict[str, Any] = {"location": line_of(span.location), "bytes": span.size_bytes}
    if span.channels:
        args["channels"] = [channel_text(channel) for channel in span.channels]
    if span.iterations:
        args["iterations"] = [f"{i + 1}/{trip}" for i, trip in span.iterations]
    if span.path:
        args["path"] = span.path
    args["waited_us"] = (matched - start) / 1000
    name = describe(span) if span.complete else f"stuck: {describe(span)}"
    yield _slice(span, name, span.kind if span.complete else "stuck", start, end, args)
    if start < matched and span.complete:
        yield _slice(span, "waits", "waits", start, matched, {})
        if matched < end:
            yield _slice(span, "moves data", "moves", matched, end, {})


def _slice(span: Span, name: str, category: str, start: int, end: int, args: dict[str, Any]) -> Event:
    # A tenth of a nanosecond more: who adds up floating-point numbers may else find the end of an arrow behind it.
    times = {"ts": start / 1000, "dur": (end - start) / 1000 + (1e-4 if end > start else 0.0)}
    return {"ph": "X", "name": name, "cat": category, "pid": _PROCESS, "tid": _thread(span.rank), **times, "args": args}


def _arrow(phase: str, number: int, transfer: Transfer) -> Event:
    message, sends = transfer.message, phase == "s"
    rank = message.source if sends else message.destination
    event = {"ph": phase, "name": "message", "cat": "message", "id": number, "pid": _PROCESS, "tid": _thread(rank)}
    # Without "bp" the arrow would end at the next slice, and not at the one that it is in.
    return {**event, "ts": _inside(transfer)[not sends] / 1000, **({} if sends else {"bp": "e"})}


def _inside(transfer: Transfer) -> tuple[int, int]:
    """Return when an arrow begins and ends: a nanosecond inside of its slices, where another one may touch them.

    A message that takes no time leaves no room for that.
    """
    message, send, recv = transfer.message, transfer.send, transfer.recv
    posted, received = _ns(message.posted_s), _ns(message.received_s)
    if posted + 1 < min(_ns(send.end_s), received):
        posted += 1
    if received - 1 >= max(posted, _ns(recv.matched_s)):
        received -= 1
    return posted, received


def _flight(number: int, transfer: Transfer) -> Iterator[Event]:
    message = transfer.message
    # Those of a name share a row: one for each channel. A local number keeps the rows among those of the process.
    name = channel_text((message.source, message.destination, message.tag))
    where = {"id2": {"local": hex(number)}, "pid": _PROCESS, "tid": _thread(message.source)}
    event = {"name": name, "cat": "in flight", **where}
    args = {"bytes": message.size_bytes}
    yield {"ph": "b", **event, "ts": _ns(message.posted_s) / 1000, "args": args}
    yield {"ph": "e", **event, "ts": _ns(message.received_s) / 1000}


def _bytes_in_flight(timeline: Timeline) -> Iterator[Event]:
    changes: dict[int, int] = {}
    for message in timeline.messages:
        posted, received = _ns(message.posted_s), _ns(message.received_s)
        changes[posted] = changes.get(posted, 0) + message.size_bytes
        changes[received] = changes.get(received, 0) - message.size_bytes
    now = 0
    for at, change in sorted(changes.items()):
        now += change
        where = {"ph": "C", "name": "bytes in flight", "pid": _PROCESS, "tid": 0, "ts": at / 1000}
        yield {**where, "args": {"bytes": now}}


def _thread(rank: int) -> int:
    return rank + 1


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
