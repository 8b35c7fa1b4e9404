"""A table, played with names in the place of values: each step must find what it needs where it looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerax.pipeline import Schedule, schedule
from peerax.pipeline.executor._tables import Keeps, positions, table
from peerax.pipeline.executor._ticks import forwards_only, in_ticks, units
from tests.pipeline.made import schedules


class Rank:
    def __init__(self, made):
        self.rings = {ring: [None] * (slots + 1) for ring, slots in made.slots.items()}
        self.out = [None] * made.buffers
        self.done = []


def play(of, made, keeps):
    """Run a table; what a step reads must be of its own stage and microbatch."""
    at = positions(made.columns)
    ranks = [Rank(made) for _ in range(of.ranks)]
    for row in made.rows:
        for rank, cells in zip(ranks, row, strict=True):
            step(of, made, rank, {name: cells[number] for name, number in at.items()}, keeps)
        arrived = []
        for number, (buffer, perm) in enumerate(made.channels):
            assert len({d for _, d in perm}) == len({s for s, _ in perm}) == len(perm)
            arrived += [(d, number, ranks[s].out[buffer]) for s, d in perm]
        for to, number, value in arrived:
            slot = row[to][at[f"arrival_{number}"]]
            ranks[to].rings["message"][slot] = value if slot < made.slots["message"] else None
    return ranks


def step(of, made, rank, cell, keeps):
    message, last = rank.rings["message"], of.stages - 1

    def key(word):
        stage, microbatch = cell[f"{word}_stage"], cell[f"{word}_microbatch"]
        assert of.chunk_of(stage) == cell[f"{word}_chunk"]
        return stage, microbatch

    def needs_x(word, until):
        if until <= "FBW".index(keeps.x):
            assert message[cell[f"{word}_x"]] == ("x", *key(word))

    if cell["embed"]:
        message[cell["forward_x"]] = ("x", 0, cell["forward_microbatch"])
    if cell["forward"]:
        stage, microbatch = key("forward")
        needs_x("forward", 0)
        rank.out[0] = ("x", stage + 1, microbatch)
        rank.done.append(f"{stage}F{microbatch}")
        if made.has:
            for ring in ("input", "both"):
                rank.rings[ring][cell[f"forward_{ring}"]] = (ring, stage, microbatch)
        if cell["forward_to"] < made.slots["message"]:
            message[cell["forward_to"]] = rank.out[0]
        assert cell["loss"] == (stage == last)
        if cell["loss"] and made.has:
            message[cell["loss_dy"]] = ("dy", stage, microbatch)
    if cell["backward"]:
        stage, microbatch = key("backward")
        needs_x("backward", 1)
        assert message[cell["backward_dy"]] == ("dy", stage, microbatch)
        for ring in ("input", "both"):
            assert rank.rings[ring][cell[f"backward_{ring}"]] == (ring, stage, microbatch)
        rank.out[-1] = ("dy", stage - 1, microbatch)
        if cell["half"]:
            rank.rings["between"][cell["backward_between"]] = ("between", stage, microbatch)
        if cell["backward_to"] < made.slots["message"]:
            message[cell["backward_to"]] = rank.out[-1]
        assert cell["embed_backward"] == (stage == 0)
        rank.done.append(f"{stage}{'I' if cell['half'] else 'B'}{microbatch}")
    if cell["weights"]:
        stage, microbatch = key("weights")
        needs_x("weights", 2)
        if keeps.dy == "W":
            assert message[cell["weights_dy"]] == ("dy", stage, microbatch)
        for ring in ("both", "between"):
            assert rank.rings[ring][cell[f"weights_{ring}"]] == (ring, stage, microbatch)
        rank.done.append(f"{stage}W{microbatch}")


@given(schedules(), st.sampled_from(["one", "all"]), st.sampled_from("FBW"), st.sampled_from("BW"))
def test_each_step_finds_what_it_needs(of, filled, x, dy):
    keeps = Keeps(x, dy)
    made = table(of, in_ticks(of, filled), keeps)
    done = [rank.done for rank in play(of, made, keeps)]
    assert done == [[str(leaf) for leaf in of.leaves(rank)] for rank in range(of.ranks)]
    # What is kept of forwards takes as many slots as the replay says.
    assert made.slots["both"] == max(of.replay().peaks)


@given(schedules(), st.integers(1, 9))
def test_forwards_only(of, microbatches):
    forwards = forwards_only(of, microbatches)
    keeps = Keeps("F", "B")
    made = table(forwards, in_ticks(forwards), keeps)
    assert made.slots["both"] == made.slots["input"] == 0 and not made.has
    done = sorted(word for rank in play(forwards, made, keeps) for word in rank.done)
    assert done == sorted(f"{s}F{m}" for s in range(of.stages) for m in range(microbatches))


@pytest.mark.parametrize(
    ("name", "microbatches", "filled", "length", "time"),
    [
        # (v m + p - 1) (F + B), and as many ticks as the rule has.
        ("combined-tick", 8, "all", 2 * 8 + 3 * 4 - 2, (2 * 8 + 3) * 3),
        # One action in each tick: the length of 1F1B in actions, of which most are as long as a backward.
        ("1f1b", 8, "one", 22, 3 + 2 * 19 - 1),
        # Halves are as long as forwards, so that nobody waits for a longer action.
        ("zb-h1", 8, "one", 27, 27),
        ("zb-h2", 8, "one", 27, 27),
        ("zbv", 8, "one", 51, 51),
    ],
)
def test_length(name, microbatches, filled, length, time):
    of = schedule(name, 4, microbatches, 2 if name == "combined-tick" else None)
    ticks = in_ticks(of, filled)
    assert (len(ticks), units(ticks)) == (length, time)
    assert units(in_ticks(of)) <= time


def test_two_ways_between_two_ranks_are_one_exchange():
    of = Schedule.from_csv("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n").validate()
    made = table(of, in_ticks(of, "one"), Keeps("B", "B"))
    assert [channel.perm for channel in made.channels] == [((0, 1), (1, 0))]
