"""The packages that the data set needs and the rest of peerax does not: `peerax[records]`."""

import importlib
from types import ModuleType

_DISTRIBUTIONS = {
    "jsonschema": "jsonschema",
    "markdown_it": "markdown-it-py",
    "packaging": "packaging",
    "pygments": "Pygments",
}


class Missing(ImportError):
    """A package of the extra is not installed; the message has the command that installs it."""


def need(module: str) -> ModuleType:
    """Import a module of the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        distribution = _DISTRIBUTIONS[module.partition(".")[0]]
        raise Missing(f'this needs the package {distribution}\n  help: pip install "peerax[records]"') from error
