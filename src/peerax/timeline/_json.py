"""A timeline as JSON. Spans and messages are rows, and the names of their fields are given once."""

import json
from dataclasses import fields
from operator import attrgetter
from typing import Any

from peerax.timeline._timeline import Message, RankTime, Span, Timeline

_VERSION = 1
_PARTS = {"ranks": RankTime, "spans": Span, "messages": Message}


def to_json(timeline: Timeline) -> str:
    """Return the timeline as a JSON object."""
    found: dict[str, Any] = {
        "timeline": _VERSION,
        "origin": timeline.origin,
        "semantics": timeline.semantics,
        "stuck": timeline.stuck,
    }
    for part, row in _PARTS.items():
        names = _names(row)
        found[part] = {"fields": names, "rows": list(map(attrgetter(*names), getattr(timeline, part)))}
    return json.dumps(found)


def from_json(text: str) -> Timeline:
    """Return the timeline that a text describes."""
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("timeline") != _VERSION:
        raise ValueError(f'a timeline is a JSON object with "timeline": {_VERSION}')
    try:
        parts = {}
        for part, row in _PARTS.items():
            if found[part]["fields"] != _names(row):
                raise ValueError(f"the {part} of a timeline have the fields {_names(row)}, got {found[part]['fields']}")
            parts[part] = tuple(row(*map(_frozen, values)) for values in found[part]["rows"])
        stuck = tuple(found["stuck"])
        return Timeline(**parts, stuck=stuck, origin=found["origin"], semantics=found["semantics"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no timeline: {error}") from None


def _names(row: type) -> list[str]:
    return [field.name for field in fields(row)]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
