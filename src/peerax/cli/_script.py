"""Runs a script, a directory or zip file, or a module as Python would: as the module `__main__`."""

import builtins
import importlib.util
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

from peerax.cli._environment import CannotStart


def run_path(path: str, args: Sequence[str]) -> None:
    """Run a script, or a directory or zip file that holds a `__main__.py`.

    Raises:
        CannotStart: if there is no program at path.
        BaseException: whatever the program raises.
    """
    sys.argv = [path, *args]
    if pkgutil.get_importer(path) is not None:  # a directory or a zip file
        _set_first_path(os.path.abspath(path))
        spec = PathFinder.find_spec("__main__", [os.path.abspath(path)])
        if spec is None:
            raise CannotStart(f"there is no __main__.py in {path!r}")
        _run_spec(spec)
        return
    file = os.path.abspath(path)
    loader = SourceFileLoader("__main__", file)
    try:
        source = loader.get_data(file)
    except OSError as error:
        raise CannotStart(f"cannot open {path!r}: {error.strerror}") from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    _run_as_main(lambda: loader.source_to_code(source, file), __file__=file, __loader__=loader, __cached__=None)


def run_module(name: str, args: Sequence[str]) -> None:
    """Run a module, or the `__main__` of a package, as `python -m` would.

    Raises:
        CannotStart: if there is no such module.
        BaseException: whatever the module raises.
    """
    sys.argv = ["-m", *args]
    _set_first_path(os.getcwd())
    spec = _find_module(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find_module(f"{name}.__main__")
        if spec is None:
            raise CannotStart(f"{name} is a package without a __main__, and cannot be run")
    if spec is None:
        raise CannotStart(f"there is no module named {name}")
    sys.argv[0] = spec.origin or name
    _run_spec(spec)


def _find_module(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise  # a package around it imports what is missing


def _set_first_path(directory: str) -> None:
    """Put directory where Python has put that of its own program; with -P or -I it has put nothing."""
    if not sys.flags.safe_path:
        sys.path[0] = directory


def _run_spec(spec: ModuleSpec) -> None:
    _run_as_main(
        lambda: spec.loader.get_code(spec.name),
        __file__=spec.origin,
        __loader__=spec.loader,
        __cached__=spec.cached,
        __spec__=spec,
        __package__=spec.parent,
    )


def _run_as_main(load_code, **attributes) -> None:
    """Run code in a new module `__main__`.

    Unlike runpy's, it stays in sys.modules: pickle, multiprocessing and functions called at exit look there.
    """
    main = types.ModuleType("__main__")
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(load_code(), vars(main))
