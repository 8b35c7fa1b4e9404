"""What the actions of a schedule cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from peerax.pipeline.schedules._action import Action

Seconds = float | Sequence[float]
_BY_STAGE = ("forward_s", "backward_s", "input_s", "weight_s")


@dataclass(frozen=True)
class Costs:
    """Say how long the actions of a stage take, for one microbatch, and how long messages travel.

    By default a forward takes a second, a backward two, and messages no time. A message takes
    `latency_s + message_bytes / bandwidth_bytes_per_s`; messages do not slow each other down, and neither rank waits
    for them but the one that needs what is in them.

    Args:
        forward_s, backward_s: a number, or one for each stage.
        input_s, weight_s: the two halves of a backward, of schedules that split it; by default both are half of it, and
            if one of them is given, the other one is the rest.
        overlap_s: a forward and a backward at the same time; by default what both take one after the other.
        latency_s, bandwidth_bytes_per_s: of all links.
        message_bytes: of an activation, and of its gradient.

    Raises:
        ValueError: a number is negative or not finite, or is none.
    """

    forward_s: Seconds = 1.0
    backward_s: Seconds = 2.0
    input_s: Seconds | None = None
    weight_s: Seconds | None = None
    overlap_s: float | None = None
    latency_s: float = 0.0
    message_bytes: int = 0
    bandwidth_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Sequence) and field.name in _BY_STAGE:
                object.__setattr__(self, field.name, tuple(value))
                values = tuple(value)
            else:
                values = () if value is None else (value,)
            for number in values:
                if not isinstance(number, (int, float)) or not number >= 0 or isinstance(number, bool):
                    raise ValueError(f"{field.name} is a number, 0 or more, not {number!r}")
                if not number < math.inf and field.name != "bandwidth_bytes_per_s":
                    raise ValueError(f"{field.name} is finite, not {number!r}")
        if not self.bandwidth_bytes_per_s > 0:
            raise ValueError(f"bandwidth_bytes_per_s is a number above 0, not {self.bandwidth_bytes_per_s!r}")
        if not isinstance(self.message_bytes, int):
            raise ValueError(f"message_bytes is a whole number of bytes, not {self.message_bytes!r}")
        stages = max(map(len, self._by_stage().values()), default=1)
        for half in (self.input_s, self.weight_s):
            if half is not None and any(_of(half, s) > _of(self.backward_s, s) for s in range(stages)):
                if self.input_s is None or self.weight_s is None:
                    raise ValueError(f"half of a backward takes {half!r}, which is more than the {self.backward_s!r}")

    @property
    def message_s(self) -> float:
        """Return how long a message travels."""
        return self.latency_s + self.message_bytes / self.bandwidth_bytes_per_s

    def of(self, action: Action) -> float:
        """Return how long an action takes; what does not compute takes no time."""
        stage = action.stage
        if action.kind == "F":
            return _of(self.forward_s, stage)
        if action.kind == "B":
            return _of(self.backward_s, stage)
        if action.kind in ("I", "W"):
            given, other = self.input_s, self.weight_s
            if action.kind == "W":
                given, other = other, given
            if given is not None:
                return _of(given, stage)
            whole = _of(self.backward_s, stage)
            return whole / 2 if other is None else whole - _of(other, stage)
        if action.parts and self.overlap_s is not None:
            return self.overlap_s
        return sum(map(self.of, action.parts))

    def for_chunks(self, chunks: int) -> "Costs":
        """Return the costs of a stage of which a rank has so many, if these are of all that it has."""
        shares = {name: _divided(getattr(self, name), chunks) for name in _BY_STAGE}
        return replace(self, **shares, overlap_s=_divided(self.overlap_s, chunks))

    def require(self, stages: int) -> None:
        """Raise ValueError if the costs are for another number of stages."""
        for name, given in self._by_stage().items():
            if len(given) != stages:
                raise ValueError(f"{name} has {len(given)} values for {stages} stages; give one number, or one each")

    def _by_stage(self) -> dict[str, Sequence[float]]:
        given = {name: getattr(self, name) for name in _BY_STAGE}
        return {name: value for name, value in given.items() if isinstance(value, Sequence)}


def _of(value: Seconds, stage: int) -> float:
    return value[stage] if isinstance(value, Sequence) else value


def _divided(value: Seconds | None, chunks: int) -> Seconds | None:
    if isinstance(value, Sequence):
        raise ValueError("costs of single stages cannot be shared out among chunks; give one number")
    return None if value is None else value / chunks
