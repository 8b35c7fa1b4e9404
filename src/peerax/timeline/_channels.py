"""Where the time goes: for each channel its messages, and how long its two ends waited for each other."""

from dataclasses import dataclass, replace

from peerax.diagnostics import Channel, Location
from peerax.timeline._timeline import Span, Timeline
from peerax.timeline._transfers import ends, transfers
from peerax.timeline._units import channel_text, data, duration, in_columns, line_of

_Key = tuple[Channel, Location | None, Location | None]


@dataclass(frozen=True, slots=True)
class ChannelTime:
    """The messages of a channel between two lines.

    Args:
        sent_at, received_at: the lines; None if nobody is known to have been at the other end.
        sender_waits_s, receiver_waits_s: how long the ends waited for each other, in all.
        longest_wait_s: of one operation.
        stuck: the number of operations in which a rank is stuck.
    """

    channel: Channel
    sent_at: Location | None
    received_at: Location | None
    messages: int = 0
    size_bytes: int = 0
    sender_waits_s: float = 0.0
    receiver_waits_s: float = 0.0
    longest_wait_s: float = 0.0
    stuck: int = 0


def channel_times(timeline: Timeline) -> list[ChannelTime]:
    """Return the channels, those whose ends wait longest first.

    The waits of all channels together are those of all operations that send or receive: an exchange waits for its two
    ends at the same time, and its wait counts for the one that was there last.
    """
    found: dict[_Key, ChannelTime] = {}
    # By operation and whether it sends: the operation at the other end, and when that one was there.
    others: dict[tuple[int, bool], tuple[Span | None, float | None]] = {}
    for transfer in transfers(timeline):
        message, send, recv = transfer.message, transfer.send, transfer.recv
        channel = message.source, message.destination, message.tag
        key = channel, send and send.location, recv and recv.location
        row = found.get(key) or ChannelTime(*key)
        found[key] = replace(row, messages=row.messages + 1, size_bytes=row.size_bytes + message.size_bytes)
        if send is not None:
            others.setdefault((id(send), True), (recv, recv and recv.start_s))
        if recv is not None:
            others.setdefault((id(recv), False), (send, message.posted_s))
    for span in timeline.spans:
        end = _last_end(span, others, timeline.semantics == "buffered")
        if end is None:
            continue
        channel, sends = end
        other, _ = others.get((id(span), sends), (None, None))
        places = span.location, other and other.location
        key = channel, *(places if sends else places[::-1])
        row = found.get(key) or ChannelTime(*key)
        waits = span.matched_s - span.start_s
        row = replace(row, longest_wait_s=max(row.longest_wait_s, waits), stuck=row.stuck + (not span.complete))
        if sends:
            found[key] = replace(row, sender_waits_s=row.sender_waits_s + waits)
        else:
            found[key] = replace(row, receiver_waits_s=row.receiver_waits_s + waits)
    return sorted(found.values(), key=lambda row: (-row.sender_waits_s - row.receiver_waits_s, row.channel, str(row)))


def _last_end(span: Span, others: dict, buffered: bool) -> tuple[Channel, bool] | None:
    """Return the end for which an operation waited: of the two of an exchange, the one that was there last."""
    both = list(ends(span))
    if len(both) < 2:
        return both[0] if both else None
    send, recv = sorted(both, key=lambda end: not end[1])
    _, posted = others.get((id(span), False), (None, None))
    _, wanted = others.get((id(span), True), (None, None))
    if buffered or posted is None or posted >= span.matched_s:
        return recv
    return send if wanted is None or wanted > posted else recv


def channel_rows(timeline: Timeline, most: int) -> tuple[list[list[str]], int]:
    """Return a row for each of the channels whose ends wait longest, and how many others there are."""
    found = channel_times(timeline)
    rows = [["channel", "sent at", "received at", "messages", "data", "sender waits", "receiver waits", "longest", ""]]
    for row in found[:most]:
        rows.append(
            [
                channel_text(row.channel),
                _place(row.sent_at),
                _place(row.received_at),
                f"{row.messages:,}",
                data(row.size_bytes),
                duration(row.sender_waits_s),
                duration(row.receiver_waits_s),
                duration(row.longest_wait_s),
                "stuck" if row.stuck else "",
            ]
        )
    return rows, max(0, len(found) - most)


def channel_table(timeline: Timeline, most: int) -> str:
    """Return the rows as plain text, without a newline at its end; no text if nothing is sent."""
    rows, more = channel_rows(timeline, most)
    if len(rows) == 1:
        return ""
    text = in_columns(rows)
    if more:
        text += f"\nand {more:,} more"
    if timeline.left_out:
        text += f"\nof the operations that are kept; {timeline.left_out:,} are not"
    return text


def _place(location: Location | None) -> str:
    return "-" if location is None else line_of(location)
