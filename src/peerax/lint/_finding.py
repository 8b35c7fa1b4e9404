"""What the linter found: findings, and files that it could not read."""

import ast
from dataclasses import dataclass

from peerax.lint._rules import RULES


@dataclass(frozen=True, order=True)
class Finding:
    """Describe one place where a rule is broken. Lines and columns begin with 1; columns count characters."""

    path: str
    line: int
    column: int
    code: str
    message: str
    end_line: int
    end_column: int
    related: tuple[tuple[int, str], ...] = ()  # (line, what is there)
    fixable: bool = False

    @property
    def help(self) -> str:
        """Return how it is fixed."""
        return RULES[self.code].help


@dataclass(frozen=True, order=True)
class Unreadable:
    """Describe a file that could not be linted."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class Found:
    """Hold what a rule found, before it is known in which file."""

    code: str
    node: ast.AST
    message: str
    related: tuple[tuple[int, str], ...] = ()
    fixable: bool = False
