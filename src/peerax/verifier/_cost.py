"""What a program costs: its messages, its collectives, and what the ranks compute in between."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from peerax.diagnostics import Location
from peerax.timeline import Pause, Timeline
from peerax.verifier._ir import Collective, Exchange, Operation, Recv, Send

_KINDS = {Send: "send", Recv: "recv", Exchange: "exchange", Collective: "collective"}


@dataclass(frozen=True)
class Cost:
    """Say how long messages travel and how long ranks compute; by default everything takes no time.

    A message takes `latency_s + bytes / bandwidth_bytes_per_s`; all leaves of an operation travel together. A
    collective of n ranks takes `latency_s * ceil(log2(n)) + bytes / bandwidth_bytes_per_s`, where the bytes are those
    that each rank gives, and one rank by itself no time. Messages do not slow each other down.

    Args:
        latency_s: seconds that a message takes however small it is.
        bandwidth_bytes_per_s: bytes per second between any two ranks; math.inf if size does not matter.
        compute_s: seconds that a rank computes before an operation: a number for all of them; a mapping from the line
            of an operation, as (file, line), of which the end of the file's name is enough, and lines that are missing
            take no time; or a function of (rank, operation). An operation counts for each rank that gets to it, also
            where the rank is not in its perm or its groups.
        final_s: seconds that a rank computes after its last operation: a number, or one for each rank.

    Raises:
        ValueError: a number is negative or not finite, or is none.
    """

    latency_s: float = 0.0
    bandwidth_bytes_per_s: float = math.inf
    compute_s: float | Mapping[Location, float] | Callable[[int, Operation], float] = 0.0
    final_s: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        _check_seconds(self.latency_s, "latency_s")
        if not isinstance(self.bandwidth_bytes_per_s, (int, float)) or not self.bandwidth_bytes_per_s > 0:
            raise ValueError(f"bandwidth_bytes_per_s is a number above 0, not {self.bandwidth_bytes_per_s!r}")
        if isinstance(self.compute_s, Mapping):
            for line, seconds in self.compute_s.items():
                if not (isinstance(line, tuple) and len(line) == 2):
                    raise ValueError(f"compute_s has lines such as ('train.py', 12) as keys, not {line!r}")
                _check_seconds(seconds, f"compute_s[{line!r}]")
        elif not callable(self.compute_s):
            _check_seconds(self.compute_s, "compute_s")
        for seconds in self.final_s if isinstance(self.final_s, Sequence) else (self.final_s,):
            _check_seconds(seconds, "final_s")

    @classmethod
    def measured(cls, timeline: Timeline, latency_s: float = 0.0, bandwidth_bytes_per_s: float = math.inf) -> "Cost":
        """Take what the ranks compute from a timeline: before each line of each rank, the median of what it was.

        Args:
            timeline: of a run, or of a simulation, of the same program.
            latency_s, bandwidth_bytes_per_s: as for Cost; they do not follow from what the ranks computed.

        Returns:
            A Cost.
        """
        gaps: dict[tuple, list[float]] = {}
        ended = [0.0] * timeline.size
        pauses: list[deque[Pause]] = [deque() for _ in range(timeline.size)]
        for pause in timeline.pauses:
            pauses[pause.rank].append(pause)
        for span in timeline.spans:
            key = span.rank, span.location, span.kind, _path_in_section(span.path)
            while pauses[span.rank] and pauses[span.rank][0].start_s < span.start_s:  # nobody computes in a pause
                ended[span.rank] = max(ended[span.rank], pauses[span.rank].popleft().end_s)
            gaps.setdefault(key, []).append(max(0.0, span.start_s - ended[span.rank]))
            ended[span.rank] = span.end_s
        # Where spans are missing, what lies behind the last one that was kept is not known to be computing.
        complete = not timeline.left_out
        final = [max(0.0, r.end_s - end) if complete else 0.0 for r, end in zip(timeline.ranks, ended, strict=True)]
        medians = _Medians({key: median(found) for key, found in gaps.items()})
        return cls(latency_s, bandwidth_bytes_per_s, medians, tuple(final))

    def message_s(self, size_bytes: int) -> float:
        """Return how long a message travels."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s

    def collective_s(self, members: int, size_bytes: int) -> float:
        """Return how long a collective takes once all its members are there."""
        if members < 2:
            return 0.0
        return self.latency_s * (members - 1).bit_length() + size_bytes / self.bandwidth_bytes_per_s

    def before_s(self, rank: int, operation: Operation) -> float:
        """Return how long a rank computes before an operation."""
        if isinstance(self.compute_s, Mapping):
            return self.compute_s.get(operation.location, 0.0)
        if not callable(self.compute_s):
            return self.compute_s
        seconds = self.compute_s(rank, operation)
        _check_seconds(seconds, "what compute_s returned for rank {} at {}:{}".format(rank, *operation.location))
        return seconds

    def after_s(self, rank: int) -> float:
        """Return how long a rank computes after its last operation."""
        return self.final_s[rank] if isinstance(self.final_s, Sequence) else self.final_s

    def of_program(self, lines: set[Location], size: int) -> "Cost":
        """Return the cost with the lines of a program written as there. Raises ValueError if it is for another one."""
        if isinstance(self.final_s, Sequence) and len(self.final_s) != size:
            raise ValueError(f"final_s has {len(self.final_s)} values for {size} ranks; give one number, or one each")
        if not isinstance(self.compute_s, Mapping):
            return self
        found: dict[Location, float] = {}
        # What is written in full comes last, so that it counts.
        for (file, line), seconds in sorted(self.compute_s.items(), key=lambda item: len(item[0][0])):
            meant = [place for place in lines if place[1] == line and f"/{place[0]}".endswith(f"/{file}")]
            if not meant:
                known = ", ".join(f"{file}:{line}" for file, line in sorted(lines)) or "none"
                raise ValueError(f"compute_s has {file}:{line}, where no operation is; the program's lines are {known}")
            if len(meant) > 1:
                raise ValueError(
                    f"compute_s has {file}:{line}, which may be {' or '.join(f for f, _ in sorted(meant))}"
                )
            found[meant[0]] = seconds
        return replace(self, compute_s=found)


@dataclass(frozen=True)
class _Medians:
    """Seconds by (rank, line, kind, path)."""

    seconds: dict[tuple, float]

    def __call__(self, rank: int, operation: Operation) -> float:
        path = "" if isinstance(operation, Collective) else _path_in_section(operation.path)
        return self.seconds.get((rank, operation.location, _KINDS[type(operation)], path), 0.0)


def _path_in_section(path: str) -> str:
    """Return what tells values, tangents and cotangents apart, without the number of the shard_map."""
    return path.rpartition(":")[2]


def _check_seconds(value: object, name: str) -> None:
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is a finite number of seconds, 0 or more, not {value!r}")
