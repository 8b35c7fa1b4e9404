"""The scopes of a module: what each name is bound to, and where each call and each name is."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


@dataclass(eq=False, slots=True)
class Scope:
    """Hold the names of a module, class, function or comprehension."""

    node: ast.AST
    parent: "Scope | None"
    bindings: "dict[str, list[Binding]]" = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of which all names are imported
    elsewhere: "dict[str, Scope]" = field(default_factory=dict)  # global and nonlocal names

    @property
    def function(self) -> Function | None:
        """Return the innermost function that this is in; None at the level of the module."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.parent
        return None if scope is None else scope.node  # type: ignore[return-value]

    def outwards(self) -> "Iterator[Scope]":
        """Yield this scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(eq=False, slots=True)
class Binding:
    """Say that a name is bound here.

    kind is "import", "def", "class", "parameter", "value" (the name is the value), "part" (it is unpacked from the
    value) or "other". `imported` is the qualified name of what is imported.
    """

    name: str
    kind: str
    node: ast.AST
    scope: Scope
    value: ast.expr | None = None
    imported: str = ""


class Module:
    """Hold the syntax tree of a module and what a walk over it finds."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.top = Scope(tree, None)
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.loads: list[tuple[ast.Name | ast.Attribute, Scope]] = []
        self.functions: list[tuple[Function, Scope]] = []  # with the scope that each is defined in
        self.inner: dict[ast.AST, Scope] = {}  # the scope that a function or class makes
        self.parents: dict[ast.AST, ast.AST] = {}
        self.mutated: set[tuple[str, Scope]] = set()  # names whose value is changed in place
        self.imports_from: list[ast.ImportFrom] = []
        self.comparisons: list[ast.Compare] = []
        self.texts: list[str] = []
        self.names: dict[ast.expr, frozenset[str]] = {}  # the qualified names that were asked for
        _Walk(self).statements(tree.body, self.top, tree)

    def resolve(self, name: str, scope: Scope) -> list[Binding]:
        """Return the bindings that a name may have where it is used; empty: a built-in, or from a star import."""
        for outer in scope.outwards():
            if name in outer.elsewhere:
                return outer.elsewhere[name].bindings.get(name, [])
            if name in outer.bindings and (outer is scope or not isinstance(outer.node, ast.ClassDef)):
                return outer.bindings[name]
        return []

    def value_of(self, expression: ast.expr, scope: Scope) -> tuple[ast.expr, Scope]:
        """Follow a name to what it is bound to, if that is one thing; return an expression and where it is."""
        for _ in range(5):
            if not isinstance(expression, ast.Name):
                break
            bindings = self.resolve(expression.id, scope)
            if len(bindings) != 1 or bindings[0].value is None or bindings[0].kind != "value":
                break
            expression, scope = bindings[0].value, bindings[0].scope
        return expression, scope

    def stars_around(self, scope: Scope) -> Iterator[str]:
        """Yield the modules whose names a star import puts in reach."""
        for outer in scope.outwards():
            yield from outer.stars

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is around a node, from the inside."""
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that a node is in, or the node itself."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.stmt)), None)

    @functools.cached_property
    def loads_of_name(self) -> dict[str, list[tuple[ast.Name, Scope]]]:
        """Return the places that read each name."""
        found: dict[str, list[tuple[ast.Name, Scope]]] = {}
        for node, scope in self.loads:
            if isinstance(node, ast.Name):
                found.setdefault(node.id, []).append((node, scope))
        return found

    @functools.cached_property
    def loads_of_attribute(self) -> dict[str, list[tuple[ast.Attribute, Scope]]]:
        """Return the places that read an attribute of each name."""
        found: dict[str, list[tuple[ast.Attribute, Scope]]] = {}
        for node, scope in self.loads:
            if isinstance(node, ast.Attribute):
                found.setdefault(node.attr, []).append((node, scope))
        return found

    def loads_of(self, binding: Binding) -> Iterator[tuple[ast.Name, Scope]]:
        """Yield the places that read a name and may find this binding."""
        for node, scope in self.loads_of_name.get(binding.name, ()):
            if binding in self.resolve(binding.name, scope):
                yield node, scope


class _Walk:
    """Fill a Module in one pass over its tree."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def statements(self, nodes: list, scope: Scope, parent: ast.AST) -> None:
        for node in nodes:
            self.visit(node, scope, parent)

    def visit(self, node: ast.AST, scope: Scope, parent: ast.AST) -> None:
        self.module.parents[node] = parent
        method = _METHODS.get(type(node))
        if method is None:
            self.children(node, scope)
        else:
            method(self, node, scope)

    def children(self, node: ast.AST, scope: Scope) -> None:
        for name in node._fields:
            if name in _NO_PARTS:
                continue
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item, scope, node)
            elif isinstance(value, ast.AST):
                self.visit(value, scope, node)

    def bind(self, name: str, kind: str, node: ast.AST, scope: Scope, value=None, imported: str = "") -> None:
        if name in scope.elsewhere:
            scope = scope.elsewhere[name]
        scope.bindings.setdefault(name, []).append(Binding(name, kind, node, scope, value, imported))

    def name(self, node: ast.Name, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Load):
            self.module.loads.append((node, scope))
        else:
            self.bind(node.id, "other", node, scope)

    def attribute(self, node: ast.Attribute, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Load):
            self.module.loads.append((node, scope))
        self.visit(node.value, scope, node)

    def constant(self, node: ast.Constant, scope: Scope) -> None:
        if isinstance(node.value, str):
            self.module.texts.append(node.value)

    def compare(self, node: ast.Compare, scope: Scope) -> None:
        self.module.comparisons.append(node)
        self.children(node, scope)

    def call(self, node: ast.Call, scope: Scope) -> None:
        self.module.calls.append((node, scope))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGE_A_LIST:
            self.changed(node.func.value, scope)
        self.children(node, scope)

    def subscript(self, node: ast.Subscript, scope: Scope) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changed(node.value, scope)
        self.children(node, scope)

    def changed(self, node: ast.expr, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self.module.mutated.add((node.id, scope))

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        self.bind(node.name, "def", node, scope)
        self.statements(node.decorator_list, scope, node)
        if node.returns is not None:
            self.visit(node.returns, scope, node)
        self.statements(node.body, self.parameters(node, scope), node)

    def lambda_(self, node: ast.Lambda, scope: Scope) -> None:
        self.visit(node.body, self.parameters(node, scope), node)

    def parameters(self, node: Function, scope: Scope) -> Scope:
        inner = self.module.inner[node] = Scope(node, scope)
        self.module.functions.append((node, scope))
        arguments = node.args
        self.statements([*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)], scope, node)
        for argument in all_arguments(node):
            self.module.parents[argument] = node
            self.bind(argument.arg, "parameter", argument, inner)
            if argument.annotation is not None:
                self.visit(argument.annotation, scope, argument)
        return inner

    def class_(self, node: ast.ClassDef, scope: Scope) -> None:
        self.bind(node.name, "class", node, scope)
        self.statements([*node.decorator_list, *node.bases, *node.keywords], scope, node)
        inner = self.module.inner[node] = Scope(node, scope)
        self.statements(node.body, inner, node)

    def comprehension(self, node, scope: Scope) -> None:
        inner = Scope(node, scope)
        for number, generator in enumerate(node.generators):
            self.module.parents[generator] = node
            self.visit(generator.iter, inner if number else scope, generator)
            self.visit(generator.target, inner, generator)
            self.statements(generator.ifs, inner, generator)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part, inner, node)

    def import_(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            if alias.asname:
                self.bind(alias.asname, "import", node, scope, imported=alias.name)
            else:
                top = alias.name.partition(".")[0]
                self.bind(top, "import", node, scope, imported=top)

    def import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        self.module.imports_from.append(node)
        origin = "." * node.level + (node.module or "")
        for alias in node.names:
            self.module.parents[alias] = node
            if alias.name == "*":
                scope.stars.append(origin)
            else:
                self.bind(alias.asname or alias.name, "import", node, scope, imported=f"{origin}.{alias.name}")

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        self.visit(node.value, scope, node)
        for target in node.targets:
            self.target(target, node.value, node, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        self.visit(node.annotation, scope, node)
        if node.value is None:
            return
        self.visit(node.value, scope, node)
        self.target(node.target, node.value, node, scope)

    def named(self, node: ast.NamedExpr, scope: Scope) -> None:
        self.visit(node.value, scope, node)
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        self.target(node.target, node.value, node, scope)

    def target(self, target: ast.expr, value: ast.expr, node: ast.AST, scope: Scope) -> None:
        """Bind the names of a target to the value, or to its parts."""
        self.module.parents[target] = node
        if isinstance(target, ast.Name):
            self.bind(target.id, "value", node, scope, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else None
            plain = parts is not None and len(parts) == len(target.elts)
            plain = plain and not any(isinstance(item, ast.Starred) for item in [*parts, *target.elts])
            for number, item in enumerate(target.elts):
                if plain:
                    self.target(item, parts[number], node, scope)
                else:
                    self.parts(item, value, node, scope)
        else:
            self.visit(target, scope, node)

    def parts(self, target: ast.expr, value: ast.expr, node: ast.AST, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, "part", node, scope, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.parts(item, value, node, scope)
        elif isinstance(target, ast.Starred):
            self.parts(target.value, value, node, scope)
        else:
            self.visit(target, scope, node)

    def global_(self, node: ast.Global, scope: Scope) -> None:
        for name in node.names:
            scope.elsewhere[name] = self.module.top

    def nonlocal_(self, node: ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            for outer in scope.outwards():
                if outer is not scope and name in outer.bindings and not isinstance(outer.node, ast.ClassDef):
                    scope.elsewhere[name] = outer
                    break

    def exception(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            self.bind(node.name, "other", node, scope)
        self.children(node, scope)

    def pattern(self, node, scope: Scope) -> None:
        if getattr(node, "name", None) or getattr(node, "rest", None):
            self.bind(getattr(node, "name", None) or node.rest, "other", node, scope)
        self.children(node, scope)


_NO_PARTS = {"ctx", "op", "ops", "type_comment"}  # fields that hold no expression or statement
_CHANGE_A_LIST = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update"}

_METHODS = {
    ast.Name: _Walk.name,
    ast.Constant: _Walk.constant,
    ast.Compare: _Walk.compare,
    ast.Attribute: _Walk.attribute,
    ast.Call: _Walk.call,
    ast.Subscript: _Walk.subscript,
    ast.FunctionDef: _Walk.function,
    ast.AsyncFunctionDef: _Walk.function,
    ast.Lambda: _Walk.lambda_,
    ast.ClassDef: _Walk.class_,
    ast.Import: _Walk.import_,
    ast.ImportFrom: _Walk.import_from,
    ast.Assign: _Walk.assign,
    ast.AnnAssign: _Walk.annotated,
    ast.NamedExpr: _Walk.named,
    ast.Global: _Walk.global_,
    ast.Nonlocal: _Walk.nonlocal_,
    ast.ExceptHandler: _Walk.exception,
    ast.MatchAs: _Walk.pattern,
    ast.MatchStar: _Walk.pattern,
    ast.MatchMapping: _Walk.pattern,
    **dict.fromkeys(COMPREHENSIONS, _Walk.comprehension),
}


def all_arguments(function: Function) -> list[ast.arg]:
    """Return the parameters of a function, those by position first."""
    arguments = function.args
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def argument_of(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument of a call, which may be given by position or by name."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    before = call.args[: position + 1]
    if len(before) <= position or any(isinstance(item, ast.Starred) for item in before):
        return None
    return before[position]
