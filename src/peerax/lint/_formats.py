"""The findings as text, as JSON, and as annotations of GitHub."""

import json
import os

from peerax.lint._finding import Finding, Unreadable
from peerax.lint._rules import RULES
from peerax.lint._run import Result


def to_text(result: Result) -> str:
    """Return one line for each finding, with the fix below it, and how many there are."""
    lines: list[str] = []
    for finding in result.findings:
        lines.append(f"{finding.path}:{finding.line}:{finding.column}: {finding.code} {finding.message}")
        lines += [f"  line {line}: {what}" for line, what in finding.related]
        lines.append(f"  help: {finding.help}")
    return "\n".join([*lines, summary(result)])


def summary(result: Result) -> str:
    """Return in one line how much was found."""
    files = _count(result.files, "file")
    if not result.findings:
        return f"{files}: nothing found"
    with_findings = len({finding.path for finding in result.findings})
    text = f"{_count(len(result.findings), 'finding')} in {with_findings} of {files}"
    fixable = sum(finding.fixable for finding in result.findings)
    return f"{text}; --fix fixes {fixable}" if fixable else text


def to_json(result: Result) -> str:
    """Return an object with the findings, the files that could not be read, and the number of files."""
    return json.dumps(
        {
            "files": result.files,
            "findings": [_record(finding) for finding in result.findings],
            "unreadable": [{"path": one.path, "line": one.line, "message": one.message} for one in result.unreadable],
        },
        indent=2,
    )


def _record(finding: Finding) -> dict:
    rule = RULES[finding.code]
    return {
        "code": finding.code,
        "name": rule.name,
        "severity": rule.severity,
        "message": finding.message,
        "help": rule.help,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "related": [{"line": line, "message": what} for line, what in finding.related],
        "fixable": finding.fixable,
    }


def to_github(result: Result) -> str:
    """Return workflow commands, with which GitHub shows the findings beside the lines of a change."""
    return "\n".join([*map(_annotation, result.findings), *map(_of_unreadable, result.unreadable)])


def _annotation(finding: Finding) -> str:
    rule = RULES[finding.code]
    level = {"error": "error", "warning": "warning", "note": "notice"}[rule.severity]
    properties = {
        "file": _relative(finding.path),
        "line": finding.line,
        "endLine": finding.end_line,
        "title": f"{finding.code} {rule.name}",
    }
    if finding.line == finding.end_line:  # GitHub takes columns for one line only
        properties |= {"col": finding.column, "endColumn": finding.end_column}
    return _command(level, properties, f"{finding.message}\nhelp: {rule.help}")


def _of_unreadable(one: Unreadable) -> str:
    return _command("error", {"file": _relative(one.path), "line": one.line, "title": "peerax lint"}, one.message)


def _command(level: str, properties: dict, message: str) -> str:
    given = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in properties.items())
    return f"::{level} {given}::{_escaped(message, '')}"


def _escaped(text: str, more: str) -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _relative(path: str) -> str:
    """Return a path as GitHub wants it: from the working directory, with slashes."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on another drive
        return path
    return (path if relative.startswith(os.pardir) else relative).replace(os.sep, "/")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
