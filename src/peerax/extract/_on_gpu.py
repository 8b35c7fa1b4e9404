"""Programs for GPUs: what hangs is refused, and what is proved to be safe passes XLA's own verifier.

That verifier looks at one list of all sends and recvs, not at what each rank does. It refuses correct programs, such as
one that sends twice before it receives twice, and its errors name no line of the user's.
"""

from collections.abc import Sequence
from typing import Any

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.extract._equations import has_raw
from peerax.extract._program import DEPENDS_ON_DATA, check_jaxpr
from peerax.ops.reading import has_peerax


def vouch(lowered: Any, jaxpr: Any, platforms: Sequence[str]) -> None:
    """Mark the separate operations of what was lowered for GPUs if its program is safe.

    If that is not known, XLA's verifier decides. Programs without operations of peerax are left alone.

    Raises:
      PeeraxError: PX201 to PX209, if the program hangs, or if its messages do not fit.
    """
    gpus = [platform for platform in platforms if platform in ("cuda", "rocm")]
    # Operations of jax.lax keep to no order, so nothing is known about them here.
    if not gpus or not has_peerax(jaxpr) or has_raw(jaxpr):
        return
    try:
        report = check_jaxpr(jaxpr, platform=gpus[0])
    except PeeraxError:
        raise
    except Exception:  # what cannot be looked at is not known
        return
    if report.ok:
        for operation in _jax.separate_operations(lowered.module):
            _jax.skip_verifier_of_xla(operation)
    elif report.codes - DEPENDS_ON_DATA:
        report.raise_if_unsafe()


_jax.when_module_is_lowered(vouch)
