"""A program with values in place of what is not known before the run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from peerax.verifier._ir import Body, Branch, Item, Loop, Program, Unknown

Values = Mapping[str, int | Sequence[int]]


def with_values(program: Program, values: Values) -> Program:
    """Return the program with a value, or one for each rank, for each name. Raises ValueError if one does not fit."""
    names = {name: None for process in program.processes for name in _names(process.body)}
    if missing := [name for name in names if name not in values]:
        raise ValueError(f"the program depends on values that are not known: give values for {', '.join(missing)}")
    if surplus := [name for name in values if name not in names]:
        known = ", ".join(names) or "none"
        raise ValueError(f"nothing in the program depends on {', '.join(surplus)}; what is not known: {known}")
    for name, value in values.items():
        each = value if isinstance(value, Sequence) else (value,)
        if isinstance(value, str) or not all(isinstance(number, int) for number in each):
            raise ValueError(f"{name} is a number, or one for each rank, not {value!r}")
        if isinstance(value, Sequence) and len(value) != program.size:
            raise ValueError(f"{name} has {len(value)} values for {program.size} ranks; give one value, or one each")
    if not names:
        return program
    by_rank = [
        {name: value if isinstance(value, int) else value[rank] for name, value in values.items()}
        for rank in range(program.size)
    ]
    return Program.of(_known(body, by_rank[rank]) for rank, body in enumerate(program.bodies()))


def _names(body: Body) -> list[str]:
    names = []
    for item in body:
        value = item.trip if isinstance(item, Loop) else item.selector if isinstance(item, Branch) else None
        if isinstance(value, Unknown):
            names.append(value.name)
        for part in (item.body,) if isinstance(item, Loop) else item.branches if isinstance(item, Branch) else ():
            names += _names(part)
    return names


def _known(body: Body, values: dict[str, int]) -> Body:
    items: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            trip = values[item.trip.name] if isinstance(item.trip, Unknown) else item.trip
            items.append(replace(item, trip=trip, body=_known(item.body, values)))
        elif isinstance(item, Branch):
            branches = tuple(_known(branch, values) for branch in item.branches)
            if not isinstance(item.selector, Unknown):
                items.append(replace(item, branches=branches))
                continue
            chosen = values[item.selector.name]
            if not 0 <= chosen < len(branches):
                where = f"{item.location[0]}:{item.location[1]}"
                raise ValueError(
                    f"{item.selector.name} is {chosen}, and the branches at {where} are 0..{len(branches) - 1}"
                )
            items += branches[chosen]
        else:
            items.append(item)
    return tuple(items)
