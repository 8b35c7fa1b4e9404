"""The verdict is that of the oracle, which tries every order of events."""

import math
import os

from hypothesis import HealthCheck, event, given, settings

from peerax.verifier import Program, check_program
from tests.verifier.oracle import explore
from tests.verifier.programs import small_programs

# A nightly run sets it to 20000.
PROGRAMS = int(os.environ.get("PEERAX_TEST_PROGRAMS", "2000"))


@settings(max_examples=PROGRAMS, deadline=None, suppress_health_check=list(HealthCheck))
@given(small_programs())
def test_verdict_is_that_of_the_oracle(program):
    # P-1, P-2, P-3, P-9, and the text.
    rendezvous, buffered = explore(program, 0), explore(program, math.inf)
    event("safe" if rendezvous.safe else "safe with buffers" if buffered.safe else "unsafe")
    assert len(rendezvous.terminal) == len(buffered.terminal) == 1
    assert buffered.safe or not rendezvous.safe
    for semantics, outcome in (("rendezvous", rendezvous), ("buffered", buffered)):
        report = check_program(program, semantics)
        assert report.verdict == ("safe" if outcome.safe else "unsafe"), (semantics, str(program))
        assert report.ok == (not any(found.severity == "error" for found in report.diagnostics))
    assert Program.parse(str(program)) == program
