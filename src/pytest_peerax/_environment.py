"""Sets the number of CPU devices and the wait limit, or says why it is too late for that."""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from peerax.cli._environment import variables_for_devices
from peerax.diagnostics import PeeraxError
from peerax.runtime import load, read_settings
from pytest_peerax._importer import importer_of_jax

if TYPE_CHECKING:
    Asked = tuple[str, str]  # the option or the name in the configuration, and the value


def set_environment(config: pytest.Config, devices: "Asked | None", timeout_s: "Asked | None") -> None:
    """Set the variables that JAX and peerax will read, until pytest ends.

    What the environment says already needs no change, so it is never too late for that.

    Raises:
        pytest.UsageError: a value is not valid, or what it would change was read already.
    """
    changes: dict[str, str] = {}
    if devices is not None:
        wanted = variables_for_devices(os.environ, _device_count(*devices))
        if any(_words(os.environ.get(name, "")) != _words(value) for name, value in wanted.items()):
            if "jax" in sys.modules:
                raise pytest.UsageError(_too_late(config, devices, wanted))
            changes.update(wanted)
    if timeout_s is not None:
        _check_timeout(*timeout_s)
        if os.environ.get("PEERAX_TIMEOUT_S") != timeout_s[1]:
            if load.cache_info().currsize:
                raise pytest.UsageError(
                    f"{_shown(timeout_s)} comes too late: peerax has run a program in this process already\n"
                    f"  help: start pytest in a new process, or with PEERAX_TIMEOUT_S={timeout_s[1]} in the environment"
                )
            changes["PEERAX_TIMEOUT_S"] = timeout_s[1]
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)  # for a program that calls pytest.main
    for name, value in changes.items():
        patch.setenv(name, value)


def _device_count(origin: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise pytest.UsageError(f"{origin}: {text!r} is not a number of devices, 1 or more")
    return int(text)


def _check_timeout(origin: str, text: str) -> None:
    try:
        read_settings({"PEERAX_TIMEOUT_S": text})
    except PeeraxError:
        raise pytest.UsageError(f"{origin}: {text!r} is not a number of seconds above 0, or inf") from None


def _words(text: str) -> list[str]:
    return sorted(text.split())


def _shown(asked: "Asked") -> str:
    origin, value = asked
    return f"{origin} {value}" if origin.startswith("-") else f"{origin} = {value}"


def _plugins(config: pytest.Config) -> dict[str, str]:
    """Return the names of the plugins by their modules, without those of pytest itself and this one."""
    return {
        plugin.__name__: name
        for name, plugin in config.pluginmanager.list_name_plugin()
        if isinstance(plugin, ModuleType) and plugin.__name__.partition(".")[0] not in ("_pytest", "pytest_peerax")
    }


def _too_late(config: pytest.Config, devices: "Asked", wanted: dict[str, str]) -> str:
    variables = " ".join(f"{name}='{value}'" if " " in value else f"{name}={value}" for name, value in wanted.items())
    return (
        f"{_shown(devices)} comes too late: JAX was imported already, "
        f"{importer_of_jax(sys.modules, _plugins(config))}\n"
        "  help: import JAX later there, in a conftest.py or inside of a function;\n"
        f"        or start pytest with {variables} in the environment"
    )
