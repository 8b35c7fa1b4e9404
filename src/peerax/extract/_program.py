"""program and check: from a function to what each rank will do, and to the verdict on it."""

from collections.abc import Sequence
from typing import Any, Literal

import jax

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.extract._project import project
from peerax.extract._steps import Scope
from peerax.extract._values import Value
from peerax.extract._walk import Walk
from peerax.verifier import Program, Report, check_program


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
      >>> print(peerax.verifier(step, x).grid())
    """
    return _extract(_trace(fn, args, kwargs), pairs=True)[0]


def check(
    fn: Any,
    *args: Any,
    semantics: Literal["rendezvous", "buffered"] = "rendezvous",
    **kwargs: Any,
) -> Report:
    """Say before a function runs whether it can hang, and whether its messages fit each other.

    Nothing is run. A verdict of "safe" holds for all arguments of these types, for all orders in which the ranks may
    run, and with any buffers; what it relies on besides is in the report's assumptions.

    Args:
      fn: a function of arrays, jitted or not, which may contain several shard_maps, call other jitted functions, and
        differentiate and batch inside.
      *args: its arguments: arrays or jax.ShapeDtypeStruct. Only their types count.
      semantics: "rendezvous" if a send completes when it is received, as on a GPU, or "buffered" if it completes at
        once; a cycle that buffers resolve is an error (PX208) for the first, and a warning for the second.
      **kwargs: further arguments of fn.

    Returns:
      A Report with a verdict, "safe", "unsafe" or "undecided", and a diagnostic for each cause: PX101 to PX108, PX201
      to PX205, PX207 to PX212.

    Raises:
      ValueError: another name for semantics.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> peerax.check(step, x).raise_if_unsafe()
    """
    try:
        found, assumptions = _extract(_trace(fn, args, kwargs), pairs=True)
    except PeeraxError as error:
        if error.code[:3] not in ("PX1", "PX2"):
            raise
        return Report("unsafe", (error.diagnostic,), semantics, 0)
    report = check_program(found, semantics)
    return Report(report.verdict, report.diagnostics, semantics, report.size, assumptions)


def _trace(fn: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Sequence[Any]]:
    jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
    return _jax.as_lowered(jitted.trace(*args, **kwargs))


def _extract(traced: tuple[Any, Sequence[Any]], pairs: bool) -> tuple[Program, tuple[str, ...]]:
    walk = Walk(pairs=pairs)
    jaxpr, consts = traced
    operands = [Value(walk.numbers.new()) for _ in jaxpr.invars]
    steps, _ = walk.run(jaxpr, consts, operands, Scope())
    return project(steps, walk.ranks), tuple(walk.assumptions)
