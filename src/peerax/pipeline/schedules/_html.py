"""A replay as a page: the picture, the table of the ranks, and the lists."""

from html import escape

from peerax.pipeline.schedules._replay import Replay
from peerax.pipeline.schedules._svg import to_svg
from peerax.pipeline.schedules._table import rows
from peerax.timeline._html import page, picture, table


def to_html(replay: Replay, width: int | None) -> str:
    """Return the page."""
    lists = escape(str(replay.schedule))
    parts = [picture(to_svg(replay, width)), table(rows(replay)), f'<pre class="picture">{lists}</pre>']
    return page(replay.heading, parts)
