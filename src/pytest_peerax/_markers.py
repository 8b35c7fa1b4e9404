"""What the markers ask for, and why a test that asks for it is skipped here."""

import math

import pytest

_FORMS = {
    "devices": "devices(n) takes a number of devices, 1 or more",
    "processes": "processes(p, n) takes a number of processes and of devices in each, 1 or more",
    "backend": "backend(name, ...) takes one or more of 'cpu', 'gpu', 'tpu'",
}
_PARAMETERS = {"devices": ("n",), "processes": ("p", "n")}


def reason_to_skip(mark: pytest.Mark) -> str | None:
    """Return why a test with this marker cannot run here, or None if it can. A wrong marker fails the test."""
    if mark.name == "backend":
        return _other_backend(mark)
    numbers = _numbers(mark)
    count = math.prod(numbers)
    if mark.name == "processes" and numbers[0] > 1:
        return (
            f"needs {numbers[0]} processes, and programs of peerax run on the devices of one process in this version; "
            f"devices({count}) runs on as many devices"
        )
    return missing_devices(count)


def missing_devices(count: int) -> str | None:
    """Return what is missing to have so many devices, and how to get it, or None if they are there."""
    import jax

    there = jax.devices()
    if len(there) >= count:
        return None
    platform = there[0].platform
    fix = f"pytest --peerax-devices {count}"
    if platform != "cpu":
        fix += " with JAX_PLATFORMS=cpu"
    return f"needs {count} devices, and JAX has {len(there)} ({platform}): {fix}"


def _numbers(mark: pytest.Mark) -> list[int]:
    parameters = _PARAMETERS[mark.name]
    given = dict(zip(parameters, mark.args, strict=False)) | mark.kwargs
    values = [given.get(parameter) for parameter in parameters]
    fits = len(mark.args) + len(mark.kwargs) == len(parameters) == len(given) and set(given) == set(parameters)
    if not fits or any(type(value) is not int or value < 1 for value in values):
        _refuse(mark)
    return values


def _other_backend(mark: pytest.Mark) -> str | None:
    import peerax

    if not mark.args or mark.kwargs or any(name not in ("cpu", "gpu", "tpu") for name in mark.args):
        _refuse(mark)
    if any(peerax.backend_is(name) for name in mark.args):
        return None
    import jax

    return f"is for {' or '.join(mark.args)}, and JAX's default backend is {jax.default_backend()}"


def _refuse(mark: pytest.Mark) -> None:
    words = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
    pytest.fail(
        f"{_FORMS[mark.name]}, not ({', '.join(words)})\n"
        f"  help: correct it; a marker {mark.name!r} of your own is left alone if it is among the markers of the "
        "project's pytest configuration",
        pytrace=False,
    )
