"""The check: a program in, a report out."""

from typing import Literal

from peerax.verifier._ir import Program
from peerax.verifier._report import Report
from peerax.verifier._unknowns import decide


def check_program(program: Program, semantics: Literal["rendezvous", "buffered"] = "rendezvous") -> Report:
    """Say whether a program can hang, and whether its messages fit each other, before it runs.

    Args:
        program: what each rank will do.
        semantics: "rendezvous" if a send completes when it is received, which is what a GPU does, or "buffered" if it
            completes at once; a cycle that buffers resolve is an error (PX208) for the first, a warning for the second.

    Returns:
        A Report. It is "safe" only where that is proved, for all orders in which the ranks may run.
    """
    if semantics not in ("rendezvous", "buffered"):
        raise ValueError(f"semantics is 'rendezvous' or 'buffered', not {semantics!r}")
    judgement = decide(program, semantics == "buffered")
    codes = {finding.code for finding in judgement.findings if finding.severity == "error"}
    verdict = "safe" if judgement.safe else "undecided" if codes <= {"PX211"} else "unsafe"
    return Report(verdict, judgement.findings, semantics, program.size, program=program)
