"""The order of the shard_maps of one program, where they have no data in common.

XLA would mix their operations, and a rank would wait in one for what another rank does later in the other. Each of them
has the handle of the one before as an operand and gives its own as a result; here they are put together, which can
only be done when the whole program is lowered.

What one of them keeps for another, as a forward pass does for its backward pass, then need not wait for the end of the
first, nor the begin of the second for it: the handles do that. And XLA may compute it again instead of keeping it. What
depends on the last operation of the first still does, so that what is computed with it is in the second and not between
them, where a trace takes nobody to compute.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from peerax import _jax
from peerax.ops._communication import any_in_params, has_peerax


def tie_shard_maps(lowered: Any, jaxpr: Any, platforms: Sequence[str]) -> None:
    """Let each shard_map of a block come after the one before it, in every block of a module."""
    for operation in lowered.module.body.operations:
        _tie_regions(operation)


def _tie_regions(operation) -> None:
    for region in operation.regions:
        for block in region.blocks:
            tied: list[_Tied] = []
            for inner in block.operations:
                operand = result = None
                if inner.operation.name == "sdy.manual_computation":
                    operand, result = _handle_ends(inner)
                if operand is None or result is None:
                    _tie_regions(inner)
                    continue
                if tied:
                    inner.operation.operands[operand] = tied[-1].computation.results[tied[-1].result]
                tied.append(_Tied(inner.operation, operand, result))
            _leave_to_handles(tied)


class _Tied(NamedTuple):
    """What a shard_map with peerax's operations became, and where the handle is among its operands and results."""

    computation: Any
    operand: int
    result: int


def _leave_to_handles(tied: Sequence[_Tied]) -> None:
    """Let what goes from one to later ones not be passed on by the end of the first, nor awaited by the others."""
    number = {each.computation: i for i, each in enumerate(tied)}
    free: set[Any] = set()  # results that none of the others waits for
    for i, (computation, operand, result) in enumerate(tied):
        block = computation.regions[0].blocks[0]
        operations = [inner.operation for inner in block.operations]
        (begin,) = _jax.users(block.arguments[operand])
        if _call_target(begin) != "peerax_begin":  # within a computation of its own nothing else passes
            continue
        arguments = [_jax.argument_number(value) for value in begin.operands]
        awaited = {at: computation.operands[argument] for at, argument in enumerate(arguments) if argument is not None}
        _jax.drop_operands(begin, [at for at, value in awaited.items() if value in free])
        returned = operations[-1].operands
        end = returned[result].owner
        last = _behind(operations, _operations_before(end.operands[0]))
        at = {value: number for number, value in enumerate(end.results)}
        passed = [
            (at[value], given)
            for value, given in zip(returned, computation.results, strict=True)
            if at.get(value) and end.operands[at[value]].owner not in last
            if all(number.get(user, -1) > i for user in _jax.users(given))
        ]
        _jax.pass_by(end, [position for position, _ in passed])
        free.update(given for _, given in passed)


def _operations_before(handle) -> set[Any]:
    """The operations that a handle comes after."""
    owner = handle.owner
    return {value.owner for value in owner.operands[1:]} if _call_target(owner) == "peerax_after" else {owner}


def _behind(operations: Sequence[Any], first: set[Any]) -> set[Any]:
    """Which operations of a block depend on some of them, themselves among them."""
    dependent = {*first}
    for operation in operations[min(map(operations.index, first)) :]:
        # Regions may use anything.
        if len(operation.regions) or not dependent.isdisjoint(value.owner for value in operation.operands):
            dependent.add(operation)
    return dependent


def _handle_ends(computation) -> tuple[int | None, int | None]:
    """Which operand is the handle from before, and which result the handle after; None if it has none.

    Where axes are left automatic, begin and end are each in a computation of its own inside.
    """
    block = computation.regions[0].blocks[0]
    operand = result = None
    for inner in block.operations:
        first, last = None, None
        if _call_target(inner) == "peerax_begin":
            first = inner.operation.operands[1]
        elif _call_target(inner) == "peerax_end":
            last = inner.operation.results[0]
        elif inner.operation.name == "sdy.manual_computation":
            i, j = _handle_ends(inner)
            first = None if i is None else inner.operation.operands[i]
            last = None if j is None else inner.operation.results[j]
        if first is not None and (number := _jax.argument_number(first)) is not None:
            operand = number
        if last is not None:
            returned = list(block.operations)[-1].operation.operands
            result = next((i for i, value in enumerate(returned) if value == last), None)
    return operand, result


def _call_target(operation) -> str:
    if operation.operation.name != "stablehlo.custom_call":
        return ""
    return operation.operation.attributes["call_target_name"].value


def has_communicating_shard_map(jaxpr: Any) -> bool:
    """Whether a function has a shard_map with peerax's operations."""
    jaxpr, _ = _jax.open_jaxpr(jaxpr)
    return any(
        any_in_params(eqn.params, has_peerax if eqn.primitive is _jax.shard_map_p else has_communicating_shard_map)
        for eqn in jaxpr.eqns
    )
