"""program and check: from a function to what each rank will do, and to the verdict on it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

import jax
import numpy as np

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.extract._as_lax import check_orders
from peerax.extract._orders import Order
from peerax.extract._project import Projection
from peerax.extract._steps import Scope, Step
from peerax.extract._values import Value
from peerax.extract._walk import Walk
from peerax.verifier import Program, Report, check_program

# What may be right for the data that the program will have.
DEPENDS_ON_DATA = {"PX210", "PX211"}


def program(fn: Any, *args: Any, **kwargs: Any) -> Program:
    """Return what each rank will do when a function is called, without running it.

    Args:
      fn: a function of arrays, jitted or not, which may contain several shard_maps, call other jitted functions, and
        differentiate and batch inside.
      *args: its arguments: arrays or jax.ShapeDtypeStruct. Only their types count.
      **kwargs: further arguments of fn.

    Returns:
      A Program, with a body for each rank of the mesh.

    Raises:
      PeeraxError: what tracing fn raises: PX101 to PX108, PX212; PX203 and PX204 if the two ends of a pair disagree.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> print(peerax.program(step, x).grid())
    """
    walk = Walk()
    steps = _walk(walk, _trace(fn, args, kwargs))
    return Projection.of(steps, walk.ranks).program(steps)


def check(
    fn: Any,
    *args: Any,
    semantics: Literal["rendezvous", "buffered"] = "rendezvous",
    as_written_for: Literal["peerax", "jax.lax"] = "peerax",
    **kwargs: Any,
) -> Report:
    """Say before a function runs whether it can hang, and whether its messages fit each other.

    Nothing is run. A verdict of "safe" holds for all arguments of these types, for all orders in which the ranks may
    run, and with any buffers; what it relies on besides is in the report's assumptions.

    Args:
      fn: a function of arrays, jitted or not, which may contain several shard_maps, call other jitted functions, and
        differentiate and batch inside.
      *args: its arguments: arrays or jax.ShapeDtypeStruct. Only their types count, unless the verdict depends on the
        values of integers and booleans, such as tables; the report's assumptions then say so.
      semantics: "rendezvous" if a send completes when it is received, as on a GPU, or "buffered" if it completes at
        once; a cycle that buffers resolve is an error (PX208) for the first, and a warning for the second.
      as_written_for: "peerax", or "jax.lax" to judge the program as it would run on a GPU with the functions of
        jax.lax: there are no pairs, and what does not depend on each other may run in any order (PX206).
      **kwargs: further arguments of fn.

    Returns:
      A Report with a verdict, "safe", "unsafe" or "undecided", and a diagnostic for each cause: PX101 to PX108, PX201
      to PX212.

    Raises:
      ValueError: another word for semantics or as_written_for.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> peerax.check(step, x).raise_if_unsafe()
    """
    if as_written_for not in ("peerax", "jax.lax"):
        raise ValueError(f"as_written_for is 'peerax' or 'jax.lax', not {as_written_for!r}")
    try:
        jaxpr = _trace(fn, args, kwargs)
    except PeeraxError as error:
        return _refused(error, semantics)
    return check_call(jaxpr, jax.tree.leaves((args, kwargs)), semantics, as_written_for)


def check_call(
    jaxpr: Any,
    operands: Sequence[Any],
    semantics: Literal["rendezvous", "buffered"],
    as_written_for: Literal["peerax", "jax.lax"] = "peerax",
) -> Report:
    """Return the report on a closed jaxpr that is called with these operands, or with some that are not known."""
    try:
        report = check_jaxpr(jaxpr, semantics, as_written_for)
        if report.codes and report.codes <= DEPENDS_ON_DATA and (given := _given(jaxpr, operands)):
            report = check_jaxpr(jaxpr, semantics, as_written_for, given)
        return report
    except PeeraxError as error:
        return _refused(error, semantics)


def _refused(error: PeeraxError, semantics: Literal["rendezvous", "buffered"]) -> Report:
    """Return the report on a program that cannot be traced or read because of a mistake in it."""
    if error.code[:3] not in ("PX1", "PX2"):
        raise error
    return Report("unsafe", (error.diagnostic,), semantics, 0)


def check_jaxpr(
    jaxpr: Any,
    semantics: Literal["rendezvous", "buffered"] = "rendezvous",
    as_written_for: Literal["peerax", "jax.lax"] = "peerax",
    given: Mapping[int, Any] = MappingProxyType({}),
    platform: str = "cpu",
) -> Report:
    """Return the report on a closed jaxpr, see check.

    Args:
      given: the operands whose values are known, by position.
      platform: whose branches of lax.platform_dependent are taken.

    Raises:
      PeeraxError: PX203 or PX204 if the two ends of a pair disagree, and what is wrong with operations of jax.lax.
    """
    order = None if as_written_for == "peerax" else Order()
    walk = Walk(order, platform)
    if given:
        walk.assumptions["integer and boolean arguments have the values that were given"] = None
    steps = _walk(walk, jaxpr, given)
    projection = Projection.of(steps, walk.ranks)
    if order is None:
        report = check_program(projection.program(steps), semantics)
    else:
        report = check_orders(steps, projection, order, semantics)
    return replace(report, assumptions=(*report.assumptions, *walk.assumptions))


def _trace(fn: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
    return _jax.as_lowered(jitted.trace(*args, **kwargs))


def _given(jaxpr: Any, operands: Sequence[Any]) -> dict[int, Any]:
    """Return the operands that may be tables, predicates or counts, by position."""
    avals = jaxpr.in_avals
    if len(operands) != len(avals):  # some are static
        return {}
    return {
        i: np.asarray(x, aval.dtype)
        for i, (x, aval) in enumerate(zip(operands, avals, strict=True))
        if isinstance(x, (bool, int, np.ndarray, jax.Array))
        and not isinstance(x, jax.core.Tracer)
        and jax.dtypes.issubdtype(aval.dtype, np.integer) | jax.dtypes.issubdtype(aval.dtype, np.bool_)
    }


def _walk(walk: Walk, jaxpr: Any, given: Mapping[int, Any] = MappingProxyType({})) -> list[Step]:
    jaxpr, consts = _jax.open_jaxpr(jaxpr)
    operands = [
        walk.numbers.constant(given[i]) if i in given else Value(walk.numbers.new()) for i in range(len(jaxpr.invars))
    ]
    return walk.run(jaxpr, consts, operands, Scope())[0]
