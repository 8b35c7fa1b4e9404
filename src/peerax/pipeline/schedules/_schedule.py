"""A schedule: what each rank of a pipeline computes, in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from peerax.pipeline.schedules._action import COMPUTE, MESSAGES, Action

if TYPE_CHECKING:
    from peerax.pipeline.schedules._check import Fault
    from peerax.pipeline.schedules._costs import Costs
    from peerax.pipeline.schedules._replay import Replay
    from peerax.timeline import Timeline
    from peerax.verifier import Program


@dataclass(frozen=True)
class Schedule:
    """Say what each rank of a pipeline computes, in which order.

    A schedule is data, and may be made by hand. `str(schedule)` is a text that `Schedule.parse` reads back.

    Args:
        name: what it is called.
        actions: for each rank the list of its actions.
        placement: for each stage the rank that has it.
        microbatches: number of microbatches.

    Raises:
        ValueError: a stage is on a rank that is not there, or there is no rank or microbatch. What else may be wrong
            `faults` says.

    Example:
        >>> by_hand = Schedule("mine", [[Action("F", 0, 0), Action("B", 0, 0)]], placement=[0], microbatches=1)
        >>> by_hand.validate()
    """

    name: str
    actions: tuple[tuple[Action, ...], ...]
    placement: tuple[int, ...]
    microbatches: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", tuple(map(tuple, self.actions)))
        object.__setattr__(self, "placement", tuple(self.placement))
        if not self.actions or not self.placement or self.microbatches < 1:
            raise ValueError("a schedule has at least one rank, one stage and one microbatch")
        for stage, rank in enumerate(self.placement):
            if not 0 <= rank < self.ranks:
                raise ValueError(f"stage {stage} is on rank {rank}, but the ranks are 0..{self.ranks - 1}")
        if not self.name or "\n" in self.name:
            raise ValueError(f"the name of a schedule is one line of text, not {self.name!r}")

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read what `str(schedule)` wrote. Raises ValueError, with the line, for anything else."""
        from peerax.pipeline.schedules._text import parse

        return parse(text)

    @classmethod
    def from_csv(cls, text: str, *, name: str = "custom", placement: Sequence[int] | None = None) -> "Schedule":
        """Read a schedule from CSV: a row for each rank, an action in each cell; empty cells are passed over.

        Args:
            text: what `to_csv` wrote, or `_dump_csv` of torch.distributed.pipelining.
            name: what the schedule is called.
            placement: for each stage the rank that has it; by default the rank that computes most of it.

        Returns:
            A Schedule, which may still have faults.

        Raises:
            ValueError: a cell is no action; the message names its row and column.
        """
        from peerax.pipeline.schedules._text import from_csv

        return from_csv(text, name, placement)

    def to_csv(self) -> str:
        """Return the schedule as CSV, a row for each rank; torch.distributed.pipelining reads it."""
        from peerax.pipeline.schedules._text import to_csv

        return to_csv(self)

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """Return the number of stages."""
        return len(self.placement)

    @cached_property
    def chunks(self) -> int:
        """Return how many stages the rank with most of them has."""
        return max(self.placement.count(rank) for rank in set(self.placement))

    def chunk_of(self, stage: int) -> int:
        """Return how many stages before this one are on the same rank."""
        return self.placement[:stage].count(self.placement[stage])

    def leaves(self, rank: int) -> Iterator[Action]:
        """Yield the actions of a rank, of an overlap both parts."""
        for action in self.actions[rank]:
            yield from action.leaves

    @property
    def has_messages(self) -> bool:
        """Return whether sends and receives are written in the lists; if not, they follow from the placement."""
        return any(action.kind in MESSAGES for row in self.actions for action in row)

    def faults(self) -> "tuple[Fault, ...]":
        """Return what is wrong, one for each cause; none if the schedule can be run."""
        from peerax.pipeline.schedules._check import faults

        return faults(self)

    def validate(self) -> "Schedule":
        """Return the schedule itself. Raises ScheduleError, which names rank, action and cause, if it has faults."""
        from peerax.pipeline.schedules._check import ScheduleError

        if found := self.faults():
            raise ScheduleError(self, found)
        return self

    def compute_only(self) -> "Schedule":
        """Return the schedule without sends, receives, and what concerns the weights of a stage only."""
        kept = (*COMPUTE, "OVERLAP_F_B")
        return replace(self, actions=tuple(tuple(a for a in row if a.kind in kept) for row in self.actions))

    def without_overlaps(self) -> "Schedule":
        """Return the schedule with both parts of each overlap one after the other."""
        return replace(self, actions=tuple(tuple(self.leaves(rank)) for rank in range(self.ranks)))

    def with_messages(self) -> "Schedule":
        """Return the schedule with all sends and receives, in an order that cannot hang even if sends wait.

        Raises ScheduleError if it has faults. What is sent and received already is put in this order too.
        """
        from peerax.pipeline.schedules._messages import with_messages

        return with_messages(self)

    def replay(self, costs: "Costs | None" = None) -> "Replay":
        """Say when each rank does what, how long it takes, how long ranks are idle, and what they keep.

        Args:
            costs: what each action takes; by default 1 for a forward and 2 for a backward, in halves of 1.

        Returns:
            A Replay.

        Raises:
            ScheduleError: the schedule has faults.
            ValueError: the costs are for another number of stages.
        """
        from peerax.pipeline.schedules._costs import Costs
        from peerax.pipeline.schedules._replay import replay

        return replay(self.validate(), costs or Costs())

    def program(
        self, costs: "Costs | None" = None, *, semantics: Literal["rendezvous", "buffered"] = "rendezvous"
    ) -> "Program":
        """Return the sends and receives of each rank as a program, which `check_program` proves free of hangs.

        Args:
            costs: as for `replay`; they fix the order of messages that meet at the same rank, and their size.
            semantics: "rendezvous" puts both ends of each message where they cannot hang even if a send waits until it
                is received; "buffered" receives as late as possible, right before what needs it. Sends and receives
                that are written in the lists stay where they are.

        Returns:
            A Program. A message of stage s has the tag 2 s if it is an activation, and 2 s + 1 if it is a gradient; its
            lines are those of the actions, counted from 1 in the list of the rank.

        Raises:
            ScheduleError: the schedule has faults.
        """
        from peerax.pipeline.schedules._costs import Costs
        from peerax.pipeline.schedules._program import program

        return program(self.validate(), costs or Costs(), semantics)[0]

    def timeline(
        self, costs: "Costs | None" = None, *, semantics: Literal["rendezvous", "buffered"] = "buffered"
    ) -> "Timeline":
        """Simulate the sends and receives of `program` and what ranks compute in between.

        Args:
            costs, semantics: as for `program`. For "buffered" it takes as long as `replay` says.

        Returns:
            A Timeline, which draws messages and says who waits for whom.

        Raises:
            ScheduleError: the schedule has faults.
        """
        from peerax.pipeline.schedules._costs import Costs
        from peerax.pipeline.schedules._program import timeline

        return timeline(self.validate(), costs or Costs(), semantics)

    def to_text(self, costs: "Costs | None" = None, *, width: int = 120) -> str:
        """Return the replay as plain text: a row for each rank, time to the right, in lines of this width."""
        return self.replay(costs).to_text(width=width)

    def to_svg(self, costs: "Costs | None" = None, *, width: int | None = None) -> str:
        """Return the replay as a picture: a row for each rank, time to the right, a box for each action."""
        return self.replay(costs).to_svg(width=width)

    def to_html(self, costs: "Costs | None" = None, *, width: int | None = None) -> str:
        """Return the replay as a page that needs nothing else: the picture, and a table of the ranks."""
        return self.replay(costs).to_html(width=width)

    def __str__(self) -> str:
        from peerax.pipeline.schedules._text import to_text

        return to_text(self)
