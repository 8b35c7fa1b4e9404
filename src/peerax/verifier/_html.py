"""A report as an HTML page."""

import linecache
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from peerax.diagnostics import Diagnostic, Location, runs
from peerax.timeline._html import table as rows_as_table
from peerax.verifier._grid import table
from peerax.verifier._ir import Program

if TYPE_CHECKING:
    from peerax.verifier._report import Report

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d0d4da, #3b4048); --quiet: light-dark(#5b6370, #9aa3b0);
  --safe: light-dark(#1a7f37, #4ac26b); --unsafe: light-dark(#c1121f, #ff7b72);
  --undecided: light-dark(#9a6700, #e3b341); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 0; }
code, pre, td, th { font-family: ui-monospace, monospace; font-size: 13px; }
pre { overflow-x: auto; margin: .5rem 0; white-space: pre-wrap; }
section { border: 1px solid var(--line); border-left: 4px solid var(--kind); border-radius: 4px; padding: .7rem 1rem;
  margin: 1rem 0; }
.quiet { color: var(--quiet); } .verdict { color: var(--kind); } .help { font-weight: 600; margin: .5rem 0 0; }
.source { border-left: 2px solid var(--line); padding-left: .7rem; margin: .3rem 0; }
.table { overflow-x: auto; } table { border-collapse: collapse; }
td, th { border: 1px solid var(--line); padding: .1rem .6rem; text-align: left; white-space: pre; }
"""
_KINDS = {"safe": "safe", "unsafe": "unsafe", "undecided": "undecided", "error": "unsafe", "warning": "undecided"}
_MOST_COLUMNS, _MOST_ROWS = 16, 200


def to_html(report: "Report", most: int) -> str:
    """Return the page."""
    verdict, _, rest = report.summary().partition(":")
    title = f"{verdict}: {report.size} ranks" if report.size else verdict
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f'<h1 style="--kind: var(--{_KINDS[report.verdict]})"><span class="verdict">{escape(verdict)}</span>'
        f"{escape(':' + rest)}</h1>",
    ]
    for found in report.diagnostics[:most]:
        parts += _diagnostic(found)
    if len(report.diagnostics) > most:
        parts.append(f"<p>and {len(report.diagnostics) - most} more</p>")
    if report.assumed:
        parts.append('<p class="quiet">assumed:</p><ul class="quiet">')
        parts += [*(f"<li>{escape(sentence)}</li>" for sentence in report.assumed), "</ul>"]
    if report.program is not None:
        parts += _table(report.program)
    return "\n".join([*parts, "</body></html>", ""])


def _diagnostic(found: Diagnostic) -> Iterator[str]:
    yield f'<section style="--kind: var(--{_KINDS[found.severity]})">'
    warning = "warning: " if found.severity == "warning" else ""
    yield f"<h2>{warning}{found.code}: {escape(found.title)}</h2>"
    yield from map(_source, dict.fromkeys(found.locations))
    yield f"<pre>{escape(found.message)}</pre>"
    facts = []
    if found.ranks:
        facts.append(f"ranks {runs(sorted(found.ranks))}")
    if found.channel is not None:
        facts.append("channel {} \N{RIGHTWARDS ARROW} {}, tag {}".format(*found.channel))
    if facts:
        yield f'<div class="quiet">{escape("; ".join(facts))}</div>'
    if found.evidence:
        yield f"<pre>{escape(chr(10).join(found.evidence))}</pre>"
    yield f'<div class="help">{escape(found.shown_help)}</div></section>'


def _source(location: Location) -> str:
    file, line = location
    text = linecache.getline(file, line).strip()
    shown = f"<pre>{escape(text)}</pre>" if text else ""
    return f'<div class="source"><code class="quiet">{escape(file)}:{line}</code>{shown}</div>'


def _table(program: Program) -> Iterator[str]:
    head, cells, more = table(program, _MOST_COLUMNS, _MOST_ROWS)
    yield f'<h2>What each rank does</h2><div class="table">{rows_as_table([head, *cells])}</div>'
    yield from (f'<p class="quiet">{escape(line)}</p>' for line in more)
