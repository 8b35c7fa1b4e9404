"""Which actions the schedules have, in which order; and which schedules there are not."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peerax.pipeline.schedules as module
from peerax.pipeline.schedules import SCHEDULES, Action, circular, interleaved_1f1b, interleaved_zero_bubble, schedule
from tests.pipeline.made import WITH_CHUNKS, schedules, texts

EXAMPLES = {
    ("gpipe", 3): "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7",
    ("1f1b", 0): "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
    ("1f1b", 1): "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
    ("1f1b", 3): "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ("interleaved-1f1b", 0): (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 "
        "4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    ),
    ("interleaved-1f1b", 3): (
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 "
        "7F7 7B7 3B4 3B5 3B6 3B7"
    ),
    ("zb-h1", 0): "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
    ("zb-h1", 2): "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
    ("zb-h2", 0): "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7",
    ("zb-h2", 3): "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7",
    ("zbv", 0): (
        "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0F7 0I0 0W0 7F4 7I4 7W4 "
        "0I1 0W1 7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7"
    ),
    ("zbv", 3): (
        "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 3I1 3W1 4F5 4I2 4W2 3F6 3I2 3W2 "
        "4F6 4I3 4W3 3F7 3I3 3W3 4F7 4I4 4W4 3I4 4I5 3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7"
    ),
}


@pytest.mark.parametrize(("name", "rank"), EXAMPLES)
def test_examples(name, rank):
    assert texts(schedule(name, 4, 8), rank) == EXAMPLES[name, rank]


@given(schedules())
def test_each_stage_computes_each_microbatch_once(made):
    split = {"W"} <= {leaf.kind for rank in range(made.ranks) for leaf in made.leaves(rank)}
    for rank in range(made.ranks):
        leaves = list(made.leaves(rank))
        assert len(set(leaves)) == len(leaves)
        assert {made.placement[leaf.stage] for leaf in leaves} == {rank}
    counts = dict.fromkeys("FBIW", 0)
    for rank in range(made.ranks):
        for leaf in made.leaves(rank):
            counts[leaf.kind] += 1
    whole = made.stages * made.microbatches
    assert counts["F"] == whole and counts["B"] + counts["I"] == whole and counts["I"] == counts["W"]
    assert (counts["W"] > 0) == split
    assert made.faults() == ()


@given(st.integers(1, 8), st.integers(1, 19))
def test_without_halves_zb_h1_is_1f1b(ranks, microbatches):
    whole = [
        tuple(Action("B" if action.kind == "I" else action.kind, action.stage, action.microbatch) for action in kept)
        for row in schedule("zb-h1", ranks, microbatches).actions
        for kept in [[action for action in row if action.kind != "W"]]
    ]
    assert tuple(whole) == schedule("1f1b", ranks, microbatches).actions


@given(st.integers(1, 8), st.integers(1, 19))
def test_of_one_chunk(ranks, microbatches):
    eager = schedule("eager-1f1b", ranks, microbatches).actions
    if microbatches % max(1, microbatches // ranks) == 0:
        assert schedule("interleaved-1f1b", ranks, microbatches, 1).actions == eager
        assert (
            schedule("interleaved-zb", ranks, microbatches, 1).actions == schedule("zb-h1", ranks, microbatches).actions
        )
    if microbatches % ranks == 0:
        assert schedule("combined-tick", ranks, microbatches, 1).actions == eager


@given(st.integers(1, 4), st.integers(1, 10), st.integers(1, 3), st.data())
def test_groups_of_other_sizes(ranks, microbatches, chunks, data):
    group = data.draw(st.integers(min(ranks, microbatches), microbatches))
    for make in (interleaved_1f1b, interleaved_zero_bubble):
        if microbatches % group in range(1, ranks):
            with pytest.raises(ValueError, match=rf"help: take a group of .*{microbatches}"):
                make(ranks, microbatches, chunks, group=group)
        else:
            assert make(ranks, microbatches, chunks, group=group).faults() == ()


def test_a_last_group_that_is_too_small_would_hang():
    """Why such groups are refused: rank 0 would wait for a forward that is behind a backward that waits for it."""
    made = interleaved_1f1b(4, 5, 3, group=5)
    from peerax.pipeline.schedules._looped import _interleaved

    hangs = _interleaved(made.name, 4, 5, 3, 4, lambda rank: 2 * 4 + 2 * (3 - rank), None)
    assert made.faults() == () and "waits for 7F4, which rank 3 does after 7B0" in str(hangs.faults()[0])


@given(st.integers(2, 5), st.integers(1, 3), st.integers(2, 3))
def test_neighbours_that_overlap_are_of_different_microbatches(ranks, groups, chunks):
    made = interleaved_1f1b(ranks, groups * ranks, chunks, overlap=True)
    assert made.faults() == ()
    for row in made.actions:
        first = next(i for i, action in enumerate(row) if action.kind == "B")
        for forward, backward in zip(row[first - 1 :: 2], row[first::2], strict=False):
            if (forward.kind, backward.kind) == ("F", "B"):
                assert (forward.stage, forward.microbatch) != (backward.stage, backward.microbatch)


def test_the_first_two_of_the_last_rank_are_no_overlap():
    made = schedule("dualpipev", 2, 5)
    assert texts(made, 1) == (
        "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B "
        "(1F4;2B2)OVERLAP_F_B (2F4;1B2)OVERLAP_F_B 2B3 1B3 2I4 1I4 2W4 1W4"
    )


def test_in_a_step_the_forward_is_first():
    # On the last rank the backward of a microbatch is in the step of its forward.
    assert texts(schedule("combined-tick", 2, 2), 1) == "F0 B0 F1 B1"
    assert texts(schedule("combined-tick", 2, 2), 0) == "F0 F1 B0 B1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1fb", 4, 8), "there is no schedule '1fb'.*help: take 1f1b"),
        (("dualpipev", 8, 10), "at least 16 microbatches.*there are 10\n  help: take 16 of them, or zbv"),
        (("combined-tick", 4, 9), "multiple of 4.*there are 9\n  help: take 8 or 12"),
        (("circular", 4, 3), "at least 4.*there are 3\n  help: take 4"),
        (("interleaved-1f1b", 4, 11), "2 equal groups.*there are 11\n  help: take 10 or 12 of them, or .*group=6"),
        (("interleaved-zb", 4, 9), "2 equal groups.*there are 9\n  help: take 8 or 10"),
        (("1f1b", 4, 8, 2), "1f1b has 1 stage on each rank, not 2\n  help: leave chunks out"),
        (("zbv", 4, 8, 3), "zbv has 2 stages on each rank, not 3"),
        (("gpipe", 0, 8), "ranks is a whole number, 1 or more, not 0"),
        (("looped-bfs", 2, 8, 0), "chunks is a whole number, 1 or more, not 0"),
        (("1f1b", 4, 2.5), "microbatches is a whole number, 1 or more, not 2.5"),
    ],
)
def test_there_is_none(arguments, said):
    with pytest.raises(ValueError, match=f"(?s){said}"):
        schedule(*arguments)


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-zb", "combined-tick", "dualpipev"])
@given(ranks=st.integers(1, 6), microbatches=st.integers(1, 20))
def test_the_numbers_that_are_named_are_possible(name, ranks, microbatches):
    try:
        schedule(name, ranks, microbatches)
    except ValueError as error:
        named = str(error).partition("help: take ")[2].partition(" of them")[0]
        for number in named.split(" or "):
            assert schedule(name, ranks, int(number)).faults() == ()


def test_what_only_some_have():
    with pytest.raises(ValueError, match="gpipe has no groups"):
        schedule("gpipe", 4, 8, group=4)
    with pytest.raises(ValueError, match="delay is 1 or 2"):
        circular(4, 8, delay=3)
    with pytest.raises(ValueError, match="at least 8 microbatches"):
        circular(4, 7, delay=2)
    assert circular(4, 2, 1).faults() == ()


def test_all_have_sources_and_sections():
    makers = [getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))]
    made = [maker for maker in makers if maker.__module__.rpartition(".")[2] in ("_flat", "_looped", "_folded")]
    assert len(made) == len(SCHEDULES) and len(WITH_CHUNKS) == 5
    for maker in made:
        text = inspect.getdoc(maker)
        assert "Args:" in text and "Returns:" in text
        assert ("Raises:" in text) == (maker.__name__ in (
            "interleaved_1f1b", "interleaved_zero_bubble", "circular", "combined_tick", "dualpipev"
        ))  # fmt: skip
