"""The timeline of a program: for each rank its operations with their times, and the messages between them.

It is the same value for a simulation and for a real run, so that both have the same views and can be compared. What a
rank does between two operations is computing; so the operations and the end of each rank are all there is to note.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from peerax.diagnostics import Channel, Location

if TYPE_CHECKING:
    from peerax.timeline._compare import Comparison
    from peerax.timeline._matrix import Matrix

Kind = Literal["send", "recv", "exchange", "collective"]
Iterations = tuple[tuple[int, int], ...]  # (iteration, trip count) of each loop around, outermost first


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one rank, from when it begins to when it is over.

    Args:
        start_s: when the rank began to wait in it.
        matched_s: when the other end was there too: of several ends the last one, of a collective all its members.
        end_s: when it was over. For one that is not complete, all three are what is known at the end of the timeline.
        name: what the user called, such as "psend" or "psum".
        location: the user's line, if it is known.
        channels: the channels of its ends; of an exchange that it is sent on first. A collective has none.
        size_bytes: of one message, or what each rank gives to a collective.
        iterations: where the rank was in the loops around.
        path: tells values, tangents and cotangents apart.
        complete: False for one that the rank is stuck in.
    """

    rank: int
    kind: Kind
    name: str
    start_s: float
    matched_s: float
    end_s: float
    location: Location | None = None
    channels: tuple[Channel, ...] = ()
    size_bytes: int = 0
    iterations: Iterations = ()
    path: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received: when it was posted, and when the receiver had it."""

    source: int
    destination: int
    tag: int
    posted_s: float
    received_s: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """When a rank was in no program: before its first one, or between two."""

    rank: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RankTime:
    """Where the time of one rank went. It counts all operations, also those whose spans are not kept.

    Args:
        end_s: when the rank was through; for one that is stuck, the end of the timeline.
        busy_s: how long it computed, outside of operations.
        waiting_s: how long it was in operations before the other end was there.
        moving_s: how long it was in operations after that, while the data was on its way.
        operations: how many there were.
    """

    end_s: float
    busy_s: float
    waiting_s: float
    moving_s: float
    operations: int


@dataclass(frozen=True)
class Timeline:
    """Say what each rank did when: its operations, the messages, and where its time went.

    `print(timeline)` is a table; `timeline.to_html()` is a page with a picture that needs nothing else. All times are
    in seconds since the start of the run. What a rank does outside of operations is computing ("busy"), but for pauses.

    Args:
        ranks: for each rank, where its time went.
        spans: the operations, by rank and then in order. Of long ones the first of each rank are kept of a simulation,
            and the last of a run that was measured.
        messages: those between spans that are kept, by the time they were posted.
        stuck: the ranks that did not reach their end.
        origin: "simulated" or "measured".
        semantics: "rendezvous" if a send completes when it is received, or "buffered" if it completes at once.
        pauses: by rank and then in order.
    """

    ranks: tuple[RankTime, ...]
    spans: tuple[Span, ...]
    messages: tuple[Message, ...]
    stuck: tuple[int, ...] = ()
    origin: Literal["simulated", "measured"] = "simulated"
    semantics: Literal["rendezvous", "buffered"] = "rendezvous"
    pauses: tuple[Pause, ...] = ()

    def __post_init__(self) -> None:
        if self.origin not in ("simulated", "measured"):
            raise ValueError(f"origin is 'simulated' or 'measured', not {self.origin!r}")
        if self.semantics not in ("rendezvous", "buffered"):
            raise ValueError(f"semantics is 'rendezvous' or 'buffered', not {self.semantics!r}")
        named = {*self.stuck, *(span.rank for span in self.spans), *(pause.rank for pause in self.pauses)}
        named |= {rank for message in self.messages for rank in (message.source, message.destination)}
        channels = {channel for span in self.spans for channel in span.channels}
        named |= {rank for source, destination, _ in channels for rank in (source, destination)}
        if wrong := sorted(rank for rank in named if not 0 <= rank < len(self.ranks)):
            raise ValueError(f"the ranks are 0..{len(self.ranks) - 1}, not {wrong}")

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    @property
    def makespan_s(self) -> float:
        """Return when the last rank was through, or was stuck."""
        return max((rank.end_s for rank in self.ranks), default=0.0)

    @property
    def left_out(self) -> int:
        """Return the number of operations whose spans are not kept."""
        return sum(rank.operations for rank in self.ranks) - len(self.spans)

    @property
    def bubble(self) -> float:
        """Return the share of the time, of all ranks until the makespan, in which they do not compute; 0 to 1."""
        whole = self.makespan_s * self.size
        return 1 - sum(rank.busy_s for rank in self.ranks) / whole if whole else 0.0

    def busy_s(self, rank: int) -> float:
        """Return how long a rank computed."""
        return self.ranks[rank].busy_s

    def idle_s(self, rank: int) -> float:
        """Return how long a rank waited in operations; the time after its end is not in it."""
        return self.ranks[rank].waiting_s + self.ranks[rank].moving_s

    def table(self, most_ranks: int = 32, most_lines: int = 10) -> str:
        """Return where the time of each rank went, and in which lines the ranks waited longest, as plain text."""
        from peerax.timeline._table import table

        return table(self, most_ranks, most_lines)

    def channel_table(self, most: int = 10) -> str:
        """Return what was sent on which channel and how long its ends waited, the longest waits first, as plain text.

        Args:
            most: at most so many rows.
        """
        from peerax.timeline._channels import channel_table

        return channel_table(self, most)

    def matrix(self) -> "Matrix":
        """Return who sent how much to whom: a value that prints as a table and draws itself."""
        from peerax.timeline._matrix import matrix_of

        return matrix_of(self)

    def compare(self, other: "Timeline") -> "Comparison":
        """Compare with another timeline of the same program, such as a simulation with a run.

        Returns:
            A value that prints as a table, of which this timeline is the first, and draws both.

        Raises:
            ValueError: the other timeline has another number of ranks.
        """
        from peerax.timeline._compare import Comparison

        return Comparison(self, other)

    def to_svg(
        self,
        ranks: Sequence[int] | None = None,
        between_s: tuple[float, float] | None = None,
        *,
        most_ranks: int = 64,
        width: int = 1200,
    ) -> str:
        """Return a picture: ranks as rows, messages as arrows. It says what it leaves out.

        Args:
            ranks: which ones to draw, in this order; by default all.
            between_s: from when to when, in seconds; by default all, or all that is kept.
            most_ranks: at most so many rows.
            width: in pixels.
        """
        from peerax.timeline._svg import Extent, to_svg

        return to_svg(self, Extent(ranks, most_ranks, between_s, width))

    def to_html(
        self,
        ranks: Sequence[int] | None = None,
        between_s: tuple[float, float] | None = None,
        *,
        most_ranks: int = 64,
        width: int = 1200,
    ) -> str:
        """Return a page with the picture (see `to_svg`) and the tables, which loads nothing else."""
        from peerax.timeline._html import to_html
        from peerax.timeline._svg import Extent

        return to_html(self, Extent(ranks, most_ranks, between_s, width))

    def to_trace_events(self) -> str:
        """Return a text in the trace-event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""
        from peerax.timeline._trace_events import to_trace_events

        return to_trace_events(self)

    def to_json(self) -> str:
        """Return a text that `Timeline.from_json` reads back."""
        from peerax.timeline._json import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Timeline":
        """Read what `to_json` wrote. Raises ValueError for anything else."""
        from peerax.timeline._json import from_json

        return from_json(text)

    def __str__(self) -> str:
        return self.table()
