"""Does something when another module is imported, or at once if it is already."""

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
    """Stays until the module has been imported: its spec may be looked for by those who do not import it."""

    def __init__(self, name: str, action: Callable[[], None]):
        self.name, self.action = name, action

    def find_spec(self, name, path=None, target=None):
        finders = list(sys.meta_path)
        if name != self.name or self not in finders:
            return None
        # Those behind this one only: importlib.util.find_spec would ask this one again.
        for finder in finders[finders.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _ThenAct(spec.loader, self)
                return spec
        return None

    def imported(self) -> None:
        """Do what was to be done, and watch no longer."""
        if self in sys.meta_path:
            self.action()
            sys.meta_path.remove(self)


class _ThenAct(Loader):
    def __init__(self, loader, watcher: _Watcher):
        self.loader, self.watcher = loader, watcher

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.watcher.imported()
