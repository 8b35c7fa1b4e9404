"""`peerax explain`: find out what a code, a message or a whole log is about, and show how it is fixed."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerax.diagnostics import Found, Record
    from peerax.lint import Rule

_DESCRIPTION = """\
Explain an error of peerax, JAX or XLA: what it means, when it happens, a program that fails like that, the fixed
one, and how to prevent it. Text may be as it was printed: with colours, prefixes of a logger, pytest's marks."""

_EPILOG = """\
exit code:
  0  it is known
  1  it is not known; errors with a similar message are named
  2  a file cannot be read

examples:
  peerax explain PX203
  peerax explain "psend is currently only implemented on GPUs"
  pytest 2>&1 | peerax explain -"""

_MOST_OTHERS = 5


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `explain` command."""
    parser = subparsers.add_parser(
        "explain",
        help="say what an error of peerax, JAX or XLA means, and how it is fixed",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="CODE|MESSAGE|FILE|-",
        help="a code such as PX203 (203 means the same), a message, a file with a traceback or log, or - for the "
        "standard input",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--md", action="store_true", help="print Markdown, also on a terminal")
    form.add_argument("--json", action="store_true", help="print a line of JSON for each argument")
    parser.set_defaults(run=run, parser=parser)


def run(namespace: argparse.Namespace) -> int:
    """Explain each argument, and return the exit code."""
    from peerax.diagnostics import find

    exit_code, blocks = 0, []
    for what in _arguments(namespace.what):
        try:
            text = _read(what)
        except OSError as error:
            print(f"peerax explain: cannot read {what}: {error.strerror}", file=sys.stderr)
            exit_code = 2
            continue
        if rule := _rule(text):
            if namespace.json:
                print(json.dumps(_rule_as_json(what, rule)))
            else:
                blocks.append(_page_of_rule(rule))
            continue
        found = find(text)
        if not found.matches:
            exit_code = max(exit_code, 1)
        if namespace.json:
            print(json.dumps(_as_json(what, found)))
        elif found.matches:
            blocks.append(_page(found))
        else:
            print(_not_known(what, found), file=sys.stderr)
    if blocks:
        _show("\n".join(blocks), markdown=namespace.md)
    return exit_code


def _arguments(words: list[str]) -> list[str]:
    """Return the arguments; a message that was not quoted came as several words, and is one argument."""
    from peerax.diagnostics import records
    from peerax.diagnostics._matching import looks_like_code, named_by

    whole = all(
        word == "-"
        or os.path.exists(word)
        or looks_like_code(word)
        or " " in word
        or named_by(word, records().values())
        for word in words
    )
    return words if whole else [" ".join(words)]


def _read(what: str) -> str:
    if what == "-":
        return sys.stdin.buffer.read().decode(errors="replace")
    if os.path.isfile(what) or (what.endswith((".txt", ".log", ".out", ".err")) and " " not in what):
        with open(what, encoding="utf-8", errors="replace") as file:
            return file.read()
    return what


def _rule(text: str) -> "Rule | None":
    """Return the rule of the linter whose code a text is."""
    from peerax.lint import RULES

    return RULES.get(text.strip().upper())


def _page_of_rule(rule: "Rule") -> str:
    found_by = "peerax lint" if rule.default else f"peerax lint --select {rule.code}"
    return (
        f"# {rule.code}: {rule.title}\n\n"
        f"`{found_by}` finds it ({rule.name}, {rule.severity}). To mend it: {rule.help}.\n\n"
        "docs/linting.md has a program in which it is found, and the fixed one.\n"
    )


def _rule_as_json(what: str, rule: "Rule") -> dict:
    fields = {"slug": rule.code, "title": rule.title, "severity": rule.severity, "fix": rule.help}
    return {"query": what, "known": True, "matches": [fields], "near": []}


def _page(found: "Found") -> str:
    """Return the page of the best match, and the names of the others."""
    best, *others = found.matches
    page = best.page()
    if others:
        names = [f"- `peerax explain {record.slug}`: {record.title}" for record in others[:_MOST_OTHERS]]
        page += "\n## Also in this text\n\n" + "\n".join(names) + "\n"
    return page


def _not_known(what: str, found: "Found") -> str:
    shown = "the standard input" if what == "-" else repr(what if len(what) < 80 else f"{what[:77]}...")
    lines = [f"peerax explain: not known: {shown}"]
    if found.near:
        lines.append("known errors with a similar name or message, which may be about something else:")
        lines += [f"  {_line(record)}" for record in found.near]
    else:
        lines.append("  help: give the whole traceback; docs/errors.md lists what is known")
    return "\n".join(lines)


def _line(record: "Record") -> str:
    return record.title if record.code else f"{record.slug}  {record.heading}"


def _as_json(what: str, found: "Found") -> dict:
    return {
        "query": what,
        "known": bool(found.matches),
        "matches": [_fields(record) for record in found.matches],
        "near": [{"slug": record.slug, "errorMessage": record.message, "title": record.title} for record in found.near],
    }


def _fields(record: "Record") -> dict:
    """Return what is known of a record, under the names that a published one has."""
    return {
        "slug": record.slug,
        "title": record.title,
        "origin": record.origin,
        "errorCode": record.code,
        "errorClass": record.exception,
        "errorMessage": record.message,
        "messagePattern": record.template.pattern(),
        "severity": record.severity,
        "meaning": record.meaning,
        "triggerScenarios": list(record.when),
        "commonSituations": list(record.situations),
        "why": record.why,
        "fix": record.fix,
        "exampleFailure": record.failing.standalone(),
        "exampleFix": record.fixed.standalone(),
        "handlingStrategy": record.handling,
        "preventionTips": list(record.prevention),
        "versions": record.versions,
        "tags": list(record.tags),
    }


def _show(text: str, *, markdown: bool) -> None:
    if markdown or not sys.stdout.isatty():
        print(text, end="")
        return
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
