"""Programs that depend on values which are not known: what is said to be safe is so whatever the values are."""

from hypothesis import HealthCheck, event, given, settings

from peerax.verifier import check_program
from tests.verifier.oracle import all_values, explore
from tests.verifier.programs import to_program, unsure_nodes
from tests.verifier.test_against_oracle import PROGRAMS


def verdicts(program):
    """The oracle's verdict for each value of what is not known, for some values at least."""
    for number, chosen in enumerate(all_values(program)):
        if number == 40:
            return
        yield explore(program, 0, chosen).safe


@settings(max_examples=PROGRAMS // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(unsure_nodes())
def test_what_is_the_same_on_all_ranks(made):
    program = to_program(*made)
    report = check_program(program)
    event(report.verdict)
    if report.verdict == "safe":
        assert all(verdicts(program)), str(program)
    elif report.verdict == "unsafe":
        assert not all(verdicts(program)), str(program)


@settings(max_examples=PROGRAMS // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(unsure_nodes(kinds=("varying", "unknown", "uniform")))
def test_what_may_differ_between_ranks(made):
    program = to_program(*made)
    report = check_program(program)
    event(report.verdict)
    if report.verdict == "safe":
        assert all(verdicts(program)), str(program)
