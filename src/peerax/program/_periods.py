"""Iterations that repeat others are skipped, so that a run takes no longer for larger trip counts.

A state of a run is compared with one that was kept. If they differ in loop counters only, then what happened in between
can happen again, until a loop ends or a buffer is empty: by then all of it is skipped at once. Which state is kept
follows Brent's algorithm: a new one after 1, 2, 4, ... iterations, so that a period is found soon after it begins.
"""

from typing import Any

from peerax.program._code import Probe


class Periods:
    """Finds where a run repeats itself, and skips."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._kept: tuple | None = None
        self._place = (-1, -1)
        self._visits = 0
        self._patience = 1

    def visit(self, rank: int) -> None:
        """Look at the state: rank has just begun another iteration of a loop that no table depends on."""
        run = self._run
        self._visits += 1
        if self._place == (rank, run.at[rank]) and self._kept is not None and self._skip():
            self._kept, self._visits, self._patience = None, 0, 1
        if self._kept is None or self._visits >= self._patience:
            self._keep(rank)

    def _keep(self, rank: int) -> None:
        run = self._run
        self._place = (rank, run.at[rank])
        self._kept = (
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
        self._visits, self._patience = 0, 2 * self._patience

    def _skip(self) -> bool:
        """Skip as many repetitions as possible; return whether there were any."""
        run = self._run
        at, left, waiting, arrived, loops, backlog, taken, used, pending, joined = self._kept
        if at != run.at or left != run.left or waiting != run.waiting or arrived != run.arrived:
            return False
        if any(list(queue) != list(run.pending[c]) for c, queue in pending.items()) or joined != run.joined:
            return False
        advancing = _advancing(loops, run)
        if not advancing:
            return False
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
            return False
        for _, loop, step in advancing:
            loop[0] += times * step
        for channel, before in enumerate(backlog):
            run.backlog[channel] += times * (run.backlog[channel] - before)
            run.taken[channel] += times * (run.taken[channel] - taken[channel])
        for end, before in used.items():
            run.used[end] += times * (run.used[end] - before)
        return True


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
