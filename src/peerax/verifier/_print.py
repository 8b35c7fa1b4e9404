"""The text of a program, one line an item; _parse reads it back."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from peerax.diagnostics import Location
from peerax.verifier._ir import Body, Branch, Collective, Exchange, Loop, Pairs, Program, Recv, Send, Table, Unknown

_PLAIN = re.compile(r"[A-Za-z0-9_./<>\[\],+-]+")
_NAMES = {Send: "send", Recv: "recv", Exchange: "exchange"}


def to_text(program: Program) -> str:
    """Return the text, with a newline at its end."""
    lines = [f"program of {program.size} ranks"]
    for process in program.processes:
        lines.append(f"ranks {runs(process.ranks)}:")
        lines += _items(process.body, "  ")
    return "\n".join(lines) + "\n"


def runs(numbers: Iterable[int]) -> str:
    """Return numbers with successive ones folded: "0-2,5"."""
    folded: list[list[int]] = []
    for number in numbers:
        if folded and number == folded[-1][-1] + 1:
            folded[-1][1:] = [number]
        else:
            folded.append([number])
    return ",".join("-".join(map(str, run)) for run in folded)


def _items(body: Body, indent: str) -> Iterator[str]:
    for item in body:
        if isinstance(item, Loop):
            yield f"{indent}loop {_value(item.trip)} at={_at(item.location)}"
            yield from _items(item.body, indent + "  ")
        elif isinstance(item, Branch):
            yield f"{indent}branch {_value(item.selector)} at={_at(item.location)}"
            for branch in item.branches:
                yield f"{indent}case"
                yield from _items(branch, indent + "  ")
        elif isinstance(item, Collective):
            groups = "|".join(map(runs, item.groups))
            yield f"{indent}collective name={_word(item.name)} groups={groups} {_common(item)}"
        else:
            more = [f"tag={item.tag}"] if item.tag else []
            more += [f"path={_word(item.path)}"] if item.path else []
            if isinstance(item, Exchange):
                more += [f"pair={item.pair}", f"receive={_at(item.receive_location)}"]
            yield f"{indent}{' '.join([_NAMES[type(item)], f'perm={_pairs(item.perm)}', *more, _common(item)])}"


def _common(item) -> str:
    axes = [f"axes={_list(item.axes)}"] if item.axes else []
    return " ".join([f"types={_list(item.types)}", *axes, f"at={_at(item.location)}"])


def _pairs(perm: Pairs) -> str:
    """Fold pairs that go up together: "0-2>1-3" is 0>1, 1>2, 2>3."""
    folded: list[list[tuple[int, int]]] = []
    for source, destination in perm:
        if folded and (source - 1, destination - 1) == folded[-1][-1]:
            folded[-1][1:] = [(source, destination)]
        else:
            folded.append([(source, destination)])
    return ",".join(">".join("-".join(map(str, ends)) for ends in zip(*run, strict=True)) for run in folded)


def _value(value: int | Table | Unknown) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Unknown):
        return f"{value.kind}={_word(value.name)}"
    counted = [(number, sum(1 for _ in equal)) for number, equal in groupby(value.values)]
    values = ",".join(f"{number}*{count}" if count > 1 else str(number) for number, count in counted)
    return f"table={values} depth={value.depth}"


def _at(location: Location) -> str:
    return f"{_word(location[0])}:{location[1]}"


def _list(words: Iterable[str]) -> str:
    return ";".join(map(_word, words))


def _word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else json.dumps(word)
