"""The order of the shard_maps of one program, where they have no data in common.

XLA would mix their operations, and a rank would wait in one for what another rank does later in the other. Each of them
has the handle of the one before as an operand and gives its own as a result; here they are put together, which can
only be done when the whole program is lowered.
"""

from collections.abc import Sequence
from typing import Any

from peerax import _jax
from peerax.ops._communication import any_in_params, has_peerax


def tie_shard_maps(module: Any, jaxpr: Any, platforms: Sequence[str]) -> None:
    """Let each shard_map of a block come after the one before it, in every block of a module."""
    for operation in module.body.operations:
        _tie_regions(operation)


def _tie_regions(operation) -> None:
    for region in operation.regions:
        for block in region.blocks:
            before = None
            for inner in block.operations:
                operand = result = None
                if inner.operation.name == "sdy.manual_computation":
                    operand, result = _handle_ends(inner)
                if operand is None or result is None:
                    _tie_regions(inner)
                    continue
                if before is not None:
                    inner.operation.operands[operand] = before
                before = inner.operation.results[result]


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
        if first is not None and _jax.is_block_argument(first):
            operand = list(block.arguments).index(first)
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
