"""A timeline as JSON. Spans and messages are rows, and the names of their fields are given once."""

import json
from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args

from peerax.timeline._timeline import Kind, Message, Pause, RankTime, Span, Timeline

_VERSION = 1
_PARTS = {"ranks": RankTime, "spans": Span, "messages": Message, "pauses": Pause}


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
            names = _names(row)
            if found[part]["fields"] != names:
                raise ValueError(f"the {part} of a timeline have the fields {names}, got {found[part]['fields']}")
            parts[part] = tuple(_rows(row, names, found[part]["rows"]))
        stuck = tuple(found["stuck"])
        return Timeline(**parts, stuck=stuck, origin=found["origin"], semantics=found["semantics"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no timeline: {error}") from None


def _rows(row: type, names: list[str], found: list[list]) -> Iterator[Any]:
    rules = [(name, *(_SECONDS if name.endswith("_s") else _FIELDS[name])) for name in names]
    for values in found:
        values = [_frozen(value) if isinstance(value, list) else value for value in values]
        if len(values) != len(names):
            raise ValueError(f"a {row.__name__} has {len(names)} fields, not {len(values)}")
        for value, (name, expected, fits) in zip(values, rules, strict=True):
            if not fits(value):
                raise ValueError(f"{name} of a {row.__name__} is {expected}, not {value!r}")
        yield row(*values)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _is_channel(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(_is_number, value))


def _is_iteration(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))


def _is_location(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_number(value[1])


# What is larger is a mistake, and cannot be counted in nanoseconds.
_SECONDS = "a number of seconds from 0 to 1e12", lambda value: type(value) in (int, float) and 0 <= value <= 1e12
_COUNT = "a whole number from 0 to 2**63", lambda value: _is_number(value) and 0 <= value <= 2**63
_NAME = "a text", lambda value: isinstance(value, str)
# What is in a field, and how to tell; times are known by their names.
_FIELDS = {
    "rank": _COUNT,
    "source": _COUNT,
    "destination": _COUNT,
    "tag": ("a whole number", _is_number),
    "size_bytes": _COUNT,
    "operations": _COUNT,
    "kind": (f"one of {get_args(Kind)}", lambda value: value in get_args(Kind)),
    "name": _NAME,
    "path": _NAME,
    "location": ("[file, line] or null", lambda value: value is None or _is_location(value)),
    "channels": (
        "a list of [source, destination, tag]",
        lambda value: isinstance(value, tuple) and all(map(_is_channel, value)),
    ),
    "iterations": (
        "a list of [iteration, trip count]",
        lambda value: isinstance(value, tuple) and all(map(_is_iteration, value)),
    ),
    "complete": ("true or false", lambda value: isinstance(value, bool)),
}


def _names(row: type) -> list[str]:
    return [field.name for field in fields(row)]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
