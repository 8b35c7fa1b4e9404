"""PXL001, PXL002, PXL003 and PXL012: where psend and precv are called, and what becomes of the token."""

import ast
from collections.abc import Iterator

from peerax.lint._contexts import Context
from peerax.lint._finding import Found
from peerax.lint._names import MESSAGES, is_any, last, names_of
from peerax.lint._operations import Operation, Source
from peerax.lint._scopes import COMPREHENSIONS, FUNCTIONS, Binding
from peerax.lint._values import Unknown, constant

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


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
        if send.name == "psend" and _may_be_judged(source, send) and _is_dropped(source, send):
            yield from _unmet(source, send, "PXL002", "the token of this psend is not used", "precv")


def receive_never_sent(source: Source) -> Iterator[Found]:
    """Find PXL012."""
    for receive in _messages(source):
        if receive.name == "precv" and _may_be_judged(source, receive) and _begins_anew(source, receive):
            yield from _unmet(source, receive, "PXL012", "the token of this precv is of no psend", "psend")


def _may_be_judged(source: Source, operation: Operation) -> bool:
    """Whether an operation moves something, and is in a function that no other file calls."""
    function = operation.scope.function
    if function is None or operation.perm is None or Context.UNKNOWN in source.contexts.of(function):
        return False
    try:
        return constant(source.module, operation.perm, operation.scope) != ()
    except Unknown:
        return True


def _unmet(source: Source, operation: Operation, code: str, why: str, other: str) -> Iterator[Found]:
    """Find an operation of whose pairs some are in the perm of no operation of the other kind that belongs to it."""
    group = source.contexts.group(operation.scope.function)
    ends = [
        end for end in _messages(source) if end.name == other and source.contexts.group(end.scope.function) is group
    ]
    # Something of other files that is called like it may be the other end as well.
    words = {"precv": ("recv", "receive"), "psend": ("send",)}[other]
    if any(_is_same_text(operation, end) for end in ends) or _may_be_elsewhere(source, group, words):
        return
    what = "its perm"
    if ends:
        try:
            pairs, *others = (set(constant(source.module, one.perm, one.scope)) for one in (operation, *ends))
            left = sorted(pairs.difference(*others))
        except (Unknown, TypeError):
            return
        if not left:
            return
        what = "its perm" if len(left) == len(pairs) else f"its pair {left[0]}"
    related = tuple((end.call.lineno, f"this {other} has another perm") for end in ends)
    yield Found(code, operation.call, f"{why}, and no {other} here has {what}", related)


def _is_same_text(one: Operation, other: Operation) -> bool:
    return one.perm is None or other.perm is None or ast.unparse(one.perm) == ast.unparse(other.perm)


def _begins_anew(source: Source, receive: Operation) -> bool:
    """Whether the token of a precv is a new one."""
    token, scope = source.module.value_of(receive.token, receive.scope) if receive.token else (None, receive.scope)
    if not isinstance(token, ast.Call):
        return False
    return is_any(names_of(source.module, token.func, scope), "jax.lax.create_token", "peerax.create_token")


def token_before_it_exists(source: Source) -> Iterator[Found]:
    """Find PXL003."""
    for operation in _messages(source):
        token = operation.token
        if not isinstance(token, ast.Name) or isinstance(operation.scope.node, COMPREHENSIONS):
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


def _may_be_elsewhere(source: Source, group: ast.AST | None, words: tuple[str, ...]) -> bool:
    """Whether functions of a group call something that is not known and has one of the words in its name."""
    known = {f"{module}.{op}" for module in ("jax.lax", "peerax") for op in MESSAGES}
    for call, scope in source.module.calls:
        if source.contexts.group(scope.function) is not group or source.contexts.functions_of(call.func, scope):
            continue
        names = names_of(source.module, call.func, scope) or {getattr(call.func, "attr", "")}
        if any(word in last(name).lower() for name in names - known for word in words):
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
        if isinstance(outer, FUNCTIONS):
            return False
        if isinstance(outer, (ast.If, ast.IfExp, ast.Try, ast.Match)):
            guarded = True
        elif isinstance(outer, _LOOPS) and guarded and any(node is outer for node in source.module.ancestors(binding)):
            return True
    return False
