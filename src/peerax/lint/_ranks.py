"""PXL010 and PXL011: what is taken for a rank, and what depends on one."""

import ast
import re
from collections.abc import Iterator

from peerax.lint._finding import Found
from peerax.lint._names import COLLECTIVES, collective_of, is_any, last, names_of
from peerax.lint._operations import Source
from peerax.lint._scopes import FUNCTIONS, Function, Scope, argument_of
from peerax.lint._values import axis_key, returned_expression

_NAMES_A_RANK = re.compile(
    r"(?:^|_)(?:device|rank|stage|shard|replica|worker|process|host)(?:_?(?:id|index|idx))?(?:_|$)"
)
_IOTAS = ("jax.lax.iota", "jax.lax.broadcasted_iota", "jax.numpy.arange")
_SAME_EVERYWHERE = COLLECTIVES - {"ppermute", "pshuffle", "all_to_all", "psum_scatter", "ragged_all_to_all"}
_PROCESS = "the process"
_TOGETHER = frozenset(
    {
        "sync_global_devices",
        "process_allgather",
        "broadcast_one_to_all",
        "assert_equal",
        "reached_preemption_sync_point",
    }
)


def iota_as_rank(source: Source) -> Iterator[Found]:
    """Find PXL010: an iota along the first dimension is compared with a number, and called a device or rank."""
    module = source.module
    for call, scope in module.calls:
        if not is_any(names_of(module, call.func, scope), *_IOTAS) or not _counts_the_first_dimension(
            source, call, scope
        ):
            continue
        compared = module.parents[call]
        if not isinstance(compared, ast.Compare) or len(compared.ops) != 1:
            continue
        if not isinstance(compared.ops[0], (ast.Eq, ast.NotEq)):
            continue
        name = _name_of_a_rank(source, compared, scope)
        if name is None or not source.contexts.inside(scope):
            continue
        yield Found(
            "PXL010",
            compared,
            f"{name} is computed from an iota, which counts from 0 on every rank: each takes itself for the first",
        )


def _counts_the_first_dimension(source: Source, call: ast.Call, scope: Scope) -> bool:
    if not any(last(name) == "broadcasted_iota" for name in names_of(source.module, call.func, scope)):
        return True
    dimension = argument_of(call, 2, "dimension")
    return isinstance(dimension, ast.Constant) and dimension.value == 0


def _name_of_a_rank(source: Source, compared: ast.Compare, scope: Scope) -> str | None:
    """Return the name that calls the comparison a question for the rank: a variable's, or the function's."""
    parent = source.module.parents[compared]
    names = []
    if isinstance(parent, ast.Assign):
        names += [target.id for target in parent.targets if isinstance(target, ast.Name)]
    function = scope.function
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names.append(function.name)
    return next((name for name in names if _NAMES_A_RANK.search(name.lower())), None)


def collective_in_branch(source: Source) -> Iterator[Found]:
    """Find PXL011: a branch of cond or switch, or of an if, that is chosen by the rank and holds a collective."""
    module = source.module
    for call, scope in module.calls:
        names = names_of(module, call.func, scope)
        if is_any(names, "jax.lax.cond", "jax.lax.switch"):
            yield from _in_cond(source, call, scope, "cond" if "jax.lax.cond" in names else "switch")
        elif any(last(name) in _TOGETHER and "multihost_utils" in name for name in names):
            yield from _in_if(source, call, scope, next(map(last, names)))


def _in_cond(source: Source, call: ast.Call, scope: Scope, name: str) -> Iterator[Found]:
    chooser = argument_of(call, 0, "pred" if name == "cond" else "index")
    axes = set() if chooser is None else _ranks_in(source, chooser, scope)
    branches = _branches(call, name) if axes else []
    if not branches or not all(_is_known(source, branch, scope) for branch in branches):
        return
    held = [
        [
            (found, collective, frozenset(axes & over))
            for function in source.contexts.functions_of(branch, scope)
            for found, collective, over in _collectives_in(source, function, set())
            if axes & over
        ]
        for branch in branches
    ]
    if any(_is_decided_by_python(source, found) for branch in held for found, _, _ in branch):
        return
    if len({tuple((collective, over) for _, collective, over in branch) for branch in held}) == 1:
        return  # all ranks meet in the same collectives, whichever branch they take
    for branch in held:
        for found, collective, over in branch:
            message = f"{collective} is in a branch that only some ranks of {', '.join(sorted(over))} take"
            yield Found("PXL011", found, message, ((call.lineno, f"this {name} is decided by the rank"),))


def _branches(call: ast.Call, name: str) -> list[ast.expr]:
    if name == "cond":
        given = [argument_of(call, 1, "true_fun"), argument_of(call, 2, "false_fun")]
        return [branch for branch in given if branch is not None] if None not in given else []
    branches = argument_of(call, 1, "branches")
    return list(branches.elts) if isinstance(branches, (ast.List, ast.Tuple)) else []


def _is_decided_by_python(source: Source, call: ast.Call) -> bool:
    """Whether a call is in an if of its function, so that its branch may be traced without it."""
    for outer in source.module.ancestors(call):
        if isinstance(outer, FUNCTIONS):
            return False
        if isinstance(outer, (ast.If, ast.IfExp, ast.Match)):
            return True
    return False


def _is_known(source: Source, branch: ast.expr, scope: Scope) -> bool:
    """Whether the function that a branch is can be looked into, or is one of JAX's, which has no collective."""
    if source.contexts.functions_of(branch, scope):
        return True
    names = names_of(source.module, branch, scope)
    return bool(names) and all(name.startswith("jax.") and collective_of(frozenset({name})) is None for name in names)


def _collectives_in(source: Source, function: Function, seen: set[ast.AST]) -> Iterator[tuple[ast.Call, str, set[str]]]:
    """Yield the collectives in a function and in those that it calls, with the axes that each is over."""
    if function in seen:
        return
    seen.add(function)
    module = source.module
    for call, scope in module.calls:
        if not any(outer.node is function for outer in scope.outwards()):
            continue
        collective = collective_of(names_of(module, call.func, scope))
        if collective is not None:
            axis = argument_of(call, 2 if collective == "ragged_all_to_all" else 1, "axis_name")
            if axis is not None and not (isinstance(call.args[0] if call.args else None, ast.Constant)):
                yield call, collective, _axes(source, axis, scope)  # psum(1, axis) is a size
            continue
        for called in source.contexts.functions_of(call.func, scope):
            yield from _collectives_in(source, called, seen)


def _axes(source: Source, axis: ast.expr, scope: Scope) -> set[str]:
    if isinstance(axis, (ast.Tuple, ast.List)):
        return {axis_key(source.module, item, scope) for item in axis.elts}
    return {axis_key(source.module, axis, scope)}


def _ranks_in(source: Source, expression: ast.expr, scope: Scope) -> set[str]:
    """Return the axes on whose rank the value of an expression depends."""
    if expression not in source.ranks:
        source.ranks[expression] = set()  # of a name that is bound to itself
        source.ranks[expression] = _find_ranks(source, expression, scope)
    return source.ranks[expression]


def _find_ranks(source: Source, expression: ast.expr, scope: Scope) -> set[str]:
    if isinstance(expression, ast.Call):
        names = names_of(source.module, expression.func, scope)
        if is_any(names, "jax.lax.axis_index"):
            axis = argument_of(expression, 0, "axis_name")
            return set() if axis is None else _axes(source, axis, scope)
        if is_any(names, "jax.process_index"):
            return {_PROCESS}
        if is_any(names, "isinstance", "len", "type") or any("multihost_utils" in name for name in names):
            return set()  # the same everywhere
        collective = collective_of(names)
        if collective in _SAME_EVERYWHERE:
            axis = argument_of(expression, 1, "axis_name")
            ranks = set().union(*(_ranks_in(source, argument, scope) for argument in expression.args[:1]))
            return ranks - (set() if axis is None else _axes(source, axis, scope))
        inner = [
            _ranks_in(source, result, source.module.inner[function])
            for function in source.contexts.functions_of(expression.func, scope)
            if (result := returned_expression(function)) is not None
        ]
        arguments = [*expression.args, *(keyword.value for keyword in expression.keywords)]
        if isinstance(expression.func, ast.Attribute):
            arguments.append(expression.func.value)
        return set().union(*inner, *(_ranks_in(source, argument, scope) for argument in arguments))
    if isinstance(expression, ast.Name):
        found: set[str] = set()
        for binding in source.module.resolve(expression.id, scope):
            if binding.value is not None and binding.kind == "value":
                found |= _ranks_in(source, binding.value, binding.scope)
        return found
    if isinstance(expression, ast.Lambda):
        return set()
    children = [child for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr)]
    return set().union(*(_ranks_in(source, child, scope) for child in children))


def _in_if(source: Source, call: ast.Call, scope: Scope, name: str) -> Iterator[Found]:
    """Find what all processes must call, in an if that asks which process this is."""
    inner: ast.AST = call
    for outer in source.module.ancestors(call):
        if isinstance(outer, FUNCTIONS):
            return
        if isinstance(outer, ast.If) and inner is not outer.test and _PROCESS in _ranks_in(source, outer.test, scope):
            other = outer.orelse if inner in outer.body else outer.body
            if not any(f"{name}(" in ast.unparse(statement) for statement in other):
                message = f"{name} waits for all processes, and is in a branch that only some of them take"
                yield Found("PXL011", call, message, ((outer.lineno, "this if is decided by the process"),))
            return
        inner = outer
