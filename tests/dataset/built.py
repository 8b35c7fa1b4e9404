"""The data set of all packages, built once: that takes seconds."""

import functools

from peerax.dataset import Dataset, build


@functools.cache
def built() -> Dataset:
    """Build the data set."""
    return build()
