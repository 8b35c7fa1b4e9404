"""PXL001, PXL002 and PXL003: where psend and precv are called, and what becomes of the token."""

import ast
from collections.abc import Iterator

from peerax.lint._contexts import Context
from peerax.lint._finding import Found
from peerax.lint._names import last, names_of
from peerax.lint._operations import Operation, Source
from peerax.lint._scopes import Binding
from peerax.lint._values import Unknown, constant

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def outside_shard_map(source: Source) -> Iterator[Found]:
    """Find PXL001."""
    for operation in _messages(source):
        function = operation.scope.function
        if source.contexts.of(function) != Context.OUTSIDE:
            continue
        if function is None:
            what = f"{operation.name} is called at the level of the module, where no axis is manual"
        else:
            what = f"{operation.name} is called in {_called(function)}, which is not used in shard_map in this file"
        yield Found("PXL001", operation.call, what)


def send_never_received(source: Source) -> Iterator[Found]:
    """Find PXL002."""
    for send in _messages(source):
        function = send.scope.function
        if send.name != "psend" or function is None or Context.UNKNOWN in source.contexts.of(function):
            continue
        if send.perm is None or _sends_nothing(source, send) or not _is_dropped(source, send):
            continue
        group = source.contexts.group(function)
        receives = [
            operation
            for operation in _messages(source)
            if operation.name == "precv" and source.contexts.group(operation.scope.function) is group
        ]
        if any(_may_be_same_perm(source, send, receive) for receive in receives):
            continue
        if _may_receive_elsewhere(source, group):
            continue
        related = tuple((receive.call.lineno, "this precv has another perm") for receive in receives)
        yield Found("PXL002", send.call, "the token of this psend is not used, and no precv here has its perm", related)


def token_before_it_exists(source: Source) -> Iterator[Found]:
    """Find PXL003."""
    for operation in _messages(source):
        token = operation.token
        if not isinstance(token, ast.Name) or isinstance(operation.scope.node, _COMPREHENSIONS):
            continue
        bindings = source.module.resolve(token.id, operation.scope)
        if not bindings or any(binding.scope is not operation.scope for binding in bindings):
            continue
        here = (operation.call.lineno, operation.call.col_offset)
        if any(_end(binding) <= here for binding in bindings):
            continue
        if any(_is_earlier_in_a_loop(source, operation.call, binding.node) for binding in bindings):
            continue
        first = min(_end(binding)[0] for binding in bindings)
        yield Found(
            "PXL003",
            token,
            f"{operation.name} takes the token {token.id}, which gets its value only in line {first}",
            ((first, f"{token.id} gets its value here"),),
        )


def _messages(source: Source) -> Iterator[Operation]:
    return (operation for operation in source.operations if operation.name in ("psend", "precv"))


def _called(function: ast.AST) -> str:
    return "a lambda" if isinstance(function, ast.Lambda) else f"{function.name}()"  # type: ignore[attr-defined]


def _sends_nothing(source: Source, send: Operation) -> bool:
    """Whether the perm of a psend is empty."""
    try:
        return constant(source.module, send.perm, send.scope) == ()
    except Unknown:
        return False


def _is_dropped(source: Source, send: Operation) -> bool:
    """Whether nothing reads the token of a psend."""
    parent = source.module.parents[send.call]
    if isinstance(parent, ast.Expr):
        return True
    if not isinstance(parent, ast.Assign) or not all(isinstance(target, ast.Name) for target in parent.targets):
        return False
    for target in parent.targets:
        bindings = [b for b in source.module.resolve(target.id, send.scope) if b.node is parent]  # type: ignore[attr-defined]
        if not bindings or any(b.scope.function is None for b in bindings):
            return False
        if any(True for binding in bindings for _ in source.module.loads_of(binding)):
            return False
    return True


def _may_be_same_perm(source: Source, one: Operation, other: Operation) -> bool:
    """Whether two perms may be the same; only two constants are surely not."""
    if one.perm is None or other.perm is None:
        return True
    if ast.unparse(one.perm) == ast.unparse(other.perm):
        return True
    try:
        perms = [constant(source.module, operation.perm, operation.scope) for operation in (one, other)]
        return set(perms[0]) == set(perms[1])
    except (Unknown, TypeError):
        return True


def _may_receive_elsewhere(source: Source, group: ast.AST | None) -> bool:
    """Whether functions of other files are called that may hold the receive."""
    for call, scope in source.module.calls:
        if source.contexts.group(scope.function) is not group:
            continue
        names = names_of(source.module, call.func, scope) or {getattr(call.func, "attr", "")}
        for name in names:
            if "recv" in last(name).lower() or "receive" in last(name).lower():
                if name not in ("jax.lax.precv", "peerax.precv"):
                    return True
    return False


def _end(binding: Binding) -> tuple[int, int]:
    """Return the position from which on a binding is there."""
    node: ast.AST = binding.node
    if isinstance(node, ast.Name):  # the target of a loop or a with
        return (node.lineno, node.col_offset)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return (node.lineno, node.col_offset)
    return (node.end_lineno or node.lineno, node.end_col_offset or 0)  # type: ignore[attr-defined]


def _is_earlier_in_a_loop(source: Source, use: ast.AST, binding: ast.AST) -> bool:
    """Whether a binding of an iteration before may be read, in a branch that the first iteration does not take."""
    guarded = False
    for outer in source.module.ancestors(use):
        if isinstance(outer, _FUNCTIONS):
            return False
        if isinstance(outer, (ast.If, ast.IfExp, ast.Try, ast.Match)):
            guarded = True
        elif isinstance(outer, _LOOPS) and guarded and any(node is outer for node in source.module.ancestors(binding)):
            return True
    return False
