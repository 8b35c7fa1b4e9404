"""Replace jax.lax.psend and precv by those of peerax in the text of a program, and leave the rest as it is.

Where they are replaced, so are create_token and optimization_barrier: tokens of JAX and of peerax cannot be mixed.
"""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from peerax.lint._file import CannotRead, decode, deep_recursion, lint_source, parse, position
from peerax.lint._lax import uses_in_lax
from peerax.lint._operations import Source

_NEW_NAMES = {
    "psend": "psend",
    "precv": "precv",
    "create_token": "create_token",
    "optimization_barrier": "order",
}


class FixerMissing(Exception):
    """libcst is not installed."""

    def __str__(self) -> str:
        return '--fix needs libcst, which is not installed\n  help: pip install "peerax[lint]"'


@dataclass
class _Edits:
    """Hold what is replaced, by position: (line, column, line, column) as libcst counts them."""

    attributes: dict[tuple[int, int, int, int], str] = field(default_factory=dict)
    imports: dict[tuple[int, int, int, int], set[str]] = field(default_factory=dict)
    stars: dict[tuple[int, int, int, int], list[str]] = field(default_factory=dict)


def require_fixer() -> None:
    """Raise FixerMissing if nothing can be fixed here."""
    if importlib.util.find_spec("libcst") is None:
        raise FixerMissing


def fix_source(data: bytes) -> bytes | None:
    """Return the text of a file with all that can be fixed fixed, or None if there is nothing.

    A file is fixed as a whole: where a comment keeps one of the operations, all of them stay.

    Raises:
        CannotRead: if it is no Python.
        FixerMissing: if libcst is not installed.
    """
    if b"psend" not in data and b"precv" not in data:
        return None
    findings = [finding for finding in lint_source(data, "", {"PXL009"}) if finding.fixable]
    text = decode(data)
    tree = parse(text)
    try:
        with deep_recursion():
            source = Source(tree)
            if not findings or len(findings) < len(list(uses_in_lax(source))):
                return None
            require_fixer()
            fixed = _apply(data, _edits(source, text), _name_of_peerax(source))
        parse(decode(fixed))
    except (CannotRead, RecursionError):
        return None
    return fixed


def _edits(source: Source, text: str) -> _Edits:
    edits = _Edits()
    for node, name in uses_in_lax(source, tuple(_NEW_NAMES)):
        if isinstance(node, ast.Attribute):
            edits.attributes[position(node, text)] = name
        elif isinstance(node, ast.Name):
            statement = _star_import(source)
            edits.stars.setdefault(position(statement, text), []).append(name)
        else:
            statement = source.module.statement(node)
            assert statement is not None
            edits.imports.setdefault(position(statement, text), set()).add(name)
    return edits


def _star_import(source: Source) -> ast.ImportFrom:
    """Return the last star import of jax.lax; what comes behind it takes precedence."""
    imports = [node for node in source.module.imports_from if node.module == "jax.lax" and node.names[0].name == "*"]
    return imports[-1]


def _name_of_peerax(source: Source) -> tuple[str, bool]:
    """Return what peerax is called at the level of the module, and whether it is imported there already."""
    for bindings in source.module.top.bindings.values():
        for binding in bindings:
            if binding.kind == "import" and binding.imported == "peerax" and len(bindings) == 1:
                if source.module.parents[binding.node] is source.module.tree:
                    return binding.name, True
    return "peerax", False


def _apply(data: bytes, edits: _Edits, name: tuple[str, bool]) -> bytes:
    cst: Any = importlib.import_module("libcst")
    metadata: Any = importlib.import_module("libcst.metadata")
    peerax, is_imported = name

    class Replace(cst.CSTTransformer):
        METADATA_DEPENDENCIES = (metadata.PositionProvider,)

        def place(self, node) -> tuple[int, int, int, int]:
            found = self.get_metadata(metadata.PositionProvider, node)
            return found.start.line, found.start.column, found.end.line, found.end.column

        def leave_Attribute(self, original_node, updated_node):
            replaced = edits.attributes.get(self.place(original_node))
            if replaced is None:
                return updated_node
            return updated_node.with_changes(value=cst.Name(peerax), attr=cst.Name(_NEW_NAMES[replaced]))

        def leave_SimpleStatementLine(self, original_node, updated_node):
            if len(original_node.body) != 1 or not isinstance(original_node.body[0], cst.ImportFrom):
                return updated_node
            return self.split(original_node.body[0], updated_node)

        def leave_ImportFrom(self, original_node, updated_node):
            """Replace an import that shares its line with other statements."""
            parts = list(self.parts(original_node, updated_node))
            return updated_node if len(parts) == 1 and parts[0] is updated_node else cst.FlattenSentinel(parts)

        def split(self, original, line):
            """Give each of the imports that came of one a line of its own; what stands around stays with the first."""
            first, *rest = line.body
            if not rest:
                return line
            lines = [line.with_changes(body=[first.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])]
            lines += [
                cst.SimpleStatementLine([item.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for item in rest
            ]
            return cst.FlattenSentinel(lines)

        def parts(self, original, updated) -> Iterator[Any]:
            place = self.place(original)
            if place in edits.stars:
                yield updated
                yield _import_from(
                    cst, [cst.ImportAlias(cst.Name(_NEW_NAMES[n]), _as(cst, n)) for n in edits.stars[place]]
                )
                return
            if place not in edits.imports:
                yield updated
                return
            moved = [alias for alias in updated.names if alias.name.value in edits.imports[place]]
            kept = [alias for alias in updated.names if alias.name.value not in edits.imports[place]]
            if not kept:
                yield updated.with_changes(module=cst.Name("peerax"), names=[_renamed(cst, alias) for alias in moved])
                return
            yield updated.with_changes(names=_ended(cst, kept, updated.lpar))
            moved = [_renamed(cst, alias).with_changes(comma=cst.MaybeSentinel.DEFAULT) for alias in moved]
            yield _import_from(cst, moved)

    wrapper = metadata.MetadataWrapper(cst.parse_module(data))
    module = wrapper.visit(Replace())
    if edits.attributes and not is_imported:
        module = module.with_changes(body=_with_import(cst, module))
    return module.bytes


def _import_from(cst: Any, names: list) -> Any:
    return cst.ImportFrom(module=cst.Name("peerax"), names=names)


def _as(cst: Any, name: str) -> Any:
    return None if _NEW_NAMES[name] == name else cst.AsName(name=cst.Name(name))


def _renamed(cst: Any, alias: Any) -> Any:
    """Return an import of peerax's name that binds the same name as before."""
    old = alias.name.value
    return alias.with_changes(name=cst.Name(_NEW_NAMES[old]), asname=alias.asname or _as(cst, old))


def _ended(cst: Any, names: list, parenthesis: Any) -> list:
    """Return names of an import of which some were removed, without a comma at the end where none may be."""
    if parenthesis is None and names:
        names = [*names[:-1], names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]
    return names


def _with_import(cst: Any, module: Any) -> list:
    """Return the statements of a module with `import peerax` behind its first imports of JAX."""
    body = list(module.body)
    position = _position_of_import(cst, module, body)
    line = cst.SimpleStatementLine([cst.Import(names=[cst.ImportAlias(cst.Name("peerax"))])])
    if position == 0 and body:
        # What stands above the first statement stays there.
        first = body[0]
        body[0] = first.with_changes(leading_lines=[])
        line = line.with_changes(leading_lines=first.leading_lines)
    return [*body[:position], line, *body[position:]]


def _position_of_import(cst: Any, module: Any, body: list) -> int:
    """Return where the import goes: behind the last import of the block that imports JAX, or of the first block."""
    imports = [
        number
        for number, line in enumerate(body)
        if isinstance(line, cst.SimpleStatementLine)
        and all(isinstance(statement, (cst.Import, cst.ImportFrom)) for statement in line.body)
    ]
    jax = [number for number in imports if "jax" in module.code_for_node(body[number])]
    if not imports:
        return 1 if body and _is_docstring(cst, body[0]) else 0
    position = (jax or imports)[0]
    while position + 1 in imports:
        position += 1
    return position + 1


def _is_docstring(cst: Any, line: Any) -> bool:
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(line.body[0], cst.Expr):
        return False
    return isinstance(line.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
