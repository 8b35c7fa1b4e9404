"""The environment variables of peerax, parsed and validated here only."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from peerax.diagnostics import PeeraxError


@dataclass(frozen=True)
class Settings:
    """What the environment asks for.

    timeout_s: limit of every wait, in seconds; may be infinite.
    rendezvous: separate sends wait for their receive, as on GPUs, instead of being buffered.
    buffer_bytes: limit on the bytes of separate sends in flight, in this process.
    """

    timeout_s: float = 60.0
    rendezvous: bool = False
    buffer_bytes: int = 0


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings, or raise PX404."""
    timeout = environment.get("PEERAX_TIMEOUT_S", "60")
    send = environment.get("PEERAX_SEND", "buffered")
    buffer_bytes = environment.get("PEERAX_BUFFER_BYTES", str(_memory_bytes() // 2))
    return Settings(
        timeout_s=_number("PEERAX_TIMEOUT_S", timeout, float, "a number of seconds above 0, or inf", lambda x: x > 0),
        rendezvous=_choice("PEERAX_SEND", send, ("buffered", "rendezvous")) == "rendezvous",
        buffer_bytes=_number(
            "PEERAX_BUFFER_BYTES", buffer_bytes, int, "a number of bytes, 0 or more", lambda x: x >= 0
        ),
    )


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2**33


def _number(name, text, kind, valid, test):
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if value != value or not test(value):
        raise PeeraxError.of("PX404", f"{name}={text!r} is not {valid}")
    return value


def _choice(name, text, valid):
    if text not in valid:
        raise PeeraxError.of("PX404", f"{name}={text!r} is not one of {', '.join(valid)}")
    return text
