"""Reads the text of a program."""

import json
import re

from peerax.diagnostics import Location
from peerax.verifier._ir import (
    Body,
    Branch,
    Collective,
    Exchange,
    Item,
    Loop,
    Process,
    Program,
    Recv,
    Send,
    Table,
    Unknown,
)

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_FIELD = re.compile(rf'([a-z]+)=((?:{_QUOTED}|[^\s"])*)')
_LINE = re.compile(r"( *)([a-z]+)(?: (.*))?")
_ELEMENT = re.compile(rf"{_QUOTED}|[^;]+")
_KINDS = ("uniform", "varying", "unknown")


def parse(text: str) -> Program:
    """Return the program that a text describes."""
    return _Reader(text).program()


class _Reader:
    """Goes through the lines once; the indentation says what belongs to what."""

    def __init__(self, text: str) -> None:
        self._lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        self._at = 0

    def program(self) -> Program:
        header = self._take()
        if not (found := re.fullmatch(r"program of (\d+) ranks", header)):
            raise self._error("a program begins with 'program of N ranks'")
        processes = []
        while self._at < len(self._lines):
            if not (start := re.fullmatch(r"ranks ([\d,-]+):", self._take())):
                raise self._error("expected 'ranks 0-3:'")
            processes.append(Process(_numbers(start[1]), self._body(2)))
        program = Program(tuple(processes))
        if program.size != int(found[1]):
            raise ValueError(f"the text says {found[1]} ranks, but has {program.size}")
        return program

    def _take(self) -> str:
        if self._at == len(self._lines):
            raise ValueError("the text ends too early")
        self._at += 1
        return self._lines[self._at - 1][1]

    def _error(self, why: str) -> ValueError:
        number, line = self._lines[self._at - 1]
        return ValueError(f"line {number}: {why}: {line!r}")

    def _next(self, indent: int) -> str | None:
        """The word that the next line begins with, if that line has this indentation."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at][1]
        if len(line) - len(line.lstrip(" ")) != indent:
            return None
        return line.split()[0]

    def _body(self, indent: int) -> Body:
        items = []
        while (word := self._next(indent)) and word != "case":
            items.append(self._item(self._take(), indent))
        return tuple(items)

    def _item(self, line: str, indent: int) -> Item:
        match = _LINE.fullmatch(line)
        try:
            if not match:
                raise ValueError("not an item")
            return self._build(match[2], match[3] or "", indent)
        except (KeyError, IndexError, ValueError) as error:
            if str(error).startswith("line "):
                raise
            raise self._error(str(error)) from None

    def _build(self, kind: str, rest: str, indent: int) -> Item:
        fields = dict(_FIELD.findall(rest))
        location = _location(fields["at"])
        if kind == "loop":
            trip = int(found[0]) if (found := re.match(r"\d+", rest)) else _value(fields)
            return Loop(trip, self._body(indent + 2), location)
        if kind == "branch":
            branches = []
            while self._next(indent) == "case":
                self._take()
                branches.append(self._body(indent + 2))
            return Branch(_value(fields), tuple(branches), location)
        types, axes = _words(fields["types"]), _words(fields.get("axes", ""))
        if kind == "collective":
            groups = tuple(_numbers(group) for group in fields["groups"].split("|") if group)
            return Collective(_word(fields["name"]), groups, types, location, axes)
        perm, channel = _pairs(fields["perm"]), (int(fields.get("tag", 0)), _word(fields.get("path", "")), axes)
        if kind == "exchange":
            return Exchange(perm, types, location, _location(fields["receive"]), int(fields["pair"]), *channel)
        return {"send": Send, "recv": Recv}[kind](perm, types, location, *channel)


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    pairs: list[tuple[int, int]] = []
    for run in text.split(",") if text else ():
        sources, destinations = run.split(">")
        pairs += zip(_numbers(sources), _numbers(destinations), strict=True)
    return tuple(pairs)


def _value(fields: dict[str, str]) -> Table | Unknown:
    for kind in _KINDS:
        if kind in fields:
            return Unknown(_word(fields[kind]), kind)
    values: list[int] = []
    for run in fields["table"].split(",") if fields["table"] else ():
        number, _, count = run.partition("*")
        values += [int(number)] * int(count or 1)
    return Table(tuple(values), int(fields["depth"]))


def _location(text: str) -> Location:
    file, _, line = text.rpartition(":")
    return _word(file), int(line)


def _words(text: str) -> tuple[str, ...]:
    return tuple(_word(element) for element in _ELEMENT.findall(text))


def _word(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text
