"""Lint one file: read it, parse it, apply the rules, and leave out what a comment suppresses."""

import ast
import contextlib
import io
import re
import sys
import tokenize
import warnings
from collections.abc import Callable, Collection, Iterator

from peerax.lint._finding import Finding, Found, Unreadable
from peerax.lint._lax import deprecated, no_backend_guard
from peerax.lint._messages import outside_shard_map, receive_never_sent, send_never_received, token_before_it_exists
from peerax.lint._noqa import suppressed
from peerax.lint._operations import Source
from peerax.lint._perms import perms, ring_for_chain
from peerax.lint._ranks import collective_in_branch, iota_as_rank

_CHECKS: dict[Callable[[Source], Iterator[Found]], frozenset[str]] = {
    outside_shard_map: frozenset({"PXL001"}),
    send_never_received: frozenset({"PXL002"}),
    token_before_it_exists: frozenset({"PXL003"}),
    perms: frozenset({"PXL004", "PXL005", "PXL006"}),
    ring_for_chain: frozenset({"PXL007"}),
    no_backend_guard: frozenset({"PXL008"}),
    deprecated: frozenset({"PXL009"}),
    iota_as_rank: frozenset({"PXL010"}),
    collective_in_branch: frozenset({"PXL011"}),
    receive_never_sent: frozenset({"PXL012"}),
}

_DEPTH = 5000

_MESSAGES = re.compile(rb"psend|precv|ppermute|permute_shards")


class CannotRead(Exception):
    """A file cannot be linted; holds the line and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line, self.reason = line, reason


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Let functions call themselves more often, for long sums and chains of attributes.

    Only for what is in Python, which needs no more of the C stack for it.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def may_have_findings(data: bytes) -> bool:
    """Whether a file has the words without which no rule finds anything. Parsing takes far longer than this."""
    if _MESSAGES.search(data):
        return True
    if b"axis_index" in data or b"process_index" in data:
        return b"cond" in data or b"switch" in data or b"multihost_utils" in data
    return (b"iota" in data or b"arange" in data) and (b"shard_map" in data or b"pmap" in data)


def decode(data: bytes) -> str:
    """Return the text of a Python file. Raises CannotRead."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CannotRead(line, f"it is not {error.encoding.upper()}: byte 0x{data[error.start]:02x}") from None
    except (SyntaxError, LookupError) as error:
        first = _first_that_is_no_utf8(data)
        if first is not None and re.search(rb"coding[:=]", b"\n".join(data.splitlines()[:2])) is None:
            raise CannotRead(data[:first].count(b"\n") + 1, f"it is not UTF-8: byte 0x{data[first]:02x}") from None
        line = 1 + (re.search(rb"coding[:=]", data.partition(b"\n")[0]) is None)
        raise CannotRead(line, f"its encoding cannot be told: {error}") from None


def _first_that_is_no_utf8(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def parse(text: str) -> ast.Module:
    """Return the syntax tree of a text. Raises CannotRead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own text
            return ast.parse(text)
    except SyntaxError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise CannotRead(error.lineno or 1, f"syntax error in Python {version}: {error.msg}") from None
    except ValueError as error:
        raise CannotRead(1, str(error)) from None
    except (RecursionError, MemoryError):
        raise CannotRead(1, "it is nested too deeply") from None


def lint_source(data: bytes, path: str, codes: Collection[str]) -> list[Finding]:
    """Return the findings in the text of a file.

    Args:
        data: the file's content.
        path: what to call the file.
        codes: the rules to apply.

    Returns:
        The findings, in the order of the text.

    Raises:
        CannotRead: if it is no Python.
    """
    text = decode(data)
    tree = parse(text)
    if not may_have_findings(data):
        return []
    try:
        with deep_recursion():
            source = Source(tree)
            found: dict[tuple[str, ast.AST], Found] = {}
            for check, own in _CHECKS.items():
                if not own.isdisjoint(codes):
                    for one in check(source):
                        found.setdefault((one.code, one.node), one)
    except RecursionError:
        raise CannotRead(1, "it is nested too deeply") from None
    if not found:
        return []
    lines, comments = _lines(text), suppressed(text)
    shown = [(one, _finding(one, path, lines)) for one in found.values() if one.code in codes]
    return sorted(
        finding for one, finding in shown if not _is_suppressed(finding, source.module.statement(one.node), comments)
    )


def lint_file(path: str, codes: Collection[str]) -> list[Finding] | Unreadable:
    """Return the findings in a file, or why it could not be read."""
    shown = printable(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
        return lint_source(data, shown, codes)
    except OSError as error:
        return Unreadable(shown, 1, f"cannot read it: {error.strerror}")
    except CannotRead as error:
        return Unreadable(shown, error.line, error.reason)


def printable(path: str) -> str:
    """Return a path that can be printed: bytes in it that are no text become replacement characters."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def position(node: ast.AST, text: str) -> tuple[int, int, int, int]:
    """Return the line and column of the start and of the end of a node; columns begin with 0 and count characters."""
    return _position(node, _lines(text))


def _position(node: ast.AST, lines: list[str]) -> tuple[int, int, int, int]:
    start, end = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    columns = node.col_offset, node.end_col_offset or 0  # type: ignore[attr-defined]
    return start, _column(lines, start, columns[0]), end, _column(lines, end, columns[1])


def _lines(text: str) -> list[str]:
    """Return the lines as Python counts them; for splitlines() a form feed and others end a line too."""
    return re.split(r"\r\n|\r|\n", text)


def _finding(one: Found, path: str, lines: list[str]) -> Finding:
    line, column, end_line, end_column = _position(one.node, lines)
    return Finding(
        path=path,
        line=line,
        column=column + 1,
        code=one.code,
        message=one.message,
        end_line=end_line,
        end_column=end_column + 1,
        related=one.related,
        fixable=one.fixable,
    )


def _column(lines: list[str], line: int, offset: int) -> int:
    """Return the number of characters in the first `offset` bytes of a line."""
    text = lines[line - 1] if line <= len(lines) else ""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _is_suppressed(finding: Finding, statement: ast.stmt | None, comments: dict[int, frozenset[str] | None]) -> bool:
    lines = {finding.line, finding.end_line}
    if statement is not None and not hasattr(statement, "body"):
        lines |= {statement.lineno, statement.end_lineno or statement.lineno}
    return any(line in comments and (comments[line] is None or finding.code in comments[line]) for line in lines)  # type: ignore[operator]
