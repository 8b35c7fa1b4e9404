"""What an installed peerax must hold whatever it does: a light import, its rooms' borders, its metadata."""

import ast
import importlib.metadata
import pathlib
from collections.abc import Iterator

import pytest

import peerax

PACKAGE = pathlib.Path(peerax.__file__).parent


def imported_names(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield every dotted name that the source of a module imports, also inside functions.

    `from a import b` yields both `a` and `a.b`, for b may be a module. Relative imports are resolved.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def importers_of(name: str) -> set[str]:
    """Return the modules of the installed package that import the module of that name or one below it."""
    importers = set()
    for path in PACKAGE.rglob("*.py"):
        parts = ["peerax", *path.relative_to(PACKAGE).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        for imported in imported_names(path.read_text(encoding="utf-8"), module, is_package=is_package):
            if f"{imported}.".startswith(f"{name}."):
                importers.add(module)
    return importers


@pytest.mark.parametrize(
    "source",
    [
        "import jax._src.core",
        "from jax._src import core",
        "from jax import _src",
        "def f():\n    from jax._src.core import Jaxpr",
    ],
)
def test_the_import_reader_sees_every_form(source):
    assert any(f"{name}.".startswith("jax._src.") for name in imported_names(source, "a.b", is_package=False))


def test_the_import_reader_resolves_relative_imports():
    assert "a.c.d" in set(imported_names("from .c import d", "a.b", is_package=False))
    assert "a.b.c" in set(imported_names("from . import c", "a.b", is_package=True))
    assert "a.c" in set(imported_names("from .. import c", "a.b.x", is_package=False))


def test_one_package_touches_jax_internals():
    importers = importers_of("jax._src")
    assert all(f"{name}.".startswith("peerax._jax.") for name in importers)


def test_one_room_touches_the_extension():
    importers = importers_of("peerax.runtime._extension")
    assert importers, "nobody imports the extension: was it renamed?"
    assert all(f"{name}.".startswith("peerax.runtime.") for name in importers)


def test_import_is_light_and_silent(run_python):
    program = """
import os, sys, warnings
warnings.simplefilter("error")
before = dict(os.environ)
import peerax
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
heavy = {name.partition(".")[0] for name in sys.modules} & {"jax", "jaxlib", "numpy", "rich"}
assert not heavy, heavy
"""
    result = run_python(program, devices=None)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_public_name_resolves():
    assert peerax.__all__
    for name in peerax.__all__:
        assert getattr(peerax, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = peerax.no_such_name


def test_version_is_that_of_the_metadata():
    assert peerax.__version__ == importlib.metadata.version("peerax")


def test_licence_is_in_the_metadata():
    metadata = importlib.metadata.metadata("peerax")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    text = importlib.metadata.distribution("peerax").read_text("licenses/LICENSE")
    assert "Apache License" in text and "Version 2.0, January 2004" in text


def test_the_command_is_installed():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="peerax")
    assert callable(command.load())
