"""Loads the extension and registers its handlers with XLA, once, when the first program is compiled."""

import functools
from types import ModuleType
from typing import Any

from peerax.diagnostics import CODES, PeeraxError
from peerax.runtime._settings import read_settings


@functools.cache
def extension() -> ModuleType:
    """Return the extension module.

    Raises:
      PeeraxError: PX401.
    """
    try:
        from peerax.runtime import _extension
    except ImportError as error:
        raise PeeraxError.of("PX401", f"peerax's compiled extension cannot be loaded: {error}") from error
    return _extension


@functools.cache
def load() -> None:
    """Make the transport known to XLA, with the settings that the environment has now."""
    import jax

    settings, module = read_settings(), extension()
    jax.local_devices(backend="cpu")  # types can only be registered with a backend that exists
    module.set_timeout_s(settings.timeout_s)
    module.set_rendezvous(settings.rendezvous)
    module.set_buffer_limit_bytes(settings.buffer_bytes)
    for code in CODES.values():
        module.set_code_text(code.code, code.title, code.help)
    for name, registration in module.types().items():
        jax.ffi.register_ffi_type(name, registration, platform="cpu")
    for name, stages in module.targets().items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")


def statistics() -> dict[str, Any]:
    """Return totals of all programs that this process has run.

    Returns:
      runs, failed_runs; ranks (of the largest program); messages; bytes; longest_wait_s and longest_wait_site (the
      user's line of the longest wait, "" if nobody waited).
    """
    return extension().statistics()
