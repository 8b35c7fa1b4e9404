"""A step of a pipeline that ran, beside the simulation of the same program, and of its schedule."""

import jax
import pytest

import peerax
from peerax.cli import main
from peerax.pipeline import Costs, schedule
from tests.pipeline.executor import models


@pytest.fixture(scope="module")
def run():
    made = schedule("zb-h1", 3, 4)
    step = jax.jit(models.of_vectors(made), compiler_options=models.QUICK)
    arguments = models.weights_of(made), *models.vectors(12)
    jax.block_until_ready(step(*arguments))
    with peerax.trace() as trace:
        jax.block_until_ready(step(*arguments))
    cost = peerax.Cost(latency_s=1e-5, compute_s=1e-4)
    return made, peerax.simulate(peerax.program(step, *arguments), cost), trace.timeline


def test_each_operation_is_in_both(run):
    made, simulated, measured = run
    ticks = 3 * 4 + 3 - 1
    rows = simulated.compare(measured).operations()
    assert {(row.name, row.rank, row.numbers) for row in rows} == {
        *(("exchange", rank, (2 * ticks, 2 * ticks)) for rank in range(3)),
        *(("psum", rank, (1, 1)) for rank in range(3)),
    }
    assert sum(m.size_bytes for m in simulated.messages) == sum(m.size_bytes for m in measured.messages)


def test_beside_its_schedule(run):
    """Ranks that need not wait for ticks."""
    made, _, measured = run
    comparison = made.timeline(Costs(1e-4, 2e-4)).compare(measured)
    assert comparison.makespan.first_s == pytest.approx((3 * 4 + 3 - 1) * 1e-4)
    assert comparison.to_svg().count("rank ") >= 3


def test_on_the_command_line(run, tmp_path, capsys):
    _, *timelines = run
    for name, timeline in zip(("simulated", "run"), timelines, strict=True):
        (tmp_path / f"{name}.json").write_text(timeline.to_json(), encoding="utf-8")
    files = [str(tmp_path / name) for name in ("simulated.json", "run.json", "both.svg")]
    assert main(["trace", files[0], "--compare", files[1], "--svg", files[2]]) == 0
    shown = capsys.readouterr().out
    assert "measured takes" in shown and "exchange" in shown
    assert (tmp_path / "both.svg").read_text(encoding="utf-8").startswith("<svg")
