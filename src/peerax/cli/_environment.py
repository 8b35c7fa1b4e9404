"""What `peerax run` and `peerax check` set in the environment, and why a program cannot be run in one."""

import contextlib
import os
import re
from collections.abc import Mapping, MutableMapping

from peerax.runtime import read_settings


class CannotStart(Exception):
    """The program cannot be run at all; the text says why."""


def set_environment(
    environment: MutableMapping[str, str], *, devices: int | None, timeout_s: str | None, send: str | None
) -> None:
    """Set what JAX and peerax will read from the environment. What is None stays as it is."""
    if devices is not None:
        environment.update(variables_for_devices(environment, devices))
        environment["JAX_PLATFORMS"] = environment.get("JAX_PLATFORMS") or "cpu"
    if timeout_s is not None:
        environment["PEERAX_TIMEOUT_S"] = timeout_s
    if send is not None:
        environment["PEERAX_SEND"] = send


def variables_for_devices(environment: Mapping[str, str], devices: int) -> dict[str, str]:
    """Return the variables that give JAX this number of CPU devices, with what else they say in the environment."""
    variables = {"XLA_FLAGS": with_device_count(environment.get("XLA_FLAGS", ""), devices)}
    if "JAX_NUM_CPU_DEVICES" in environment:  # JAX prefers it to the flag
        variables["JAX_NUM_CPU_DEVICES"] = str(devices)
    return variables


def with_device_count(flags: str, devices: int) -> str:
    """Return XLA's flags with this number of CPU devices, and all other flags as they are."""
    flags = flags.strip()
    if flags and not flags.startswith("--"):  # then XLA takes it for the name of a file that holds the flags
        with contextlib.suppress(OSError), open(flags, encoding="utf-8") as file:
            flags = file.read().strip()
    others = re.sub(r"(?<!\S)--xla_force_host_platform_device_count=\S*\s*", "", flags)
    return f"{others.strip()} --xla_force_host_platform_device_count={devices}".strip()


def check_environment(devices: int | None) -> None:
    """Raise CannotStart or PeeraxError if JAX or peerax will not take what the environment says."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if devices is not None and "cpu" not in platforms.lower().split(","):
        raise CannotStart(
            f"--devices asks for CPU devices, but JAX_PLATFORMS={platforms} leaves the CPU out\n"
            "  help: remove JAX_PLATFORMS from the environment, or set it to cpu"
        )
    read_settings()


def check_devices_of_early_jax(devices: int) -> None:
    """Raise CannotStart if a JAX that was imported before the environment was set has too few devices.

    It may have made its devices already. A JAX that is imported later is not asked, for that makes the
    devices, and the program may have settings to change before.
    """
    import jax

    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    there = jax.devices()
    if len(there) < devices:
        raise CannotStart(
            f"{devices} devices were asked for, but JAX has {len(there)} ({there[0].platform})\n"
            "  JAX was used before this command could set their number, for example by a sitecustomize\n"
            "  help: start Python with JAX_PLATFORMS=cpu and "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} in the environment"
        )
