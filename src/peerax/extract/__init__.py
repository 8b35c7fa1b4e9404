"""From a function's jaxpr to the program: what each rank will do, with the user's lines."""

from peerax.extract import _on_gpu as _on_gpu  # hooks into the lowering for GPUs
from peerax.extract._program import check, program

__all__ = ["check", "program"]
