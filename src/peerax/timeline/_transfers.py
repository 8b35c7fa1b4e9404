"""Which operations a message is of: the one that sent it, and the one that received it.

A message does not say so itself. It was posted while its sender was in the one, and its receiver had it while in the
other; and where two operations of a channel touch, the bytes that the first one moved tell which of them it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peerax.diagnostics import Channel
from peerax.timeline._timeline import Message, Span, Timeline


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message with both of its operations, where they are known."""

    message: Message
    send: Span | None
    recv: Span | None


def ends(span: Span) -> Iterator[tuple[Channel, bool]]:
    """Yield each channel of an operation, and whether the rank sends on it."""
    for i, channel in enumerate(span.channels):
        source, destination, _ = channel
        # A rank may send to itself: then the first channel is the one that it sends on.
        yield channel, source == span.rank and span.kind != "recv" and (i == 0 or destination != span.rank)


def transfers(timeline: Timeline) -> list[Transfer]:
    """Return all messages, in their order, with their operations."""
    spans: dict[tuple[Channel, bool], list[Span]] = {}
    for span in timeline.spans:
        for end in ends(span):
            spans.setdefault(end, []).append(span)
    numbers: dict[Channel, list[int]] = {}
    for number, message in enumerate(timeline.messages):
        numbers.setdefault((message.source, message.destination, message.tag), []).append(number)
    sends: dict[int, Span | None] = {}
    recvs: dict[int, Span | None] = {}
    messages = timeline.messages
    for channel, of_channel in numbers.items():
        posted = sorted(of_channel, key=lambda number: messages[number].posted_s)
        times = [(messages[number].posted_s, messages[number].size_bytes) for number in posted]
        sends.update(zip(posted, _holders(spans.get((channel, True), ()), times), strict=True))
        received = sorted(of_channel, key=lambda number: messages[number].received_s)
        times = [(messages[number].received_s, messages[number].size_bytes) for number in received]
        recvs.update(zip(received, _holders(spans.get((channel, False), ()), times), strict=True))
    return [Transfer(message, sends[number], recvs[number]) for number, message in enumerate(messages)]


def _holders(spans: Sequence[Span], times: list[tuple[float, int]]) -> Iterator[Span | None]:
    """Yield, for each (time, bytes) of a message, the operation that it is of; both are in the order of time."""
    at, moved = 0, -1  # -1: the operation has no message yet
    for when, size_bytes in times:
        while at < len(spans):
            full = 0 <= moved >= spans[at].size_bytes and at + 1 < len(spans) and spans[at + 1].start_s <= when
            if not full and spans[at].end_s >= when:
                break
            at, moved = at + 1, -1
        if at < len(spans) and spans[at].start_s <= when:
            moved = max(moved, 0) + size_bytes
            yield spans[at]
        else:
            yield None
