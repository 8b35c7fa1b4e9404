"""The picture shows what the timeline says, stays small, and loads nothing."""

import re
from xml.etree import ElementTree

import pytest

from peerax.verifier import Collective, Cost, Program, simulate
from tests.timeline.timelines import deadlock, line, ring_of_pairs

LEFT, PLOT = 78, 1200 - 78 - 58
SVG = "{http://www.w3.org/2000/svg}"


def drawn(timeline, **options):
    return ElementTree.fromstring(timeline.to_svg(**options))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def rects(root, look):
    """Those of the rows, not of the legend."""
    found = [e for e in root.iter(f"{SVG}rect") if e.get("class", "").startswith(look)]
    return [e for e in found if float(e.get("y")) > 50]


def arrows(root):
    return [e for e in root.iter(f"{SVG}path") if e.get("class") == "a" and e.find(f"{SVG}title") is not None]


def test_rows_boxes_and_arrows():
    timeline = line(3, 2)
    root = drawn(timeline)
    assert [text for text in texts(root) if text.startswith("rank ")] == ["rank 0", "rank 1", "rank 2"]
    assert len(arrows(root)) == len(timeline.messages) == 4
    (first, *_) = rects(root, "k-recv")
    # Rank 1 waits from the start until rank 0 sends, and then the data moves.
    assert first.get("class") == "k-recv w"
    assert float(first.get("x")) == LEFT
    assert float(first.get("width")) == pytest.approx(PLOT * 1e-3 / timeline.makespan_s, abs=0.1)
    assert "rank 1: precv < 0, 3.906 KiB, pipe.py:11\niteration 1/2" in first.find(f"{SVG}title").text


def test_an_arrow_goes_from_the_sender_to_the_receiver():
    timeline = line(2, 1)
    (arrow,) = arrows(drawn(timeline))
    x, y, end, to = map(float, re.findall(r"[\d.]+", arrow.get("d")))
    (message,) = timeline.messages
    assert x == pytest.approx(LEFT + PLOT * message.posted_s / timeline.makespan_s, abs=0.1)
    assert end == pytest.approx(LEFT + PLOT * message.received_s / timeline.makespan_s, abs=0.1)
    assert y < to  # rank 1 is below rank 0


def test_the_area_of_a_colour_is_its_time():
    timeline = line(40, 300, semantics="buffered")
    root = drawn(timeline)
    assert any("drawn together" in text for text in texts(root))
    area = sum(float(rect.get("width")) * float(rect.get("height")) for rect in rects(root, "k-compute"))
    busy = sum(rank.busy_s for rank in timeline.ranks) / timeline.makespan_s * PLOT * 11
    assert area == pytest.approx(busy, rel=0.05)
    for rect in rects(root, "k-"):
        below = (float(rect.get("y")) - 62) % 18  # where it is in the row, of which the bar is 3.5 to 14.5
        assert 3.4 < below and below + float(rect.get("height")) < 14.6


def test_stuck_ranks_are_marked():
    root = drawn(deadlock())
    assert texts(root).count("stuck") == 3 + 1  # and the legend
    assert len(rects(root, "k-stuck")) == 3
    for rect in rects(root, "k-stuck"):
        assert float(rect.get("x")) + float(rect.get("width")) == pytest.approx(LEFT + PLOT, abs=0.1)
    assert "nothing happens any more" in texts(root)


@pytest.mark.parametrize("timeline", [deadlock(compute_s=0.0), line(1, 0), line(2, 0), ring_of_pairs(1)])
def test_nothing_or_no_time(timeline):
    root = drawn(timeline)
    assert f"rank {timeline.size - 1}" in texts(root)
    assert len(rects(root, "k-stuck")) == len(timeline.stuck)


def test_a_thousand_ranks_stay_small_and_it_says_what_is_left_out():
    timeline = line(1000, 100)
    assert len(timeline.spans) > 99_000
    picture = timeline.to_svg()
    assert len(picture) < 3_000_000
    root = ElementTree.fromstring(picture)
    assert sum(text.startswith("rank ") for text in texts(root)) == 64
    notes = " ".join(texts(root))
    assert "936 more ranks are not drawn" in notes
    assert "99,800 operations are not kept" in notes
    assert "messages from or to ranks that are not drawn" in notes
    assert "too many to be drawn" in notes
    assert len(timeline.to_html()) < len(picture) + 100_000
    assert len(timeline.table()) < 5000


def test_chosen_ranks_and_times():
    timeline = line(8, 20)
    root = drawn(timeline, ranks=[5, 4], between_s=(4e-3, 8e-3))
    assert [text for text in texts(root) if text.startswith("rank ")] == ["rank 5", "rank 4"]
    inside = [m for m in timeline.messages if (m.source, m.destination) == (4, 5)]
    inside = [m for m in inside if m.received_s >= 4e-3 and m.posted_s <= 8e-3]
    assert len(arrows(root)) == len(inside) > 0
    for rect in rects(root, "k-"):
        assert LEFT <= float(rect.get("x")) <= LEFT + PLOT
        assert float(rect.get("x")) + float(rect.get("width")) <= LEFT + PLOT + 1.3
    assert {"4 ms", "8 ms"} <= set(texts(root))
    assert "10 ms" not in texts(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": [2, 8]}, r"the ranks are 0\.\.7, not \[8\]"),
        ({"between_s": (2.0, 1.0)}, "in this order"),
        ({"most_ranks": 0}, "1 or more, not 0"),
        ({"width": 100}, "640 or more, not 100"),
    ],
)
def test_what_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        line(8, 1).to_svg(**options)


def test_names_are_escaped():
    program = Program.spmd(2, [Collective("<sum>&", ((0, 1),), ("float32[]",), ('a"<b>.py', 3))])
    timeline = simulate(program, Cost(1.0))
    assert "<sum>&" in " ".join(element.text or "" for element in drawn(timeline).iter())
    page = timeline.to_html()
    assert "<sum>" not in page and "<b>" not in page


@pytest.mark.parametrize("timeline", [line(3, 2), ring_of_pairs(), deadlock()])
def test_a_page_loads_nothing(timeline):
    page = timeline.to_html()
    assert timeline.to_svg() in page
    assert not re.search(r"<script|<link|<img|@import|\bsrc=|\bhref=", page)
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#pxt-head", "#pxt-more", "#pxt-stuck"}
    assert "prefers-color-scheme:dark" in page
