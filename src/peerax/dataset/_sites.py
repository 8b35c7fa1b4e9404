"""Raise sites: where the source of a package makes an exception, found in its syntax tree."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peerax.dataset._messages import Names, template
from peerax.diagnostics import Squeezed

_CLASS = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Failure)")
_CONTEXT_LINES = 3
_MAY_RAISE = re.compile(r"\braise\b|\bassert\b|(?:Error|Exception|Warning|Exit|Interrupt|Failure)\(|\bDiagnostic\(")


@dataclass(frozen=True)
class Site:
    """Hold one raise site.

    file: below site-packages. function: the dotted name of what it is in. code: of peerax, or None. source holds the
    lines from source_start to source_end, which are around it. raises: whether it is a statement that raises, and not
    only the place where the message is made.
    """

    exception: str
    message: str
    file: str
    line: int
    function: str
    source: str
    source_start: int
    source_end: int
    code: str | None = None
    raises: bool = True

    @functools.cached_property
    def squeezed(self) -> Squeezed:
        """Return the message in the form in which templates are found."""
        return Squeezed(self.message)


def harvest(package: Path) -> Iterator[Site]:
    """Yield the raise sites of a package by file and line; a file that is no Python of this version is passed over."""
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not _MAY_RAISE.search(text):  # most of generated code, and parsing is what takes time
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        yield from sites(tree, text.splitlines(), path.relative_to(package.parent).as_posix())


def sites(tree: ast.Module, lines: list[str], file: str) -> Iterator[Site]:
    """Yield the raise sites of one file, in the order of their lines."""
    visitor = _Visitor()
    visitor.visit(tree)
    for node, exception, message, function, code in sorted(visitor.found, key=lambda found: found[0].lineno):
        context = around(lines, node.lineno, node.end_lineno or node.lineno)
        yield Site(exception, message, file, node.lineno, function, *context, code)


def texts(tree: ast.Module, lines: list[str], file: str) -> Iterator[Site]:
    """Yield the texts of one file that may be messages which are raised elsewhere, as sites."""
    inner: set[int] = set()
    for node in ast.walk(tree):  # what is around comes first: the whole of a text that is put together
        if isinstance(node, ast.JoinedStr | ast.BinOp) or isinstance(getattr(node, "value", None), str):
            if id(node) not in inner and isinstance(node, ast.expr):
                inner.update(map(id, ast.walk(node)))
                context = around(lines, node.lineno, node.end_lineno or node.lineno)
                yield Site("", template(node, {}), file, node.lineno, "", *context, raises=False)


def around(lines: list[str], first: int, last: int) -> tuple[str, int, int]:
    """Return lines and some around them: their text, and the numbers of the first and the last."""
    start, end = max(1, first - _CONTEXT_LINES), min(len(lines), last + _CONTEXT_LINES)
    return "\n".join(lines[start - 1 : end]), start, end


class _Visitor(ast.NodeVisitor):
    """Walk through a module, with what is known of the text in local variables."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr, str, str, str, str | None]] = []
        self._scopes: list[str] = []
        self._names: list[Names] = [{}]
        self._class_of_error: str | None = None

    def _in_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scopes.append(node.name)
        names = dict(self._names[-1])
        if not isinstance(node, ast.ClassDef):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):  # hides a variable of the same name
                    names.pop(argument.arg, None)
        self._names.append(names)
        self.generic_visit(node)
        self._names.pop()
        self._scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _in_scope

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._class_of_error = self._class_of_error, node.name if _CLASS.fullmatch(node.name) else None
        self._in_scope(node)
        self._class_of_error = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        match node.targets:
            case [ast.Name(id=name)]:
                self._know(name, template(node.value, self._names[-1]))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()) if name in self._names[-1]:
                self._know(name, self._names[-1][name] + template(node.value, self._names[-1]))

    def _know(self, name: str, text: str) -> None:
        # A variable whose text is not known at all is as good as its name.
        if re.fullmatch(r"(?:\{\w*\}|\s)*", text):
            self._names[-1].pop(name, None)
        else:
            self._names[-1][name] = text

    def visit_Raise(self, node: ast.Raise) -> None:
        match node.exc:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name[0].isupper():
                if not _CLASS.fullmatch(name):  # with another name, a class is known by being raised
                    self._add(node.exc, name, node.exc.args)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        if node.msg is not None:
            self._add(node.msg, "AssertionError", [node.msg])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id="PeeraxError"), attr="of") | ast.Name(id="Diagnostic"):
                self._add_code(node)
            case ast.Name(id=name) | ast.Attribute(attr=name) if _CLASS.fullmatch(name):
                self._add(node, name, node.args)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__") if self._class_of_error:
                self._add(node, self._class_of_error, node.args)
        self.generic_visit(node)

    def _add(self, node: ast.expr, exception: str, arguments: list[ast.expr]) -> None:
        message = template(arguments[0], self._names[-1]) if arguments else ""
        self.found.append((node, exception, message.strip(), ".".join(self._scopes), None))

    def _add_code(self, node: ast.Call) -> None:
        match node.args:
            case [code, *rest]:
                # A conditional expression may choose among codes.
                codes = [c.value for c in ast.walk(code) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
                message = template(rest[0], self._names[-1]) if rest else ""
                for each in codes:
                    self.found.append((node, "PeeraxError", message.strip(), ".".join(self._scopes), each))
