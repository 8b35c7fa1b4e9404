"""The fixtures: meshes of the devices that are here, and a check that fails the test."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from peerax import Report


@pytest.fixture(scope="session")
def ranks() -> int:
    """The number of devices that JAX has, and so of ranks in a mesh of all of them."""
    import jax

    return len(jax.devices())


@pytest.fixture(scope="session")
def mesh() -> "Callable[[int | Sequence[int], str | Sequence[str]], Mesh]":
    """mesh(shape, names): a jax.sharding.Mesh of the first devices: mesh(4, "x"), mesh((2, 4), ("x", "y"))."""

    def make(shape: int | Sequence[int], names: str | Sequence[str]) -> "Mesh":
        __tracebackhide__ = True  # the line that is wrong is the caller's
        import jax
        import numpy as np

        from pytest_peerax._markers import missing_devices

        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        axes = (names,) if isinstance(names, str) else tuple(names)
        if not all(isinstance(length, int) and length > 0 for length in lengths):
            raise ValueError(f"the shape of a mesh has whole numbers, 1 or more, not {shape!r}")
        if not all(isinstance(axis, str) for axis in axes) or len(set(axes)) != len(axes) or len(axes) != len(lengths):
            raise ValueError(
                f"a mesh of shape {lengths} needs {len(lengths)} names, each a string of its own: {names!r}"
            )
        missing = missing_devices(math.prod(lengths))
        if missing is not None:
            raise ValueError(
                f"a mesh of shape {lengths} {missing}, or mark the test devices({math.prod(lengths)}) to skip it"
            )
        return jax.sharding.Mesh(np.array(jax.devices()[: math.prod(lengths)]).reshape(lengths), axes)

    return make


@pytest.fixture(scope="session")
def peerax_check() -> "Callable[..., Report]":
    """peerax_check(fn, *args): peerax.check, which fails the test with the report unless fn is safe.

    It takes what peerax.check takes, and allow_undecided=True, with which only an unsafe fn fails. It returns the
    report.
    """

    def check(fn: Any, *args: Any, allow_undecided: bool = False, **kwargs: Any) -> "Report":
        __tracebackhide__ = True
        import peerax

        report = peerax.check(fn, *args, **kwargs)
        if report.verdict == "unsafe" or report.verdict == "undecided" and not allow_undecided:
            # Without a traceback: the report names the lines.
            pytest.fail(f"peerax_check: {report.render()}", pytrace=False)
        return report

    return check
