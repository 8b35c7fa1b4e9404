"""Does something when another module is imported, or at once if it is already."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call action after the module has been imported, without importing it."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watcher(name, action))


class _Watcher(MetaPathFinder):
    def __init__(self, name: str, action: Callable[[], None]):
        self.name, self.action = name, action

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenAct(spec.loader, self.action)
        return spec


class _ThenAct(Loader):
    def __init__(self, loader, action: Callable[[], None]):
        self.loader, self.action = loader, action

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.action()
