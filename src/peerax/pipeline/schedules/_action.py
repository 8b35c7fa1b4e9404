"""One entry in the list of a rank, and how it is written: `2F0`, `1I3`, `1SEND_B3`, `(0F7;7B3)OVERLAP_F_B`."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "F", "B", "I", "W", "OVERLAP_F_B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"
]
COMPUTE = ("F", "B", "I", "W")
MESSAGES = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
OF_A_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD")

_WRITTEN = re.compile(rf"(\d+)({'|'.join(sorted(get_args(Kind), key=len, reverse=True))})(\d*)")
_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")


@dataclass(frozen=True, slots=True)
class Action:
    """Say what a rank does next: `str(action)` is for example "2F0", and `Action.parse` reads it back.

    Args:
        kind: "F" for a forward, "B" for a whole backward, "I" and "W" for its two halves, the gradient of the input
            and that of the weights; "OVERLAP_F_B" for a forward and a backward at the same time. "SEND_F" sends what
            the forward of this stage returned, and "RECV_F" receives what the forward of this stage is given; "SEND_B"
            and "RECV_B" do so for gradients. "UNSHARD", "RESHARD" and "REDUCE_GRAD" concern the weights of a stage.
        stage: number of the stage, from 0; of an overlap that of its forward.
        microbatch: number of the microbatch, from 0; None for what concerns the weights.
        parts: the two parts of an overlap.
    """

    kind: Kind
    stage: int
    microbatch: int | None = None
    parts: "tuple[Action, ...]" = ()

    @classmethod
    def overlap(cls, forward: "Action", backward: "Action") -> "Action":
        """Return a forward and a backward at the same time."""
        return cls("OVERLAP_F_B", forward.stage, forward.microbatch, (forward, backward))

    @classmethod
    def parse(cls, text: str) -> "Action":
        """Read what `str(action)` wrote. Raises ValueError for anything else."""
        if found := _OVERLAP.fullmatch(text):
            parts = [cls.parse(part) for part in found[1].split(";")]
            if [part.kind for part in parts] != ["F", "B"]:
                raise ValueError(f"{text!r} is no overlap of a forward and a backward, such as (0F7;7B3)OVERLAP_F_B")
            return cls.overlap(*parts)
        found = _WRITTEN.fullmatch(text)
        if not found or found[2] == "OVERLAP_F_B" or bool(found[3]) == (found[2] in OF_A_STAGE):
            raise ValueError(f"{text!r} is no action: write 2F0 for the forward of stage 2 and microbatch 0")
        return cls(found[2], int(found[1]), int(found[3]) if found[3] else None)

    @property
    def leaves(self) -> "tuple[Action, ...]":
        """Return the parts of an overlap, and of any other action itself."""
        return self.parts or (self,)

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))})OVERLAP_F_B"
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}"
