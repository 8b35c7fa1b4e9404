"""Who imported JAX, read from what is left: the order of the modules, and their names for what is JAX's."""

from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any


def importer_of_jax(modules: Mapping[str, Any], plugins: Mapping[str, str]) -> str:
    """Say who imported JAX, as far as it can be told: "by the plugin NAME (FILE)".

    Python lists modules in the order in which their imports end. So JAX's importer comes after JAX; of those that come
    after it and name something of JAX it is the first one. In the same way, the plugin that was being loaded is the
    first one after JAX, unless JAX was there before pytest was.

    Args:
        modules: sys.modules.
        plugins: the names of pytest's plugins, by the names of their modules.
    """
    order = list(modules)
    after = order[order.index("jax") + 1 :]
    if _names_jax(modules.get("__main__")):  # it has not ended yet: a program that calls pytest.main
        return f"by __main__ ({_file(modules['__main__'])})"
    module = next((name for name in after if _names_jax(modules[name])), None)
    plugin = next((name for name in after if name in plugins), None)
    who = "" if module is None else f"{module} ({_file(modules[module])})"
    if plugin is None or "_pytest.config" in after:
        return f"before pytest loaded its plugins, {f'by {who}' if who else 'for example by a sitecustomize'}"
    loaded = f"by the plugin {plugins[plugin]} ({_file(modules[plugin])})"
    return f"{loaded}, which imports {who}" if who and after.index(module) < after.index(plugin) else loaded


def _names_jax(module: Any) -> bool:
    """Return whether something of JAX is among the globals of a module that is not JAX's own."""
    if not isinstance(module, ModuleType) or _is_jax(module.__name__):
        return False
    return any(_is_jax(_home(value)) for value in list(vars(module).values()))


def _home(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (FunctionType, type)):
        return str(value.__module__)
    return ""


def _is_jax(name: str) -> bool:
    return name.partition(".")[0] in ("jax", "jaxlib")


def _file(module: Any) -> str:
    return getattr(module, "__file__", None) or "no file"
