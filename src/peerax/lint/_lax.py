"""PXL008 and PXL009: jax.lax.psend and precv, which run on GPUs only and are deprecated."""

import ast
from collections.abc import Iterator

from peerax.lint._finding import Found
from peerax.lint._names import MESSAGES, is_any, names_of
from peerax.lint._operations import Operation, Source

_GUARDS = (
    "jax.default_backend",
    "peerax.backend_is",
    "peerax.require_backend",
    "jax.lax.platform_dependent",
    "jax.extend.backend.get_backend",
    "jax.lib.xla_bridge.get_backend",
    "jax.extend.backend.backend_xla_version",
)
_GUARDING_ATTRIBUTES = frozenset(
    {"platform", "device_kind", "platform_version", "default_backend", "device_under_test", "run_on_devices"}
    | {"skip_on_devices", "test_device_matches", "is_device_cuda", "is_device_rocm", "gpu_compute_capability"}
)


def no_backend_guard(source: Source) -> Iterator[Found]:
    """Find PXL008, once in a file: at the first call that no guard is in front of."""
    sent = [operation for operation in source.operations if operation.of_lax and operation.name in MESSAGES]
    if not sent or _is_installed(source):
        return
    guarded = _guarded_functions(source)
    if None in guarded:
        return
    unguarded = [operation for operation in sent if not _is_guarded(source, operation, guarded)]
    if unguarded:
        first = unguarded[0]
        others = f" ({len(unguarded)} such calls in this file)" if len(unguarded) > 1 else ""
        yield Found("PXL008", first.call, f"jax.lax.{first.name} runs on GPUs only, and nothing asks for one{others}")


def deprecated(source: Source) -> Iterator[Found]:
    """Find PXL009: each import of psend and precv from jax.lax, and each use of them through a module."""
    uses = list(uses_in_lax(source))
    if not uses or _is_installed(source):
        return
    hindrance = what_hinders_a_fix(source)
    for node, name in uses:
        message = f"jax.lax.{name} is deprecated since JAX 0.12"
        if hindrance:
            message += f" (--fix leaves it alone: {hindrance})"
        yield Found("PXL009", node, message, fixable=hindrance is None)


def uses_in_lax(source: Source, wanted: tuple[str, ...] = MESSAGES) -> Iterator[tuple[ast.AST, str]]:
    """Yield where names of jax.lax come into a module, and the name.

    That is an import (from jax.lax import psend), an attribute (lax.psend), or the first use of a name that a star
    import brought.
    """
    module = source.module
    for node in module.imports_from:
        if node.level == 0 and node.module == "jax.lax":
            for alias in node.names:
                if alias.name in wanted:
                    yield alias, alias.name
    by_star: set[str] = set()
    for node, scope in module.loads:
        if isinstance(node, ast.Attribute):
            if node.attr in wanted and f"jax.lax.{node.attr}" in names_of(module, node, scope):
                yield node, node.attr
        elif node.id in wanted and node.id not in by_star and not module.resolve(node.id, scope):
            if "jax.lax" in module.stars_around(scope):
                by_star.add(node.id)
                yield node, node.id


def what_hinders_a_fix(source: Source) -> str | None:
    """Return why the names of jax.lax cannot simply be replaced by those of peerax in this module."""
    module = source.module
    for scope in (module.top, *module.inner.values()):
        for binding in scope.bindings.get("peerax", ()):
            if binding.imported != "peerax":
                return f"the name peerax means something else in line {binding.node.lineno}"  # type: ignore[attr-defined]
    for call, scope in module.calls:
        names = names_of(module, call.func, scope)
        if is_any(names, "jax.lax.infeed", "jax.lax.outfeed", "jax.lax.after_all"):
            return f"the tokens of JAX are needed by {ast.unparse(call.func)} in line {call.lineno}"
    for node, scope in module.loads:
        if isinstance(node, ast.Attribute) and node.attr in MESSAGES and not names_of(module, node, scope):
            return f"{ast.unparse(node)} in line {node.lineno} may be JAX's as well, and its tokens would not fit"
    for operation in source.operations:
        if operation.name == "psend" and operation.of_lax and _takes_tokens_apart(source, operation):
            return f"the psend in line {operation.call.lineno} returns several tokens, and that of peerax returns one"
    return None


def _takes_tokens_apart(source: Source, send: Operation) -> bool:
    parent = source.module.parents[send.call]
    if isinstance(parent, ast.Assign):
        return any(isinstance(target, (ast.Tuple, ast.List)) for target in parent.targets)
    return isinstance(parent, (ast.Subscript, ast.Starred))


def _is_installed(source: Source) -> bool:
    """Whether the module calls peerax.install(), with which the names of jax.lax are peerax's."""
    module = source.module
    return any(
        is_any(names_of(module, call.func, scope), "peerax.install", "peerax.install.install")
        for call, scope in module.calls
    )


def _guarded_functions(source: Source) -> set[ast.AST | None]:
    """Return the functions in which something asks for the backend; None stands for the module."""
    module = source.module
    found: set[ast.AST | None] = set()
    for node, scope in module.loads:
        names = names_of(module, node, scope)
        if is_any(names, *_GUARDS) or (isinstance(node, ast.Attribute) and node.attr in _GUARDING_ATTRIBUTES):
            found.add(_owner(source, node, scope.function))
    for call, scope in module.calls:
        if is_any(names_of(module, call.func, scope), "jax.devices", "jax.local_devices") and _names_gpus(call):
            found.add(scope.function)
        elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func).endswith("mark.backend"):
            found.add(_owner(source, call, scope.function))
    return found


def _owner(source: Source, node: ast.AST, function: ast.AST | None) -> ast.AST | None:
    """Return the function that a guard is for: the one that it decorates, or else the one that it is in."""
    before = node
    for outer in source.module.ancestors(node):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and before in outer.decorator_list:
            return outer
        before = outer
    return function


def _names_gpus(call: ast.Call) -> bool:
    values = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    values += [keyword.value.value for keyword in call.keywords if isinstance(keyword.value, ast.Constant)]
    return any(value in ("gpu", "cuda", "rocm") for value in values)


def _is_guarded(source: Source, operation: Operation, guarded: set[ast.AST | None]) -> bool:
    """Whether the functions around an operation, their class, or functions that they are called from have a guard."""
    around = [outer.node for outer in operation.scope.outwards()]
    if any(node in guarded for node in around):
        return True
    if any(isinstance(node, ast.ClassDef) and _has_guarded_setup(node, guarded) for node in around):
        return True
    group = source.contexts.group(operation.scope.function)
    return any(
        group is not None
        and node is not None
        and not isinstance(node, ast.ClassDef)
        and source.contexts.group(node) is group
        for node in guarded
    )


def _has_guarded_setup(node: ast.ClassDef, guarded: set[ast.AST | None]) -> bool:
    names = ("setUp", "setup_method", "setUpClass", "setup_class")
    return any(isinstance(item, ast.FunctionDef) and item.name in names and item in guarded for item in node.body)
