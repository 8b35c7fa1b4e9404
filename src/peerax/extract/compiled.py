"""The programs of a process that communicate, each at the moment at which JAX compiles it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from peerax import _jax, ops
from peerax.diagnostics import Diagnostic, Location
from peerax.extract._equations import Communication
from peerax.extract._program import check_call
from peerax.targets import CompiledFor, Target, compile_computation
from peerax.verifier import Report


@dataclass(frozen=True)
class CompiledProgram:
    """A program that communicates, and that JAX is about to compile.

    Args:
        name: of the user's function, or None if it is not known.
        call: the user's line that makes JAX compile it.
        compilation: what JAX has of it.
    """

    name: str | None
    call: Location
    compilation: _jax.Compilation

    def check(self, semantics: Literal["rendezvous", "buffered"]) -> Report:
        """Return the verdict; where values decide, that for the operands of the call.

        A check that fails decides nothing.
        """
        try:
            return check_call(self.compilation.jaxpr, self.compilation.operands, semantics)
        except Exception as error:
            # The program may well be right, and is not to end with an error that is none of its own.
            message = f"the check failed: {type(error).__name__}: {error}"
            return Report("undecided", (Diagnostic("PX211", message, locations=(self.call,)),), semantics, 0)

    def compile_for(self, target: Target) -> CompiledFor:
        """Compile it for a target, with the shardings that it has here.

        Raises:
          PeeraxError: PX213 and PX403, as compile_for does.
          Exception: whatever lowering and compiling it raises.
        """
        return compile_computation(self.compilation.lower(target.platform), target)


def before_compiling(action: Callable[[CompiledProgram], None]) -> None:
    """Call action with each program that communicates, before it is compiled; what it raises is raised by the call."""

    def act(compilation: _jax.Compilation) -> None:
        if Communication().within_jaxpr(compilation.jaxpr):
            program = CompiledProgram(_name(compilation), ops.location(ops.user_site()), compilation)
            action(program)

    _jax.before_compiling(act)


def _name(compilation: _jax.Compilation) -> str | None:
    """Return the name of the function, or of that in its shard_map if JAX or peerax has made the function."""
    if _is_users(compilation.jaxpr):
        return compilation.name
    names = (_jax.function_of(jaxpr)[0] for jaxpr in _bodies(compilation.jaxpr) if _is_users(jaxpr))
    return next(names, None)


def _is_users(jaxpr: Any) -> bool:
    name, file = _jax.function_of(jaxpr)
    return bool(name) and _jax.user_frame(file)


def _bodies(jaxpr: Any) -> Iterator[Any]:
    for eqn in _jax.open_jaxpr(jaxpr)[0].eqns:
        if eqn.primitive is _jax.shard_map_p:
            yield eqn.params["jaxpr"]
