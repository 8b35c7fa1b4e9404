"""The pictures show what the replay says, stay readable, and load nothing."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from peerax.pipeline.schedules import SCHEDULES, Costs, Schedule, schedule
from tests.pipeline.made import schedules

SVG = "{http://www.w3.org/2000/svg}"
ROWS_FROM = 60  # the legend is above


def rects(svg, look):
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [e for e in found if e.get("class") == look and float(e.get("y")) > ROWS_FROM]


def titles(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}title")]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_box_for_each_action_and_each_bubble(name):
    replay = schedule(name, 4, 8).replay()
    svg = replay.to_svg()
    leaves = [leaf for rank in range(4) for leaf in replay.schedule.leaves(rank)]
    for kind in "FBIW":
        assert len(rects(svg, f"p{kind}")) == sum(leaf.kind == kind for leaf in leaves)
    pixels = float(re.search(r'class="bg" x="\d+" y="[\d.]+" width="([\d.]+)"', svg)[1]) / replay.makespan_s
    idle = sum(float(rect.get("width")) for rect in rects(svg, "idle")) / pixels
    assert idle == pytest.approx(sum(replay.makespan_s - busy for busy in replay.busy_s), rel=0.01)
    shades = {rect.get("fill-opacity") for rect in rects(svg, "pF")}
    assert len(shades) == replay.schedule.chunks
    assert titles(svg)[0] == replay.heading
    numbers = [e.text for e in ElementTree.fromstring(svg).iter(f"{SVG}text") if e.get("class") in ("t", "tw")]
    assert len(numbers) == len(leaves)  # each has room for its number


def test_what_is_pointed_at():
    found = titles(schedule("dualpipev", 2, 4).to_svg())
    assert "forward, stage 0, microbatch 0\n0 s to 1 s" in found
    assert "rank 1 is idle for 1 s, from 0 s on" in found
    assert any("\nand at the same time backward, stage" in title for title in found)


def test_a_large_one_is_wide_and_a_narrow_one_has_no_numbers():
    made = schedule("1f1b", 8, 32)
    assert 'width="1927"' in made.to_svg()
    narrow = ElementTree.fromstring(made.to_svg(width=600))
    assert narrow.get("width") == "600"
    assert len(rects(made.to_svg(width=600), "pF")) == 8 * 32
    assert float(ElementTree.fromstring(schedule("1f1b", 2, 4000).to_svg()).get("width")) < 6500
    with pytest.raises(ValueError, match="width is in pixels, 480 or more, not 100"):
        made.to_svg(width=100)


def test_the_page():
    made = Schedule.from_csv(schedule("zbv", 3, 5).to_csv(), name="<mine> & more")
    html = made.to_html()
    assert "&lt;mine&gt; &amp; more" in html and "<mine>" not in html
    assert re.findall(r'(?:src|href)="', html) == [] and "http" not in html.replace("http://www.w3.org/2000/svg", "")
    ElementTree.fromstring(html.partition("\n")[2].replace('<meta charset="utf-8">', "").replace(
        '<meta name="viewport" content="width=device-width">', ""))  # fmt: skip


TEXT = """\
1f1b: 2 ranks, 3 microbatches, 12 s in all, bubble 25 %
rank 0  F0 F1 .  .  B0--  F2 B1--  .  B2--
rank 1  .  F0 B0--  F1 B1--  F2 B2--  .  ."""


def test_text():
    assert schedule("1f1b", 2, 3).to_text() == TEXT


def test_text_does_not_depend_on_the_unit():
    for unit in (0.1, 1e-3, 1 / 3, 7e-5):
        text = schedule("1f1b", 3, 40).to_text(Costs(unit, 2 * unit), width=1000)
        assert text.splitlines()[1:] == schedule("1f1b", 3, 40).to_text(width=1000).splitlines()[1:]


def test_times_between_cells_go_to_the_nearest():
    rows = schedule("gpipe", 2, 1).to_text(Costs(1, 2, latency_s=0.7)).splitlines()[1:]
    assert rows == ["rank 0  F0 .  .  .  .  B0--", "rank 1  .  .  F0 B0--  .  ."]


def test_an_overlap_is_one_with_two_parts():
    text = schedule("dualpipev", 2, 4).to_text()
    assert "0F3+3B1--" in text


def test_wide_ones_are_in_parts_of_the_same_width():
    text = schedule("1f1b", 4, 32).to_text(width=80)
    parts = text.partition("\n")[2].split("\n\n")
    assert len(parts) > 3
    assert [part.splitlines()[0] for part in parts[:2]] == ["from 0 s", "from 18 s"]
    assert max(map(len, text.splitlines())) <= 80
    assert {len(part.splitlines()) for part in parts} == {5}


def test_times_that_have_nothing_in_common():
    made = schedule("zb-h1", 2, 3)
    assert "rank 0  F0" in made.to_text(Costs(1, 2, weight_s=0.9, latency_s=0.123))
    text = made.to_text(Costs(1, 2, weight_s=1e-6))
    assert "times differ too much" in text and "rank 1  F0 I0 F1 I1 W0 F2 I2 W1 W2" in text
    assert "0 s in all, bubble 0 %" in made.to_text(Costs(0, 0))
    assert made.to_svg(Costs(0, 0))
    with pytest.raises(ValueError, match="width is in characters, 40 or more"):
        made.to_text(width=10)


@settings(max_examples=40)
@given(schedules(most_ranks=3, most_microbatches=6))
def test_each_action_is_in_the_text_once(made):
    text = made.to_text(width=2000)
    for rank in range(made.ranks):
        row = next(line for line in text.splitlines() if line.startswith(f"rank {rank} "))
        words = re.findall(r"\d*[FBIW]\d+", row)
        stages = made.chunks > 1
        assert words == [str(leaf) if stages else str(leaf).removeprefix(str(leaf.stage)) for leaf in made.leaves(rank)]


def test_the_table_of_the_ranks():
    assert (
        schedule("zb-h1", 2, 4).replay(Costs(1e-3, 2e-3, message_bytes=2**20)).table()
        == """\
rank  stages  busy   idle  idle in between  keeps  without W  sends
0     0       12 ms  1 ms  1 ms             2      2          4, 4 MiB
1     1       12 ms  1 ms  0 s              2      1          4, 4 MiB"""
    )
