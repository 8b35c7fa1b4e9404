"""Iterations that repeat others are skipped, so that a run takes no longer for larger trip counts.

A state of a run is compared with one that was kept. If they differ in loop counters only, then what happened in between
can happen again, until a loop ends or a buffer is empty: by then all of it is skipped at once. Which state is kept
follows Brent's algorithm: a new one after 1, 2, 4, ... iterations, so that a period is found soon after it begins.
"""

from dataclasses import dataclass
from typing import Any

from peerax.verifier._code import Probe


@dataclass
class _Kept:
    """A state to compare with: where it was kept, and how many states are compared before another one is."""

    place: tuple[int, int] = (-1, -1)
    state: tuple = ()
    visits: int = 0
    patience: int = 1


class Periods:
    """Finds where a run repeats itself, and skips."""

    def __init__(self, run: Any) -> None:
        self._run = run
        # One for each depth of loops: an outer loop has its own period, and each iteration begins those inside anew.
        self._kept: list[_Kept] = []

    def visit(self, rank: int) -> None:
        """Look at the state: rank has just begun another iteration of a loop that no table depends on."""
        place, depth = (rank, self._run.at[rank]), len(self._run.loops[rank])
        while len(self._kept) < depth:
            self._kept.append(_Kept())
        del self._kept[depth:]
        kept = self._kept[depth - 1]
        kept.visits += 1
        if kept.place == place:
            self._skip(*kept.state)
        # A state stays where something was skipped: a short repetition, such as of a buffer that is emptied, may be a
        # part of a longer one.
        if kept.visits >= kept.patience:
            self._kept[depth - 1] = _Kept(place, self._copy(), 0, 2 * kept.patience)

    def _copy(self) -> tuple:
        run = self._run
        return (
            run.at[:],
            run.left[:],
            run.waiting[:],
            run.arrived[:],
            [[tuple(loop) for loop in loops] for loops in run.loops],
            run.backlog[:],
            run.taken[:],
            dict(run.used),
            {channel: list(queue) for channel, queue in run.pending.items()},
            {group: list(joined) for group, joined in run.joined.items()},
        )

    def _skip(self, at, left, waiting, arrived, loops, backlog, taken, used, pending, joined) -> None:
        """Skip as many repetitions of what happened since a state as possible."""
        run = self._run
        if at != run.at or left != run.left or waiting != run.waiting or arrived != run.arrived:
            return
        if any(list(queue) != list(run.pending[c]) for c, queue in pending.items()) or joined != run.joined:
            return
        advancing = _advancing(loops, run)
        if not advancing:
            return
        if all(isinstance(loop[1], Probe) for _, loop, _ in advancing):
            run.covered |= {(rank, step) for rank, _, step in advancing}
        room = [(loop[1] - 1 - loop[0]) // step for _, loop, step in advancing]
        for before, now, took_before, took in zip(backlog, run.backlog, taken, run.taken, strict=True):
            if now < before:
                room.append(max(0, now - (took - took_before)) // (before - now))
        for end, before in used.items():
            if before < run.used[end]:
                room.append((run.limits[end] - run.used[end]) // (run.used[end] - before))
        times = min(room)
        if times < 1:
            return
        for _, loop, step in advancing:
            loop[0] += times * step
        for channel, before in enumerate(backlog):
            run.backlog[channel] += times * (run.backlog[channel] - before)
            run.taken[channel] += times * (run.taken[channel] - taken[channel])
        for end, before in used.items():
            run.used[end] += times * (run.used[end] - before)


def _advancing(kept: list[list[tuple]], run: Any) -> list[tuple[int, list, int]]:
    """Return the loops that went on, with rank and number of iterations; none if the states are not alike."""
    found = []
    for rank, (before, now) in enumerate(zip(kept, run.loops, strict=True)):
        same_outside = True
        for (iteration, trip, activation, _), loop in zip(before, now, strict=True):
            if same_outside and activation == loop[2]:
                if loop[0] != iteration:
                    found.append((rank, loop, loop[0] - iteration))
            else:
                same_outside = False
                if (iteration, trip) != (loop[0], loop[1]):
                    return []
    if not all(loop[3] for _, loop, _ in found):
        return []
    return found
