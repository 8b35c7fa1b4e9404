"""Schedules are ranked by what a replay with the same costs says."""

import pytest

from peerax.pipeline.schedules import SCHEDULES, Costs, compare, schedule


def test_all_do_the_same_work():
    ranking = compare(4, 8, Costs(3.0, 6.0), chunks=3)
    assert {replay.schedule.name for replay in ranking.replays} == set(SCHEDULES) and not ranking.left_out
    for replay in ranking.replays:
        assert replay.busy_s == pytest.approx((8 * 9.0,) * 4)
        assert replay.schedule.chunks in (1, 2, 3)
    times = [replay.makespan_s for replay in ranking.replays]
    assert times == sorted(times)


def test_the_best_depends_on_the_links():
    names = [replay.schedule.name for replay in compare(8, 32).replays]
    assert set(names[:2]) == {"zbv", "interleaved-zb"} and names[-1] == "gpipe"
    slow = [replay.schedule.name for replay in compare(8, 32, Costs(latency_s=0.5)).replays]
    assert slow[0] == "zb-h2" and slow.index("eager-1f1b") < slow.index("1f1b")


def test_what_there_is_not_is_said():
    ranking = compare(8, 10)
    assert {name for name, _ in ranking.left_out} == {"combined-tick", "dualpipev"}
    assert str(ranking).splitlines()[-1] == (
        "dualpipev: needs at least 16 microbatches, 2 for each of the 8 ranks; there are 10"
    )
    with pytest.raises(ValueError, match="gpipe: ranks is a whole number"):
        compare(0, 4)


def test_table():
    head, first, *_ = str(compare(4, 8, Costs(message_bytes=2**10))).splitlines()
    assert head.split() == ["schedule", "chunks", "time", "bubble", "keeps", "sends"]
    assert first.split() == ["zbv", "2", "25.5", "s", "5.9", "%", "4", "32,", "32", "KiB"]


def test_costs_are_shared_out():
    costs = Costs(2.0, 4.0, weight_s=3.0, overlap_s=5.0, latency_s=1.0).for_chunks(2)
    assert costs == Costs(1.0, 2.0, weight_s=1.5, overlap_s=2.5, latency_s=1.0)
    half, weights = (schedule("zbv", 2, 3).actions[0][i] for i in (4, 5))
    assert (half.kind, weights.kind) == ("I", "W") and (costs.of(half), costs.of(weights)) == (0.5, 1.5)
    with pytest.raises(ValueError, match="cannot be shared out"):
        Costs([1.0, 2.0]).for_chunks(2)
