"""The verdict on a program in which nothing is unknown."""

from dataclasses import dataclass, replace

from peerax.diagnostics import Diagnostic
from peerax.verifier._code import FENCE, lower
from peerax.verifier._cycles import find_cycles
from peerax.verifier._deadlocks import deadlocks
from peerax.verifier._engine import run, start
from peerax.verifier._findings import findings
from peerax.verifier._ir import Program
from peerax.verifier._totals import count


@dataclass(frozen=True)
class Judgement:
    """What is wrong with a program.

    Args:
        findings: what is wrong; warnings among them if a program needs buffers and may have them.
        fenced: ranks could not get to a fence, so the findings may be wrong.
        covered: (rank, n) if an iteration of a loop of unknown length was seen to repeat the one n before.
    """

    findings: tuple[Diagnostic, ...]
    fenced: bool = False
    covered: frozenset[tuple[int, int]] = frozenset()

    @property
    def safe(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.fenced and not any(finding.severity == "error" for finding in self.findings)


def judge(program: Program, buffered: bool) -> Judgement:
    """Return the judgement, with sends that are received before they complete, or with buffered ones."""
    code = lower(program)
    totals = count(code)
    # Sends that wait are the harder case: what is right for them is right with buffers.
    waits = run(start(code, totals, False))
    if waits.gave_up:
        return Judgement((_gave_up(),), covered=frozenset(waits.covered))
    if not waits.stuck:
        return Judgement(tuple(findings(waits, totals)), covered=frozenset(waits.covered))
    buffers = run(start(code, totals, True))
    if buffers.gave_up and buffered:
        return Judgement((_gave_up(),))
    runs = [waits, buffers] if buffers.stuck and not buffers.gave_up else [waits]
    stuck = [(run, find_cycles(run)) for run in runs]
    cycles = deadlocks(*stuck)
    if buffered:
        cycles = [replace(cycle, severity="warning") if cycle.code == "PX208" else cycle for cycle in cycles]
    fenced = buffers.unclean or any(w.role == FENCE for _, found in stuck for cycle in found for w in cycle.waits)
    decisive = buffers if buffered else waits
    return Judgement((*findings(decisive, totals), *cycles), fenced, frozenset(decisive.covered))


def _gave_up() -> Diagnostic:
    return Diagnostic(
        "PX211",
        "the program has too many different iterations to look at all of them",
        help="shorten the loops; what holds for a few hundred iterations mostly holds for more",
    )
