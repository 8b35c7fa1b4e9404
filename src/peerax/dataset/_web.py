"""The records as web pages: one for each, and an index; each is a file that needs no other."""

import html
from collections.abc import Mapping
from typing import Any

from peerax.dataset._extra import need
from peerax.diagnostics import Record, records

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1c1e21; --soft: #5c6370; --line: #d9dce1; --back: #fff; --code: #f5f6f8; --mark: #0b62a8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --soft: #9aa2ae; --line: #363b44; --back: #17191d; --code: #20242a; --mark: #6fb4f0 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 54rem; color: var(--ink); background: var(--back);
  font: 16px/1.55 system-ui, sans-serif }
a { color: var(--mark) }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 1rem }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line) }
code, pre { font: 13.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace }
:not(pre) > code { background: var(--code); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto }
pre.message { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 4px solid #c4453c; margin: 1rem 0 }
pre.fails { border-left: 4px solid #c4453c }
pre.runs { border-left: 4px solid #2f8f4e }
nav, .facts { color: var(--soft); font-size: .9rem }
.facts { margin: .25rem 0 1rem }
.tag { display: inline-block; border: 1px solid var(--line); border-radius: 1em; padding: 0 .6em; margin-right: .3em }
input { width: 100%; font: inherit; padding: .5rem .7rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--code); color: inherit }
ul.index { list-style: none; padding: 0; margin: .5rem 0 }
ul.index li { padding: .5rem 0; border-bottom: 1px solid var(--line) }
ul.index code { display: block; background: none; padding: 0; color: var(--soft) }
.k { color: #8250df } .s { color: #0a7b3e } .c { color: #7a828e; font-style: italic } .m { color: #b35900 }
@media (prefers-color-scheme: dark) {
  .k { color: #c297ff } .s { color: #7fd49b } .c { color: #8b939f } .m { color: #f0a75b } }
"""

_FILTER = """
<input id="words" type="search" placeholder="Filter: words of the message" aria-label="Filter">
<script>
document.getElementById("words").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  for (const item of document.querySelectorAll("ul.index li"))
    item.hidden = !words.every(word => item.textContent.toLowerCase().includes(word));
});
</script>
"""

_WHO = {"peerax": "peerax", "jax": "JAX", "xla": "XLA and its run time"}


def pages(urls: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the pages as {name of the file: text}; index.html leads to all others.

    Args:
        urls: the address of the line that raises the error, by slug, as far as it is known.

    Raises:
        Missing: if a package that makes the pages is not installed.
    """
    renderer = need("markdown_it").MarkdownIt("commonmark", {"highlight": _highlight}).enable("table")
    renderer.add_render_rule("fence", _fence)
    known = list(records().values())
    made = {"index.html": _document("Known errors", _index(known))}
    for i, record in enumerate(known):
        around = known[i - 1 if i else 0], known[min(i + 1, len(known) - 1)]
        made[f"{record.slug}.html"] = _document(
            record.title, _page(record, renderer, (urls or {}).get(record.slug), around)
        )
    return made


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _index(known: list[Record]) -> str:
    parts = [f"<h1>Known errors</h1><p>{len(known)} errors; the programs of each were executed.</p>{_FILTER}"]
    for origin, who in _WHO.items():
        items = [
            f'<li><a href="{record.slug}.html">{html.escape(record.title)}</a>'
            + ("" if record.code else f"<code>{html.escape(record.heading)}</code>")
            + "</li>"
            for record in known
            if record.origin == origin
        ]
        if items:
            parts.append(f'<h2>{who}</h2><ul class="index">{"".join(items)}</ul>')
    return "\n".join(parts)


def _page(record: Record, renderer: Any, url: str | None, around: tuple[Record, Record]) -> str:
    before, after = around
    links = [f'<a href="{other.slug}.html">{mark}</a>' for other, mark in ((before, "previous"), (after, "next"))]
    facts = [f"Raised by {_WHO[record.origin]}"]
    if record.versions:
        facts.append(f"seen with JAX {html.escape(record.versions)}")
    if url:
        facts.append(f'<a href="{html.escape(url)}">source</a>')
    tags = "".join(f'<span class="tag">{html.escape(tag)}</span>' for tag in record.tags)
    text = record.page().partition("\n")[2].replace(record.facts(), "", 1)
    message = "" if record.code else f'<pre class="message">{html.escape(record.heading)}</pre>'
    return "\n".join(
        [
            f'<nav><a href="index.html">Known errors</a> · {" · ".join(links)}</nav>',
            f"<h1>{html.escape(record.title)}</h1>",
            message,
            f'<p class="facts">{" · ".join(facts)}</p>',
            renderer.render(text),
            f"<p>{tags}</p>",
        ]
    )


def _fence(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    kind = "fails" if "fails" in token.info else "runs"
    return f'<pre class="{kind}"><code>{options.highlight(token.content, token.info, "")}</code></pre>\n'


def _highlight(code: str, language: str, _: str) -> str:
    """Return a Python program as HTML, with classes for its kinds of words."""
    token = need("pygments.token").Token
    lexer = need("pygments.lexers").PythonLexer(stripnl=False)
    classes = {token.Keyword: "k", token.String: "s", token.Comment: "c", token.Number: "m", token.Operator.Word: "k"}
    parts = []
    for kind, text in lexer.get_tokens(code):
        name = next((classes[parent] for parent in classes if kind in parent), None)
        escaped = html.escape(text)
        parts.append(f'<span class="{name}">{escaped}</span>' if name else escaped)
    return "".join(parts)
