"""A timeline as a page: the picture and the tables, with nothing to load."""

from html import escape

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
table{{border-collapse:collapse;margin:16px 0;font-variant-numeric:tabular-nums}}
th,td{{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #d9dfe5;white-space:nowrap}}
@media (prefers-color-scheme:dark){{body{{background:#14191f;color:#dbe2e9}}th,td{{border-color:#2c353f}}}}
</style>
</head>
<body>
<div class="picture">
{picture}</div>
{tables}
</body>
</html>
"""


def to_html(timeline: Timeline, extent: Extent) -> str:
    """Return the page."""
    lines, more = line_rows(timeline, _MOST_LINES)
    tables = [_table(rank_rows(timeline, _MOST_ROWS))]
    if timeline.size > _MOST_ROWS:
        tables.append(f"<p>and {timeline.size - _MOST_ROWS:,} more ranks, of which the mean is too</p>")
    if len(lines) > 1:
        tables.append(_table(lines))
    if more:
        tables.append(f"<p>and {more:,} more lines</p>")
    if timeline.left_out:
        tables.append(f"<p>of the operations that are kept; {timeline.left_out:,} are not</p>")
    return _PAGE.format(
        heading=escape(heading_of(timeline)),
        picture=to_svg(timeline, extent),
        tables="\n".join(tables),
    )


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return "\n".join([*lines, "</table>"])
