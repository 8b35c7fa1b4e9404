"""Programs that JAX compiles: seen before they are, and compiled for devices that are not there."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jax._src import pjit
from jax._src.interpreters import pxla

from peerax._jax._jaxprs import without_dead_code


class Compilation(NamedTuple):
    """A program that JAX is about to compile.

    jaxpr: the program. name: that of the function. lower: lowers it for another platform, to a computation.
    operands: what it is going to be called with, or nothing where that is not known.
    """

    jaxpr: Any
    name: str
    lower: Callable[[str], Any]
    operands: Sequence[Any] = ()


_operands: contextvars.ContextVar[Sequence[Any]] = contextvars.ContextVar("operands", default=())


@contextlib.contextmanager
def called_with(operands: Sequence[Any]) -> Iterator[None]:
    """What is compiled here is compiled to be called with these operands."""
    before = _operands.set(operands)
    try:
        yield
    finally:
        _operands.reset(before)


def before_compiling(action: Callable[[Compilation], None]) -> None:
    """Call action with each program that JAX compiles from here on; what it raises is raised by the program's call."""
    lower_program = pxla.lower_sharding_computation
    compile_program = pxla.MeshComputation.compile
    call_program = pjit._pjit_call_impl_python

    @functools.wraps(lower_program)
    def lower_sharding_computation(jaxpr, api_name, name, *args, **kwargs):
        def lower(platform: str) -> Any:
            return lower_program(jaxpr, api_name, name, *args, **{**kwargs, "lowering_platforms": (platform,)})

        computation = lower_program(jaxpr, api_name, name, *args, **kwargs)
        lowered = jaxpr if kwargs["keep_unused"] else without_dead_code(jaxpr)
        computation.peerax_compilation = Compilation(lowered, name, lower)
        return computation

    @functools.wraps(compile_program)
    def compile(self, *args, **kwargs):
        # What is lowered may never be compiled, and what is compiled twice has been seen. The jaxpr must go, for
        # JAX keeps a computation as long as its jaxpr lives.
        compilation = getattr(self, "peerax_compilation", None)
        if compilation is not None:
            action(compilation._replace(operands=_operands.get()))
            self.peerax_compilation = None
        return compile_program(self, *args, **kwargs)

    @functools.wraps(call_program)
    def call_impl(*args, **kwargs):
        with called_with(args):
            return call_program(*args, **kwargs)

    pjit._pjit_call_impl_python = call_impl
    pxla.lower_sharding_computation = lower_sharding_computation
    pxla.MeshComputation.compile = compile


def computation_of(lowered) -> Any:
    """Return the computation in what jax.jit(...).lower(...) returns."""
    return lowered._lowering


def device_count_of(computation) -> int:
    """Number of devices of a lowered program."""
    return computation.compile_args["num_devices"]


def compile_for_devices(computation, devices: Sequence[Any]) -> Any:
    """Compile a lowered program for other devices than it was lowered with: only their number counts."""
    computation._device_list = None
    computation.compile_args["backend"] = devices[0].client
    return computation.compile(device_assignment=tuple(devices))
