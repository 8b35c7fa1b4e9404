"""A timeline as a page: the picture and the tables, with nothing to load."""

from html import escape

from peerax.timeline._channels import channel_rows
from peerax.timeline._svg import Extent, to_svg
from peerax.timeline._table import heading_of, line_rows, rank_rows
from peerax.timeline._timeline import Timeline

_MOST_ROWS, _MOST_LINES = 256, 40

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{heading}</title>
<style>
:root{{color-scheme:light dark}}
body{{margin:16px;font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;background:#fff;color:#1b2530}}
.picture{{overflow-x:auto}}
.pictures{{display:flex;flex-wrap:wrap;gap:24px;margin:16px 0}}
table{{border-collapse:collapse;margin:16px 0;font-variant-numeric:tabular-nums}}
th,td{{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #d9dfe5;white-space:nowrap}}
@media (prefers-color-scheme:dark){{body{{background:#14191f;color:#dbe2e9}}th,td{{border-color:#2c353f}}}}
</style>
</head>
<body>
{parts}
</body>
</html>
"""


def to_html(timeline: Timeline, extent: Extent) -> str:
    """Return the page of a timeline: its picture, where the time of each rank went, the lines, and who sent to whom."""
    lines, more = line_rows(timeline, _MOST_LINES)
    parts = [picture(to_svg(timeline, extent)), table(rank_rows(timeline, _MOST_ROWS))]
    if timeline.size > _MOST_ROWS:
        parts.append(f"<p>and {timeline.size - _MOST_ROWS:,} more ranks, of which the mean is too</p>")
    if len(lines) > 1:
        parts.append(table(lines))
    if more:
        parts.append(f"<p>and {more:,} more lines</p>")
    channels, more = channel_rows(timeline, _MOST_LINES)
    if len(channels) > 1:
        parts.append(table(channels))
        if more:
            parts.append(f"<p>and {more:,} more</p>")
        matrix = timeline.matrix()
        parts.append(f'<div class="pictures">\n{matrix.to_svg()}{matrix.to_svg("waits")}</div>')
    if timeline.left_out:
        parts.append(f"<p>of the operations that are kept; {timeline.left_out:,} are not</p>")
    return page(heading_of(timeline), parts)


def page(heading: str, parts: list[str]) -> str:
    """Return a page of these parts."""
    return _PAGE.format(heading=escape(heading), parts="\n".join(parts))


def picture(svg: str) -> str:
    """Return the part that a picture is, which may be wider than the page."""
    return f'<div class="picture">\n{svg}</div>'


def table(rows: list[list[str]]) -> str:
    """Return rows as a table, the first one as its head."""
    head, *body = rows
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return "\n".join([*lines, "</table>"])
