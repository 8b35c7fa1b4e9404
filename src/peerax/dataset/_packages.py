"""Installed packages whose errors are recorded: where their source is, its revision, and its address on the web."""

import ast
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """Hold an installed package.

    revision: the commit that it was built from, or else its version. repo: owner and name on GitHub, if it is there.
    """

    name: str
    version: str
    directory: Path
    revision: str
    repo: str

    def url(self, file: str, line: int) -> str | None:
        """Return the address of a line of its source."""
        if "/" not in self.repo:
            return None
        tag = self.revision if _is_commit(self.revision) else f"{_TAGS.get(self.name, 'v')}{self.version}"
        return f"https://github.com/{self.repo}/blob/{tag}/{file}#L{line}"


# Where the packages do not say it themselves.
_TAGS = {"jax": "jax-v", "jaxlib": "jax-v"}
_REPOS = {"jax": "jax-ml/jax", "jaxlib": "jax-ml/jax", "peerax": "peerax"}


def package(name: str) -> Package:
    """Find an installed package, without importing it.

    Raises:
        LookupError: if it is not installed.
    """
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"no package {name!r} is installed here")
    directory = Path(next(iter(spec.submodule_search_locations)))
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        version = "unknown"
    return Package(name, version, directory, _commit(directory) or version, _REPOS.get(name) or _repo(name))


def _commit(directory: Path) -> str | None:
    """Return the commit that the package's version.py names, as that of JAX does."""
    file = directory / "version.py"
    if not file.exists():
        return None
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id="_git_hash"), value=ast.Constant(value=str(commit)))
                | ast.Assign(targets=[ast.Name(id="_git_hash")], value=ast.Constant(value=str(commit)))
            ):
                return commit if _is_commit(commit) else None
    return None


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", text) is not None


def _repo(name: str) -> str:
    """Return owner and name of the repository that the package's metadata names, or else the package's name."""
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return name
    urls = [*(metadata.get_all("Project-URL") or []), metadata.get("Home-page") or ""]
    for url in urls:
        if match := re.search(r"github\.com/([\w.-]+/[\w.-]+?)(?:\.git|/|$)", url):
            return match[1]
    return name
