"""The findings in the Static Analysis Results Interchange Format, SARIF 2.1.0."""

import json
import os
import pathlib
import urllib.parse
from typing import Any

from peerax.lint._finding import Finding, Unreadable
from peerax.lint._rules import RULES, Rule
from peerax.lint._run import Result

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(result: Result, version: str) -> str:
    """Return a log with one run.

    Args:
        result: what came of linting.
        version: the version of peerax.

    Returns:
        JSON, to be written as UTF-8.
    """
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "peerax lint", "version": version, "rules": [_rule(r) for r in RULES.values()]}
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": not result.unreadable,
                        "toolExecutionNotifications": [_notification(one) for one in result.unreadable],
                    }
                ],
                "results": [_result(finding) for finding in result.findings],
            }
        ],
    }
    return json.dumps(log, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "help": {"text": rule.help},
        "defaultConfiguration": {"enabled": rule.default, "level": rule.severity},
    }


def _result(finding: Finding) -> dict[str, Any]:
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
    }
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": list(RULES).index(finding.code),
        "level": RULES[finding.code].severity,
        "message": {"text": finding.message},
        "locations": [_location(finding.path, region)],
    }
    if finding.related:
        found["relatedLocations"] = [
            {"id": number, "message": {"text": what}, **_location(finding.path, {"startLine": line})}
            for number, (line, what) in enumerate(finding.related)
        ]
    return found


def _notification(one: Unreadable) -> dict[str, Any]:
    place = _location(one.path, {"startLine": one.line})
    return {"level": "error", "message": {"text": one.message}, "locations": [place]}


def _location(path: str, region: dict[str, int]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": region}}


def _uri(path: str) -> str:
    """Return a path as a URI: relative to the working directory where it is below that."""
    absolute = pathlib.Path(os.path.abspath(path))
    try:
        return urllib.parse.quote(absolute.relative_to(pathlib.Path.cwd()).as_posix())
    except ValueError:
        return absolute.as_uri()
