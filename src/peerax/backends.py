"""Guards for programs that need a certain kind of device: which backend JAX runs on here."""

import jax

from peerax.diagnostics import PeeraxError
from peerax.ops import location, user_site

# What JAX may call the backend, by the word that is asked with.
_PLATFORMS = {"cpu": ("cpu",), "gpu": ("gpu", "cuda", "rocm"), "tpu": ("tpu",)}


def backend_is(name: str) -> bool:
    """Say whether JAX's default backend is of this kind.

    It is what programs run on that say nothing else. To ask makes JAX's devices, so their number and JAX's platforms
    must have been set before.

    Args:
      name: "cpu", "gpu" (CUDA or ROCm) or "tpu".

    Returns:
      True or False.

    Raises:
      ValueError: another name.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> block_size = 128 if peerax.backend_is("tpu") else 32
    """
    if name not in _PLATFORMS:
        raise ValueError(f"a backend is one of {', '.join(map(repr, _PLATFORMS))}, not {name!r}")
    return jax.default_backend() in _PLATFORMS[name]


def require_backend(*names: str) -> None:
    """Stop a program that was started on another backend than it is made for.

    Args:
      *names: those that it may run on: "cpu", "gpu" (CUDA or ROCm), "tpu".

    Raises:
      PeeraxError: PX402, if JAX's default backend is none of them.
      ValueError: another name, or none.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> peerax.require_backend("gpu", "tpu")
    """
    if not names:
        raise ValueError(f"name a backend, or several: {', '.join(map(repr, _PLATFORMS))}")
    found = [backend_is(name) for name in names]  # all of them, so that a misspelt one is seen everywhere
    if any(found):
        return
    wanted = " or ".join(names)
    raise PeeraxError.of(
        "PX402",
        f"the program is for {wanted}, and JAX's default backend is {jax.default_backend()}",
        locations=(location(user_site()),),
        help=f"start it where JAX finds a {wanted}, and with JAX_PLATFORMS unset; or name this backend too",
    )
