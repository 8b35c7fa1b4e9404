"""A schedule as text and as CSV, both ways."""

import re
from collections.abc import Sequence

from peerax.pipeline.schedules._action import COMPUTE, Action
from peerax.pipeline.schedules._schedule import Schedule

_HEAD = re.compile(r"schedule (.+): (\d+) ranks?, (\d+) microbatch(?:es)?")


def to_text(schedule: Schedule) -> str:
    """Return the text, with a newline at its end."""
    ranks, count = schedule.ranks, schedule.microbatches
    lines = [
        f"schedule {schedule.name}: {ranks} rank{'s' * (ranks > 1)}, {count} microbatch{'es' * (count > 1)}",
        f"stages on ranks {' '.join(map(str, schedule.placement))}",
    ]
    lines += [" ".join([f"rank {rank}:", *map(str, row)]) for rank, row in enumerate(schedule.actions)]
    return "\n".join(lines) + "\n"


def parse(text: str) -> Schedule:
    """Return the schedule that a text describes."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    head = _HEAD.fullmatch(lines[0][1]) if lines else None
    if not head:
        raise ValueError("a schedule begins with a line such as 'schedule 1f1b: 4 ranks, 8 microbatches'")
    if len(lines) < 2 or not (placed := re.fullmatch(r"stages on ranks ((?:\d+ ?)+)", lines[1][1])):
        raise ValueError("the second line of a schedule is such as 'stages on ranks 0 1 2 3'")
    actions = []
    for number, line in lines[2:]:
        start, _, rest = line.partition(":")
        if start != f"rank {len(actions)}":
            raise ValueError(f"line {number}: expected 'rank {len(actions)}: ...', not {line[:40]!r}")
        try:
            actions.append(tuple(map(Action.parse, rest.split())))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if len(actions) != int(head[2]):
        raise ValueError(f"the text says {head[2]} ranks, but has {len(actions)}")
    return Schedule(head[1], tuple(actions), tuple(map(int, placed[1].split())), int(head[3]))


def to_csv(schedule: Schedule) -> str:
    """Return a row for each rank, with nothing but actions."""
    return "".join(",".join(map(str, row)) + "\n" for row in schedule.actions)


def from_csv(text: str, name: str, placement: Sequence[int] | None) -> Schedule:
    """Return the schedule of rows of actions."""
    rows = []
    # The last lines may be empty, but an empty one in between is a rank that does nothing.
    for number, line in enumerate(text.rstrip("\r\n").splitlines() if text.strip() else (), 1):
        row = []
        for column, cell in enumerate(line.split(","), 1):
            if word := cell.strip().strip('"').strip():
                try:
                    row.append(Action.parse(word))
                except ValueError as error:
                    raise ValueError(f"row {number}, column {column}: {error}") from None
        rows.append(tuple(row))
    leaves = [(rank, leaf) for rank, row in enumerate(rows) for action in row for leaf in action.leaves]
    computed = [(rank, leaf) for rank, leaf in leaves if leaf.kind in COMPUTE]
    if not computed:
        raise ValueError("nothing is computed: write a row for each rank, such as 0F0,0F1,0B0,0B1")
    if placement is None:
        placement = _placement(computed)
    return Schedule(name, tuple(rows), tuple(placement), 1 + max(leaf.microbatch for _, leaf in computed))


def _placement(computed: list[tuple[int, Action]]) -> list[int]:
    """The rank that most of a stage is on: one that is on another one is a fault there, and not everywhere else."""
    counts: dict[int, dict[int, int]] = {}
    for rank, leaf in computed:
        of_stage = counts.setdefault(leaf.stage, {})
        of_stage[rank] = of_stage.get(rank, 0) + 1
    if missing := sorted(set(range(max(counts) + 1)) - set(counts)):
        raise ValueError(f"stage {missing[0]} is on no rank, but there is a stage {max(counts)}")
    return [max(counts[stage], key=counts[stage].__getitem__) for stage in range(len(counts))]
