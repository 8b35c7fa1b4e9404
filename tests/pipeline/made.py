"""What the tests of schedules have in common: random ones, and how they are written."""

from hypothesis import assume
from hypothesis import strategies as st

from peerax.pipeline.schedules import SCHEDULES, schedule

WITH_CHUNKS = ("interleaved-1f1b", "looped-bfs", "combined-tick", "circular", "interleaved-zb")
SPLIT = ("zb-h1", "zb-h2", "interleaved-zb", "zbv")


def texts(made, rank):
    """Return the list of a rank, without stages where it has only one."""
    return " ".join(str(a) if made.chunks > 1 else str(a).removeprefix(str(rank)) for a in made.actions[rank])


@st.composite
def schedules(draw, names=SCHEDULES, most_ranks=5, most_microbatches=12):
    """Draw a schedule of those that there are."""
    name = draw(st.sampled_from(names))
    ranks = draw(st.integers(1, most_ranks))
    microbatches = draw(st.integers(1, most_microbatches))
    if name == "combined-tick":
        microbatches = ranks * draw(st.integers(1, 3))
    elif name == "dualpipev":
        microbatches += 2 * ranks - 1
    chunks = draw(st.integers(1, 3)) if name in WITH_CHUNKS else None
    if name == "circular":
        microbatches += ranks - 1
    if name.startswith("interleaved"):
        assume(microbatches % max(1, microbatches // ranks) == 0)
    return schedule(name, ranks, microbatches, chunks)
