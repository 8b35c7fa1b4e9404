"""What pyproject.toml says: which rules are applied to which files."""

import fnmatch
import os
import pathlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peerax.lint._rules import RULES, expand

DEFAULT_CODES = frozenset(code for code, rule in RULES.items() if rule.default)
_KEYS = ("select", "ignore", "exclude", "per-file-ignores")


class SettingsError(Exception):
    """The settings cannot be used; the text says which one, and what is valid."""


@dataclass(frozen=True)
class Settings:
    """Hold which rules are applied to which files. Patterns are of paths below root."""

    root: pathlib.Path
    codes: frozenset[str] = DEFAULT_CODES
    exclude: tuple[str, ...] = ()
    per_file_ignores: dict[str, frozenset[str]] = field(default_factory=dict)

    def is_excluded(self, path: str) -> bool:
        """Whether a file or directory is left out."""
        return bool(self.exclude) and any(self._matches(path, pattern) for pattern in self.exclude)

    def codes_for(self, path: str) -> frozenset[str]:
        """Return the rules that are applied to a file."""
        codes = self.codes
        for pattern, ignored in self.per_file_ignores.items():
            if self._matches(path, pattern):
                codes -= ignored
        return codes

    def _matches(self, path: str, pattern: str) -> bool:
        """Whether a pattern is of a path, of a directory around it, or, without a slash, of a name in it."""
        relative = os.path.relpath(os.path.abspath(path), self.root).replace(os.sep, "/")
        parts = relative.split("/")
        pattern = pattern.rstrip("/")
        if "/" not in pattern:
            return any(fnmatch.fnmatchcase(part, pattern) for part in parts)
        heads = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        return any(fnmatch.fnmatchcase(head, pattern.removeprefix("./")) for head in heads)


def read_settings(paths: Sequence[str], *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Settings:
    """Return the settings for some paths: those of the nearest pyproject.toml that has a table for them.

    Args:
        paths: files and directories; pyproject.toml is looked for in and above the directory that holds them all.
        select: rules that are applied instead of those of the file.
        ignore: rules that are left out in addition.

    Returns:
        The settings; without a table, the default ones.

    Raises:
        SettingsError: a file or a value in it, or a rule, cannot be understood.
    """
    start = pathlib.Path(os.path.commonpath([os.path.abspath(path) for path in paths])) if paths else pathlib.Path.cwd()
    root, where, table = start if start.is_dir() else start.parent, "pyproject.toml", {}
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        if file.is_file():
            read = _table(file)
            if read is not None:
                root, where, table = directory, str(file), read
                break
    try:
        chosen = expand(list(select), "--select") if select else expand(_strings(table, "select", where), where)
        left_out = expand(list(ignore), "--ignore") | expand(_strings(table, "ignore", where), where)
        codes = (frozenset(chosen) if select or "select" in table else DEFAULT_CODES) - left_out
        per_file = _per_file(table, where)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return Settings(root, codes, tuple(_strings(table, "exclude", where)), per_file)


def _table(file: pathlib.Path) -> dict[str, Any] | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is no TOML: {error}") from None
    table = data
    for name in ("tool", "peerax", "lint"):
        table = table.get(name)
        if table is None:
            return None
        if not isinstance(table, dict):
            raise SettingsError(f"{file}: tool.peerax.lint must be a table")
    for key in table:
        if key not in _KEYS:
            raise SettingsError(f"{file}: tool.peerax.lint has no {key!r}; it has {', '.join(_KEYS)}")
    return table


def _strings(table: dict[str, Any], key: str, where: str) -> list[str]:
    return _as_strings(table.get(key, []), key, where)


def _as_strings(value: Any, key: str, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SettingsError(f'{where}: {key} in tool.peerax.lint must be a list of strings, such as ["PXL001"]')
    return value


def _per_file(table: dict[str, Any], where: str) -> dict[str, frozenset[str]]:
    value = table.get("per-file-ignores", {})
    if not isinstance(value, dict):
        raise SettingsError(f'{where}: per-file-ignores must be a table, such as {{"tests/*" = ["PXL008"]}}')
    items: Iterable[tuple[str, Any]] = value.items()
    return {
        pattern: frozenset(expand(_as_strings(codes, f"per-file-ignores of {pattern!r}", where), where))
        for pattern, codes in items
    }
