"""Where the time goes: what waits is found once, at the right end and at the right lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.timeline import Message, RankTime, Span, Timeline
from peerax.timeline._channels import channel_times
from peerax.timeline._transfers import transfers
from peerax.verifier import Cost, Exchange, Program, Recv, Send, simulate
from tests.timeline.timelines import TYPES, deadlock, line, ring_of_pairs
from tests.verifier.programs import small_programs
from tests.verifier.times import BYTES_PER_S, LATENCY_S, compute_s

ANY = st.sampled_from([Cost(LATENCY_S, BYTES_PER_S, compute_s, 2.0), Cost(0.0, 7.0, 0.1), Cost()])
SEMANTICS = st.sampled_from(["rendezvous", "buffered"])

TABLE = """\
channel  sent at     received at  messages  data       sender waits  receiver waits  longest
1 > 2    pipe.py:12  pipe.py:11   2         7.812 KiB  0 s           2.108 ms        2.054 ms
0 > 1    pipe.py:12  pipe.py:11   2         7.812 KiB  54 µs         1 ms            1 ms"""

STUCK = """\
channel  sent at    received at  messages  data  sender waits  receiver waits  longest
0 > 1    dead.py:9  -            0         0 B   100 µs        0 s             100 µs   stuck"""


def test_table():
    assert line(3, 2).channel_table() == TABLE


def test_who_is_stuck():
    # Two of three begin to wait when the last one computes for 100 µs more.
    ring = ((0, 1), (1, 2), (2, 0))
    program = Program.spmd(3, [Send(ring, TYPES, ("dead.py", 9)), Recv(ring, TYPES, ("dead.py", 10))])
    timeline = simulate(program, Cost(compute_s=lambda rank, operation: 1e-4 * (rank == 2)))
    assert timeline.channel_table(1).splitlines()[:2] == STUCK.splitlines()
    assert timeline.channel_table(1).endswith("and 2 more")
    assert all(row.stuck == 1 and not row.messages for row in channel_times(deadlock()))


def test_what_is_not_kept():
    assert line(50, 4, most_spans=100).channel_table().endswith("of the operations that are kept; 292 are not")
    assert line(1, 1).channel_table() == ""


@given(small_programs(), ANY, SEMANTICS, st.integers(0, 60))
def test_each_message_is_within_its_operations(program, cost, semantics, most_spans):
    timeline = simulate(program, cost, semantics=semantics, most_spans=most_spans)
    found = transfers(timeline)
    assert tuple(transfer.message for transfer in found) == timeline.messages
    for transfer in found:
        message, send, recv = transfer.message, transfer.send, transfer.recv
        channel = message.source, message.destination, message.tag
        assert (send.rank, recv.rank) == channel[:2]
        assert channel in send.channels and channel in recv.channels
        assert send.start_s <= message.posted_s <= send.end_s
        assert recv.start_s <= message.received_s <= recv.end_s


def made(*spans, messages, semantics="rendezvous"):
    """A timeline as a run would give it, where clocks are read one after the other."""
    size = 1 + max(max(m.source, m.destination) for m in messages)
    return Timeline((RankTime(9.0, 0.0, 0.0, 0.0, 1),) * size, spans, messages, (), "measured", semantics)


def test_a_message_outside_of_all_operations_has_none():
    send = Span(0, "send", "psend", 2.0, 2.0, 3.0, channels=((0, 1, 0),))
    recv = Span(1, "recv", "precv", 2.0, 2.0, 3.0, channels=((0, 1, 0),))
    for posted, received in ((1.0, 2.5), (2.5, 3.5)):
        (found,) = transfers(made(send, recv, messages=(Message(0, 1, 0, posted, received),)))
        assert (found.send, found.recv) == ((None, recv) if posted < 2 else (send, None))
    (row,) = made(send, recv, messages=(Message(0, 1, 0, 2.0, 3.0, 8),)).channel_table().splitlines()[1:]
    assert row.split() == ["0", ">", "1", "-", "-", "1", "8", "B", "0", "s", "0", "s", "0", "s"]


@pytest.mark.parametrize(("semantics", "waits"), [("buffered", (0.0, 4.0)), ("rendezvous", (4.0, 0.0))])
def test_a_buffered_send_does_not_wait(semantics, waits):
    # Rank 1 exchanges: the message from 0 was there at 3.9, and rank 2 came at 4 to receive what it sends.
    spans = (
        Span(0, "send", "psend", 3.9, 3.9, 4.0, ("a.py", 1), ((0, 1, 0),)),
        Span(1, "exchange", "exchange", 0.0, 4.0, 4.5, ("a.py", 2), ((1, 2, 0), (0, 1, 0))),
        Span(2, "recv", "precv", 4.0, 4.0, 4.4, ("a.py", 3), ((1, 2, 0),)),
    )
    messages = Message(1, 2, 0, 0.0, 4.4), Message(0, 1, 0, 3.9, 4.2)
    rows = channel_times(made(*spans, messages=messages, semantics=semantics))
    assert sum(row.sender_waits_s for row in rows) == waits[0]
    assert sum(row.receiver_waits_s for row in rows) == waits[1]


@given(small_programs(), ANY, SEMANTICS)
def test_the_bytes_of_an_operation_are_those_of_its_messages(program, cost, semantics):
    timeline = simulate(program, cost, semantics=semantics)
    moved = {}
    for transfer in transfers(timeline):
        moved[id(transfer.send)] = moved.get(id(transfer.send), 0) + transfer.message.size_bytes
    for span in timeline.spans:
        # What is left over when the program ends was not received.
        if span.kind == "send" and span.channels:
            assert moved.get(id(span), 0) <= span.size_bytes


@given(small_programs(), ANY, SEMANTICS)
def test_no_wait_is_lost_or_counted_twice(program, cost, semantics):
    timeline = simulate(program, cost, semantics=semantics)
    rows = channel_times(timeline)
    spans = [span for span in timeline.spans if span.channels]
    waits = sum(span.matched_s - span.start_s for span in spans)
    assert sum(row.sender_waits_s + row.receiver_waits_s for row in rows) == pytest.approx(waits)
    assert max((row.longest_wait_s for row in rows), default=0) == max(
        (span.matched_s - span.start_s for span in spans), default=0
    )
    assert sum(row.messages for row in rows) == len(timeline.messages)
    assert sum(row.stuck for row in rows) == sum(not span.complete for span in spans)
    if semantics == "buffered":
        assert all(row.sender_waits_s == 0 for row in rows)


@pytest.mark.parametrize(
    ("late", "waits"),
    [
        # Rank 1 sends to 2 and receives from 0. If 0 is late, it waits for its message; if 2 is, for its receiver.
        (0, {(0, 1, 0): (0.0, 5.0), (1, 2, 0): (0.0, 0.0)}),
        (2, {(0, 1, 0): (0.0, 0.0), (1, 2, 0): (5.0, 0.0)}),
    ],
)
def test_an_exchange_waits_for_the_end_that_is_there_last(late, waits):
    exchange = Exchange(((0, 1), (1, 2)), TYPES, ("a.py", 1), ("a.py", 2), pair=0)
    timeline = simulate(Program.spmd(3, [exchange]), Cost(compute_s=lambda rank, _: 5.0 * (rank == late)))
    found = {row.channel: (row.sender_waits_s, row.receiver_waits_s) for row in channel_times(timeline)}
    assert found == waits


@pytest.mark.parametrize("semantics", ["rendezvous", "buffered"])
@pytest.mark.parametrize("cost", [Cost(), Cost(1.0)])
def test_two_operations_that_touch_are_told_apart(cost, semantics):
    perm = ((0, 1),)
    sends = [Send(perm, TYPES, ("a.py", n)) for n in (1, 2, 3)]
    recvs = [Recv(perm, TYPES, ("a.py", n)) for n in (11, 12, 13)]
    timeline = simulate(Program.spmd(2, [*sends, *recvs]), cost, semantics=semantics)
    places = [(transfer.send.location[1], transfer.recv.location[1]) for transfer in transfers(timeline)]
    assert places == [(1, 11), (2, 12), (3, 13)]


def test_tags_and_lines_of_pairs():
    row = ring_of_pairs().channel_table().splitlines()[1].split()
    assert row[3:7] == ["tag", "3", "ring.py:7", "ring.py:7"]
