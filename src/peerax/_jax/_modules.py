"""Modules that JAX has lowered, and what can be changed in them before they are compiled."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo


def when_module_is_lowered(action: Callable[[Any, Any, Sequence[str]], None]) -> None:
    """Call action with what JAX has lowered each jaxpr to, that jaxpr and the platforms, before it is compiled."""
    lower = mlir.lower_jaxpr_to_module

    @functools.wraps(lower)
    def lower_jaxpr_to_module(module_name, jaxpr, *args, platforms, **kwargs):
        result = lower(module_name, jaxpr, *args, platforms=platforms, **kwargs)
        action(result, jaxpr, platforms)
        return result

    mlir.lower_jaxpr_to_module = lower_jaxpr_to_module


def argument_number(value) -> int | None:
    """Which argument of its block a value is; None if it is none."""
    return value.arg_number if isinstance(value, ir.BlockArgument) else None


def users(value) -> list[Any]:
    """The operations that have a value as an operand."""
    return [use.owner.operation for use in value.uses]


def drop_operands(call, dropped: Sequence[int]) -> None:
    """Replace a custom call by one that lacks some operands."""
    if dropped:
        _replace(call, _others(call.operands, dropped), range(len(call.results)))


def pass_by(call, dropped: Sequence[int]) -> None:
    """Replace a custom call that passes its operands on, each in its memory, by one that lacks some of them."""
    if not dropped:
        return
    for i in dropped:
        call.results[i].replace_all_uses_with(call.operands[i])
    kept = _others(call.operands, dropped)
    with call.context:
        aliases = [
            hlo.OutputOperandAlias.get(
                output_tuple_indices=[i] if len(kept) > 1 else [], operand_index=i, operand_tuple_indices=[]
            )
            for i in range(len(kept))
        ]
        _replace(call, kept, kept, output_operand_aliases=ir.ArrayAttr.get(aliases))


def _others(values: Sequence[Any], dropped: Sequence[int]) -> list[int]:
    return sorted({*range(len(values))}.difference(dropped))


def _replace(call, operands: Sequence[int], results: Sequence[int], **attributes: Any) -> None:
    """Replace a custom call by one with those of its operands and results."""
    before = [call.attributes[i] for i in range(len(call.attributes))]
    attributes = {entry.name: entry.attr for entry in before} | attributes
    with call.context, call.location:
        for name, kept in (("operand_layouts", operands), ("result_layouts", results)):
            attributes[name] = ir.ArrayAttr.get([attributes[name][i] for i in kept])
        new = ir.Operation.create(
            call.name,
            results=[call.results[i].type for i in results],
            operands=[call.operands[i] for i in operands],
            attributes=attributes,
            ip=ir.InsertionPoint(call),
        )
    for i, result in zip(results, new.results, strict=True):
        call.results[i].replace_all_uses_with(result)
    call.erase()
