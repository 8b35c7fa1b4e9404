"""The lists are those that torch.distributed.pipelining makes, where torch is installed; it is not needed otherwise."""

import warnings
from unittest import mock

import pytest

from peerax.pipeline.schedules import Schedule, schedule

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch without numpy says so
    pytest.importorskip("torch.distributed.pipelining", reason="torch is not installed, and not needed otherwise")
    from torch.distributed.pipelining import schedules as oracle
    from torch.distributed.pipelining.stage import PipelineStage

RANKS, MICROBATCHES, CHUNKS = (1, 2, 3, 4, 8), range(1, 25), (1, 2, 3)
NAMES = {
    "gpipe": "ScheduleGPipe",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
# How many of all numbers torch 2.13 has a schedule for, 1199 in all.
LEAST = {
    "gpipe": 120,
    "interleaved-1f1b": 255,
    "looped-bfs": 360,
    "interleaved-zb": 255,
    "zbv": 120,
    "dualpipev": 89,
}
# Nothing of a stage is used but what it is said to be; to make one takes long.
STAGE = mock.create_autospec(PipelineStage, instance=True)


def of_torch(name, ranks, microbatches, chunks):
    """Return torch's lists as texts; None if it refuses these numbers."""
    made = getattr(oracle, name)
    stage = STAGE
    stage.group_rank, stage.group_size, stage.num_stages, stage.submod = 0, ranks, ranks * chunks, None
    single = issubclass(made, oracle.PipelineScheduleSingle)
    try:
        order = made(stage if single else [stage] * chunks, microbatches).pipeline_order
    except (ValueError, RuntimeError, AssertionError):
        return None
    return [
        [str(action) for action in order[rank] if action is not None and "REDUCE_GRAD" not in str(action)]
        for rank in range(ranks)
    ]


def of_peerax(name, ranks, microbatches, chunks):
    try:
        return schedule(name, ranks, microbatches, chunks)
    except ValueError:
        return None


def texts(made):
    return [list(map(str, row)) for row in made.actions]


@pytest.mark.parametrize("name", NAMES)
def test_all_lists_are_equal(name):
    compared = 0
    for ranks in RANKS:
        for microbatches in MICROBATCHES:
            for chunks in {"gpipe": (1,), "zbv": (2,), "dualpipev": (2,)}.get(name, CHUNKS):
                theirs = of_torch(NAMES[name], ranks, microbatches, chunks)
                ours = of_peerax(name, ranks, microbatches, chunks)
                case = ranks, microbatches, chunks
                if theirs is None:
                    # What torch refuses there is not here either.
                    assert ours is None, case
                    continue
                assert ours is not None and texts(ours) == theirs, case
                compared += 1
    assert compared >= LEAST[name]


def test_1f1b_is_torchs_zero_bubble_without_halves():
    for ranks in RANKS:
        for microbatches in MICROBATCHES:
            theirs = of_torch("ScheduleInterleavedZeroBubble", ranks, microbatches, 1)
            if theirs is None:
                continue
            merged = [[text.replace("I", "B") for text in row if "W" not in text] for row in theirs]
            assert texts(schedule("1f1b", ranks, microbatches)) == merged, (ranks, microbatches)
            assert texts(schedule("zb-h1", ranks, microbatches)) == theirs, (ranks, microbatches)


def test_1f1b_of_torch_differs_on_the_last_rank_only():
    """torch 2.13 repeats forwards there that do not exist; if this fails, it has been repaired, and is an oracle."""
    different = set()
    for ranks in RANKS:
        for microbatches in MICROBATCHES:
            theirs = of_torch("Schedule1F1B", ranks, microbatches, 1)
            if theirs is None:
                assert microbatches < ranks
                continue
            ours = texts(schedule("1f1b", ranks, microbatches))
            assert ours[:-1] == theirs[:-1]
            different.add(ours[-1] != theirs[-1])
    assert different == {True}


@pytest.mark.parametrize("name", NAMES)
def test_csv_both_ways(name):
    made = schedule(name, 4, 8)
    for row, text in zip(made.actions, made.to_csv().splitlines(), strict=True):
        assert list(map(str, map(oracle._Action.from_str, text.split(",")))) == list(map(str, row))


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-zb", "looped-bfs", "zbv"])
def test_sends_and_receives_of_torch_are_read_and_valid(name):
    made = schedule(name, 4, 8)
    order = {rank: list(map(oracle._Action.from_str, row)) for rank, row in enumerate(texts(made))}
    lowered = oracle._add_send_recv(order, lambda stage: made.placement[stage], made.stages)
    text = "\n".join(",".join(map(str, lowered[rank])) for rank in range(made.ranks))
    read = Schedule.from_csv(text, name=name)
    assert read.has_messages and read.faults() == ()
    assert read.compute_only() == made
    assert sum(a.kind.startswith("SEND") for row in read.actions for a in row) == sum(made.replay().messages)
    assert read.replay().makespan_s == made.replay().makespan_s
