"""What the ranks were doing when a test failed, and the last messages of a trace that the test had."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from peerax.runtime import Trace, extension

if TYPE_CHECKING:
    import pytest

    from peerax.timeline import Message, Span, Timeline

_MOST_LINES = 10  # of one kind


def in_flight(failure: "pytest.ExceptionInfo | None") -> str:
    """Return the text of the section, or "" if there is nothing to say."""
    parts = []
    states = extension().describe_sessions()
    if states:
        parts.append(["the ranks of programs that still run:", *states])
    buffered = extension().buffered_bytes()
    if buffered:
        parts.append([f"sent and not received yet: {buffered} bytes"])
    parts += [part for timeline in _timelines(failure) for part in _last_of(timeline)]
    return "\n".join("\n  ".join(lines) for lines in parts)


def _timelines(failure: "pytest.ExceptionInfo | None") -> "Iterator[Timeline]":
    """Yield what was recorded by the traces among the variables of the functions that the failure went through."""
    seen: list[Any] = []
    for entry in failure.traceback if failure is not None else ():
        for value in entry.frame.f_locals.values():
            # Not isinstance, which asks the value: it may be a stand-in that does not like that.
            if type(value) is Trace and value.timeline is not None and all(value is not other for other in seen):
                seen.append(value)
                yield value.timeline


def _last_of(timeline: "Timeline") -> "Iterator[list[str]]":
    stuck = [_operation(span) for span in timeline.spans if not span.complete]
    if stuck:
        yield ["operations of the trace that were not complete:", *stuck[:_MOST_LINES], *_more(len(stuck))]
    messages = sorted(timeline.messages, key=lambda message: message.received_s)[-_MOST_LINES:]
    if messages:
        yield [f"the last messages of the trace ({len(timeline.messages)} in all):", *map(_message, messages)]


def _more(count: int) -> list[str]:
    return [f"and {count - _MOST_LINES} more"] if count > _MOST_LINES else []


def _operation(span: "Span") -> str:
    place = "" if span.location is None else f" ({span.location[0]}:{span.location[1]})"
    ends = ", ".join(_channel(*channel) for channel in span.channels)
    return f"rank {span.rank}: {span.name}{place}{ends and ', '}{ends}, since {span.start_s * 1e3:.3f} ms"


def _message(message: "Message") -> str:
    return (
        f"{_channel(message.source, message.destination, message.tag)}, {message.size_bytes} bytes, "
        f"sent at {message.posted_s * 1e3:.3f} ms, received at {message.received_s * 1e3:.3f} ms"
    )


def _channel(source: int, destination: int, tag: int) -> str:
    return f"{source} -> {destination}" + (f" tag {tag}" if tag else "")
