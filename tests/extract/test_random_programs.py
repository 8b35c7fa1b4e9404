"""Random programs as JAX functions: what is extracted is what was lowered, and the verdict is that of the oracle."""

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import peerax
from peerax.verifier import check_program
from tests.extract.lowering import WRAPPERS, arguments, as_in_jax, is_split, normal, to_function
from tests.verifier.oracle import explore
from tests.verifier.programs import small_nodes, to_program, unsure_nodes
from tests.verifier.test_against_oracle import PROGRAMS
from tests.verifier.test_unknown_against_oracle import verdicts

wrappers = st.integers(0, len(WRAPPERS) - 1)


def some(share):
    return settings(max_examples=PROGRAMS // share, deadline=None, suppress_health_check=list(HealthCheck))


def extracted(size, nodes, wrapper):
    """Return the program that comes back from JAX, which must be the one that went in."""
    found = peerax.program(to_function(size, nodes, wrapper), *arguments(size))
    if not is_split(found):
        assert normal(found) == normal(to_program(size, nodes)), f"{found}\n---\n{to_program(size, nodes)}"
    return found


@some(share=8)
@given(small_nodes(), wrappers)
def test_known_programs(made, wrapper):
    size, nodes = made[0], as_in_jax(made[1])
    outcome = explore(to_program(size, nodes), 0)
    report = check_program(extracted(size, nodes, wrapper))
    event(report.verdict)
    assert report.verdict == ("safe" if outcome.safe else "unsafe")


@some(share=12)
@given(unsure_nodes(), wrappers)
def test_what_is_the_same_on_all_ranks(made, wrapper):
    size, nodes = made[0], as_in_jax(made[1])
    report = check_program(extracted(size, nodes, wrapper))
    event(report.verdict)
    if report.verdict != "undecided":
        assert (report.verdict == "safe") == all(verdicts(to_program(size, nodes)))


@some(share=12)
@given(unsure_nodes(kinds=("varying", "unknown", "uniform")), wrappers)
def test_what_may_differ_between_ranks(made, wrapper):
    size, nodes = made[0], as_in_jax(made[1])
    report = check_program(extracted(size, nodes, wrapper))
    event(report.verdict)
    if report.verdict == "safe":
        assert all(verdicts(to_program(size, nodes)))
