"""The table that tells each rank what to do in each tick, and where it finds and keeps what belongs to it.

What outlives a tick is in rings of slots. A slot is chosen when the table is made: from where a value is written to
where it is read last it has a slot of its own, so that rings are as long as most values that are kept at once. Each
ring has one slot more, for what nobody wants. Pure standard library.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from peerax.pipeline.executor._own_time import in_rows
from peerax.pipeline.executor._ticks import Ticks
from peerax.pipeline.schedules import Action, Schedule

# When, within a tick, something is written or read.
_EMBED, _FORWARD, _LOSS, _BACKWARD, _EMBED_BACKWARD, _WEIGHTS, _ARRIVAL, _PER_TICK = range(8)

COLUMNS = (
    "embed", "forward", "forward_microbatch", "forward_chunk", "forward_stage", "forward_x", "forward_input",
    "forward_both", "forward_to",
    "loss", "loss_dy",
    "backward", "half", "backward_microbatch", "backward_chunk", "backward_stage", "backward_x", "backward_dy",
    "backward_input", "backward_both", "backward_between", "backward_to",
    "embed_backward",
    "weights", "weights_microbatch", "weights_chunk", "weights_stage", "weights_x", "weights_dy", "weights_both",
    "weights_between",
)  # fmt: skip
RINGS = ("message", "input", "both", "between")


class Channel(NamedTuple):
    """An exchange that takes place in each tick.

    Args:
        buffer: which one is sent: what forwards make is in 0, and what backwards make in the last one.
        perm: its (source, destination) pairs.
    """

    buffer: int
    perm: tuple[tuple[int, int], ...]


class Keeps(NamedTuple):
    """Say until when a stage keeps what it was given: "F", "B" (or the half of it for the input) or "W"."""

    x: Literal["F", "B", "W"]
    dy: Literal["B", "W"]


@dataclass(frozen=True)
class Table:
    """What each rank does in each tick.

    Args:
        rows: for each tick and rank the numbers of `columns`.
        columns: their names; behind `COLUMNS` the slot for what arrives by each channel and, if ranks are not in step,
            whether something is received and sent by it.
        slots: for each ring how many slots it has.
        channels: the exchanges in each tick.
        buffers: how many buffers for messages there are: 2 if a rank does a forward and a backward in one tick.
        stays: whether some value goes from a stage to another one on the same rank.
        has: which of "B", "I" and "W" there are.
    """

    rows: tuple[tuple[tuple[int, ...], ...], ...]
    columns: tuple[str, ...]
    slots: dict[str, int]
    channels: tuple[Channel, ...]
    buffers: int
    stays: bool
    has: frozenset[str] = field(default_factory=frozenset)


def table(schedule: Schedule, ticks: Ticks, keeps: Keeps) -> Table:
    """Make the table."""
    return _Maker(schedule, ticks, keeps).make()


def own_time_table(schedule: Schedule, keeps: Keeps) -> Table:
    """Make the table of ranks that are not in step; its columns also say when each channel is used.

    Raises ValueError if messages that are written in the schedule are not received in the order in which they are sent.
    """
    return _OwnTimeMaker(schedule, keeps).make()


class _Maker:
    per_channel: tuple[str, ...] = ("arrival",)

    def __init__(self, schedule: Schedule, ticks: Ticks, keeps: Keeps) -> None:
        self.schedule, self.ticks, self.keeps = schedule, ticks, keeps
        self.when = {action: tick for tick, row in enumerate(ticks) for cell in row for action in cell.actions}
        self.has = frozenset(action.kind for action in self.when) - {"F"}
        both = any(cell.forward and cell.backward for row in ticks for cell in row)
        self.buffers = 2 if both else 1
        self.slots = self._color()

    def make(self) -> Table:
        schedule, ranks = self.schedule, range(self.schedule.ranks)
        channels = self._channels()
        columns = (*COLUMNS, *(f"{word}_{number}" for number in range(len(channels)) for word in self.per_channel))
        names = list(channels)
        empty = dict.fromkeys(columns, 0)
        trash = {ring: self.sizes[ring] for ring in RINGS}
        for name in columns:
            ring = _ring_of(name)
            if ring:
                empty[name] = trash[ring]
        cells = [[dict(empty) for _ in ranks] for _ in self.ticks]
        for action, tick in self.when.items():
            rank = schedule.placement[action.stage]
            cells[tick][rank] |= self._cell(action)
        self._put_messages(cells, names)
        stays = any(
            cell["forward_to"] != trash["message"] or cell["backward_to"] != trash["message"]
            for row in cells
            for cell in row
        )
        return Table(
            tuple(tuple(tuple(cell[name] for name in columns) for cell in row) for row in cells),
            columns,
            dict(self.sizes),
            tuple(Channel(buffer, tuple(sorted(perm))) for (buffer, _), perm in channels.items()),
            self.buffers,
            stays,
            self.has,
        )

    def _put_messages(self, cells: list[list[dict[str, int]]], names: list[tuple[int, int]]) -> None:
        """Write into the cells where what arrives by each channel goes."""
        for action, tick in self.when.items():
            rank = self.schedule.placement[action.stage]
            for to, buffer, slot in self._sent(action):
                number = names.index((buffer, (to - rank) % self.schedule.ranks))
                cells[tick][to][f"arrival_{number}"] = slot

    def _cell(self, action: Action) -> dict[str, int]:
        kind, stage, microbatch = action.kind, action.stage, action.microbatch
        word = {"F": "forward", "W": "weights"}.get(kind, "backward")
        chunk, key = self.schedule.chunk_of(stage), (stage, microbatch)
        cell = {
            word: 1,
            f"{word}_microbatch": microbatch,
            f"{word}_chunk": chunk,
            f"{word}_stage": stage,
            f"{word}_x": self.slots["x", *key],
        }
        last = stage + 1 == self.schedule.stages
        if kind == "F":
            cell["embed"] = int(stage == 0)
            cell["loss"] = int(last)
            if last and self.has:
                cell["loss_dy"] = self.slots["dy", *key]
            if self.has:
                cell["forward_input"] = self.slots["input", *key]
                cell["forward_both"] = self.slots["both", *key]
            if not last and self._here(stage, stage + 1):
                cell["forward_to"] = self.slots["x", stage + 1, microbatch]
            return cell
        cell[f"{word}_dy"] = self.slots["dy", *key]
        cell[f"{word}_both"] = self.slots["both", *key]
        if kind != "B":
            cell[f"{word}_between"] = self.slots["between", *key]
        if kind != "W":
            cell["half"] = int(kind == "I")
            cell["backward_input"] = self.slots["input", *key]
            cell["embed_backward"] = int(stage == 0)
            if stage and self._here(stage, stage - 1):
                cell["backward_to"] = self.slots["dy", stage - 1, microbatch]
        return cell

    def _here(self, stage: int, other: int) -> bool:
        return self.schedule.placement[stage] == self.schedule.placement[other]

    def _sent(self, action: Action):
        """Yield for a message that an action makes the destination, the buffer, and the slot there."""
        stage, microbatch = action.stage, action.microbatch
        if action.kind == "F" and stage + 1 < self.schedule.stages and not self._here(stage, stage + 1):
            yield self.schedule.placement[stage + 1], 0, self.slots["x", stage + 1, microbatch]
        elif action.kind in "BI" and stage and not self._here(stage, stage - 1):
            yield self.schedule.placement[stage - 1], self.buffers - 1, self.slots["dy", stage - 1, microbatch]

    def _channels(self) -> dict[tuple[int, int], set[tuple[int, int]]]:
        """Pairs as far from each other are one perm; those that no message takes are not in it."""
        found: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        for action in self.when:
            rank = self.schedule.placement[action.stage]
            for to, buffer, _ in self._sent(action):
                found[buffer, (to - rank) % self.schedule.ranks].add((rank, to))
        return dict(sorted(found.items()))

    def _color(self) -> dict[tuple, int]:
        """Give each value a slot, in the order in which they are written."""
        lives = self._lives()
        self.sizes = dict.fromkeys(RINGS, 0)
        slots: dict[tuple, int] = {}
        groups: dict[tuple[int, str], list] = defaultdict(list)
        for (what, stage, microbatch), (begin, end) in lives.items():
            ring = "message" if what in ("x", "dy") else what
            groups[self.schedule.placement[stage], ring].append((begin, end, (what, stage, microbatch)))
        for (_, ring), values in groups.items():
            busy: list[int] = []  # for each slot until when
            for begin, end, key in sorted(values):
                slot = next((number for number, until in enumerate(busy) if until < begin), len(busy))
                busy[slot : slot + 1] = [end]
                slots[key] = slot
            self.sizes[ring] = max(self.sizes[ring], len(busy))
        return slots

    def _lives(self) -> dict[tuple, tuple[int, int]]:
        """Return from when to when there is each value: x and dy, what only the half for the input needs of what
        the forward left, what the other half needs as well, and what the first half leaves for it."""
        lives = {}
        for action in self.when:
            if action.kind != "F":
                continue
            stage, microbatch = key = action.stage, action.microbatch
            forward = self._at(action, _FORWARD)
            if stage == 0:
                begin = self._at(action, _EMBED)
            else:
                begin = self._after(Action("F", stage - 1, microbatch), stage, _FORWARD)
            if not self.has:
                lives["x", *key] = begin, forward
                continue
            backward, weights = self._ends(stage, microbatch)
            lives["x", *key] = begin, {"F": forward, "B": backward, "W": weights}[self.keeps.x]
            if stage + 1 == self.schedule.stages:
                begin = self._at(action, _LOSS)
            else:
                begin = self._after(self._first_half(stage + 1, microbatch), stage, _BACKWARD)
            lives["dy", *key] = begin, {"B": backward, "W": weights}[self.keeps.dy]
            lives["input", *key] = forward, backward
            lives["both", *key] = forward, weights
            if weights > backward:
                lives["between", *key] = backward, weights
        return lives

    def _first_half(self, stage: int, microbatch: int) -> Action:
        whole = Action("B", stage, microbatch)
        return whole if whole in self.when else Action("I", stage, microbatch)

    def _ends(self, stage: int, microbatch: int) -> tuple[int, int]:
        backward = self._at(self._first_half(stage, microbatch), _BACKWARD)
        weights = Action("W", stage, microbatch)
        return backward, self._at(weights, _WEIGHTS) if weights in self.when else backward

    def _at(self, action: Action, phase: int) -> int:
        return self.when[action] * _PER_TICK + phase

    def _after(self, action: Action, stage: int, phase: int) -> int:
        """When the result of an action is with a stage: at once if that is on the same rank."""
        return self._at(action, phase if self._here(action.stage, stage) else _ARRIVAL)


class _OwnTimeMaker(_Maker):
    """The table of ranks that are not in step: what arrives is there from its receive on."""

    per_channel = ("receive", "arrival", "send")

    def __init__(self, schedule: Schedule, keeps: Keeps) -> None:
        made = in_rows(schedule)
        self.of_ranks = made.of_ranks
        self.received = {
            action: number
            for rows in self.of_ranks
            for number, row in enumerate(rows)
            for action in row.receives.values()
        }
        ticks = tuple(tuple(row.tick for row in rows) for rows in zip(*self.of_ranks, strict=True))
        super().__init__(schedule.compute_only().without_overlaps(), ticks, keeps)
        self.buffers = made.buffers

    def _put_messages(self, cells: list[list[dict[str, int]]], names: list[tuple[int, int]]) -> None:
        for rank, rows in enumerate(self.of_ranks):
            for row, cell in zip(rows, (of_all[rank] for of_all in cells), strict=True):
                for channel, action in row.receives.items():
                    number = names.index(channel)
                    what = "x" if action.kind == "RECV_F" else "dy"
                    cell[f"receive_{number}"] = 1
                    cell[f"arrival_{number}"] = self.slots[what, action.stage, action.microbatch]
                if row.send:
                    cell[f"send_{names.index(row.send[0])}"] = 1

    def _after(self, action: Action, stage: int, phase: int) -> int:
        if self._here(action.stage, stage):
            return self._at(action, phase)
        word = "RECV_F" if action.kind == "F" else "RECV_B"
        return self.received[Action(word, stage, action.microbatch)] * _PER_TICK - 1  # before all else in the row


def _ring_of(column: str) -> str | None:
    """Return the ring that a column has a slot of."""
    last = column.rpartition("_")[2]
    if last in ("x", "dy", "to") or column.startswith("arrival_"):
        return "message"
    return last if last in RINGS else None


def positions(columns: Sequence[str]) -> dict[str, int]:
    """Return where each column is."""
    return {name: number for number, name in enumerate(columns)}
