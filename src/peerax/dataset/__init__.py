"""The records as a data set: joined to the installed source, written as JSON Lines, checked, and shown as pages.

Nothing here imports JAX or runs in a user's program.
"""

from peerax.dataset._build import PACKAGES, Dataset, build, is_in, publish
from peerax.dataset._check import Fix, Problem, read, run_fixes, schema
from peerax.dataset._extra import Missing
from peerax.dataset._index import index
from peerax.dataset._web import pages

__all__ = [
    "PACKAGES",
    "Dataset",
    "Fix",
    "Missing",
    "Problem",
    "build",
    "index",
    "is_in",
    "pages",
    "publish",
    "read",
    "run_fixes",
    "schema",
]
