"""What expressions are worth: perms, sizes and shapes, also where a part of them is known at run time only.

What is not known (the number of devices, the size of an axis, a parameter) gets a value from a sample. What holds
in many samples that differ in it is taken to hold always.
"""

import ast
import contextlib
import operator
import random
import re
from collections.abc import Callable
from typing import Any

from peerax.lint._names import is_any, names_of
from peerax.lint._scopes import Binding, Module, Scope, all_arguments, argument_of

_LIMIT = 20_000  # of steps in one evaluation; a perm for more ranks than that is not looked at
_FREE = (-3, -1, 0, 1, 2, 3, 4, 5, 7)
_DEVICES = (8, 16, 24, 32)
_SIZES = (2, 3, 4, 5, 8)


# What an evaluation may end with where a sample does not fit, or the program is wrong in another way.
_NO_VALUE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


_COUNTS_DEVICES = re.compile(r"\bdevice_count\(|\blocal_device_count\(|\bdevices\(\)\)$")


class Unknown(Exception):
    """The value of an expression cannot be told."""


class Sample:
    """Hold one choice of what is not known; asked twice, it gives the same answer."""

    def __init__(self, number: int, devices: int | None, size_of: Callable[[str, "Sample"], int | None]) -> None:
        self._number = number
        self.combinations = 1  # of values that the choices of this sample could have
        self._random = random.Random(number)
        self._free: dict[Any, int] = {}
        self._size_of = size_of
        self._known_devices = devices
        self._devices = devices or self._random.choice(_DEVICES)
        self.used_devices = False
        self.used_free = False

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        self.used_devices = self.used_devices or self._known_devices is None
        return self._devices

    def size(self, axis: str) -> int:
        """Return the size of an axis, given by its name or by the text of an expression."""
        used_devices = self.used_devices
        known = self._size_of(axis, self)
        # What is made of the size of the axis fits the axis, however that size comes about.
        self.used_free = self.used_free or self.used_devices
        self.used_devices = used_devices
        return self._choose(("axis", axis), _SIZES) if known is None else known

    def chosen_size(self, axis: str) -> int | None:
        """Return the size of an axis if it was asked for."""
        return self._free.get(("axis", axis))

    def free(self, what: Any) -> int:
        """Return a value for a name of which nothing is known."""
        return self._choose(what, _FREE)

    def _choose(self, what: Any, choices: tuple[int, ...]) -> int:
        self.used_free = True
        if what not in self._free:
            # The first two take all pairs of values, as the numbers of the samples count up.
            rest = self._number // self.combinations
            self._free[what] = choices[rest % len(choices)] if len(self._free) < 2 else self._random.choice(choices)
            self.combinations *= len(choices)
        return self._free[what]


class Evaluation:
    """Evaluate expressions of a module with one sample."""

    def __init__(self, module: Module, sample: Sample) -> None:
        self.module = module
        self.sample = sample
        self._steps = 0
        self._open: set[Binding] = set()

    def value(self, expression: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression. Raises Unknown."""
        try:
            return self._value(expression, scope, {})
        except Unknown:
            raise
        except _NO_VALUE:
            raise Unknown from None

    def _value(self, node: ast.expr, scope: Scope, here: dict[str, Any]) -> Any:
        self._steps += 1
        if self._steps > _LIMIT:
            raise Unknown
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise Unknown
        return method(node, scope, here)

    def _Constant(self, node: ast.Constant, scope, here) -> Any:
        return node.value

    def _Tuple(self, node, scope, here) -> tuple:
        items: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                items += self._value(item.value, scope, here)
            else:
                items.append(self._value(item, scope, here))
        return tuple(items)

    _List = _Set = _Tuple

    def _Name(self, node: ast.Name, scope: Scope, here) -> Any:
        if node.id in here:
            return here[node.id]
        bindings = self.module.resolve(node.id, scope)
        if len(bindings) != 1 or bindings[0].kind != "value":
            return self.sample.free(bindings[0] if bindings else node.id)
        binding = bindings[0]
        if binding in self._open or self._is_mutated(binding):
            raise Unknown
        self._open.add(binding)
        try:
            assert binding.value is not None
            value = self._value(binding.value, binding.scope, {})
        except (Unknown, *_NO_VALUE):
            return self.sample.free(binding)
        finally:
            self._open.discard(binding)
        return value

    def _is_mutated(self, binding: Binding) -> bool:
        return any(
            name == binding.name and binding in self.module.resolve(name, scope)
            for name, scope in self.module.mutated
            if name == binding.name
        )

    def _UnaryOp(self, node: ast.UnaryOp, scope, here) -> Any:
        return _UNARY[type(node.op)](self._value(node.operand, scope, here))

    def _BinOp(self, node: ast.BinOp, scope, here) -> Any:
        left, right = self._value(node.left, scope, here), self._value(node.right, scope, here)
        if isinstance(node.op, (ast.Mult, ast.Pow)):
            sizes = [len(side) if isinstance(side, (tuple, str)) else abs(side) for side in (left, right)]
            if max(sizes) > _LIMIT or (isinstance(node.op, ast.Pow) and sizes[1] > 64):
                raise Unknown
        return _BINARY[type(node.op)](left, right)

    def _Compare(self, node: ast.Compare, scope, here) -> bool:
        left = self._value(node.left, scope, here)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._value(comparator, scope, here)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _BoolOp(self, node: ast.BoolOp, scope, here) -> Any:
        wanted = isinstance(node.op, ast.Or)
        value: Any = None
        for item in node.values:
            value = self._value(item, scope, here)
            if bool(value) is wanted:
                break
        return value

    def _IfExp(self, node: ast.IfExp, scope, here) -> Any:
        chosen = node.body if self._value(node.test, scope, here) else node.orelse
        return self._value(chosen, scope, here)

    def _ListComp(self, node, scope, here) -> tuple:
        found: list[Any] = []
        self._generate(node.generators, node.elt, scope, here, found)
        return tuple(found)

    _GeneratorExp = _SetComp = _ListComp

    def _generate(self, generators, element, scope, here, found: list) -> None:
        if not generators:
            found.append(self._value(element, scope, here))
            return
        first, *rest = generators
        for item in self._value(first.iter, scope, here):
            inner = {**here, **_bound(first.target, item)}
            if all(self._value(test, scope, inner) for test in first.ifs):
                self._generate(rest, element, scope, inner, found)

    def _Subscript(self, node: ast.Subscript, scope, here) -> Any:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            axis = node.slice  # mesh.shape["x"]
            if isinstance(axis, ast.Constant) and isinstance(axis.value, str):
                return self.sample.size(axis.value)
            raise Unknown
        value = self._value(node.value, scope, here)
        if isinstance(node.slice, ast.Slice):
            parts = [None if p is None else self._value(p, scope, here) for p in _parts(node.slice)]
            return value[slice(*parts)]
        return value[self._value(node.slice, scope, here)]

    def _Call(self, node: ast.Call, scope: Scope, here) -> Any:
        names = names_of(self.module, node.func, scope)
        if node.args and is_any(names, "jax.lax.psum") and isinstance(node.args[0], ast.Constant):
            return node.args[0].value * self._axis_size(argument_of(node, 1, "axis_name"), scope)
        if is_any(names, "jax.lax.axis_size", "jax.lax.psize"):
            return self._axis_size(argument_of(node, 0, "axis_name"), scope)
        if is_any(names, "jax.device_count", "jax.local_device_count"):
            return self.sample.devices
        if is_any(names, "jax.devices", "jax.local_devices"):
            return tuple(range(self.sample.devices))
        arguments = self._Tuple(ast.Tuple(node.args), scope, here) if node.args else ()
        if is_any(names, "numpy.array", "numpy.asarray", "jax.numpy.array", "jax.numpy.asarray"):
            return arguments[0]
        if not node.keywords:
            for name in names:
                if name in _BUILT_IN:
                    return self._built_in(name, arguments)
            return self._returned(node, scope, arguments)
        raise Unknown

    def _axis_size(self, axis: ast.expr | None, scope: Scope) -> int:
        if axis is None:
            raise Unknown
        return self.sample.size(axis_key(self.module, axis, scope))

    def _built_in(self, name: str, arguments: tuple) -> Any:
        if name == "range" and len(range(*arguments)) > _LIMIT:
            raise Unknown
        value = _BUILT_IN[name](*arguments)
        return tuple(value) if name in ("range", "zip", "enumerate", "reversed", "sorted", "list", "set") else value

    def _returned(self, node: ast.Call, scope: Scope, arguments: tuple) -> Any:
        """Call a function of the module that is one expression of its parameters."""
        if not isinstance(node.func, ast.Name):
            raise Unknown
        for binding in self.module.resolve(node.func.id, scope):
            function = binding.node if binding.kind == "def" else binding.value
            expression = returned_expression(function)
            parameters = all_arguments(function) if expression is not None else []  # type: ignore[arg-type]
            if expression is not None and len(parameters) == len(arguments):
                here = {parameter.arg: value for parameter, value in zip(parameters, arguments, strict=True)}
                return self._value(expression, self.module.inner[function], here)  # type: ignore[index]
        raise Unknown


def returned_expression(function: ast.AST | None) -> ast.expr | None:
    """Return the expression that a function is, if it is no more than that."""
    if isinstance(function, ast.Lambda):
        return function.body
    if not isinstance(function, ast.FunctionDef):
        return None
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return body[0].value
    return None


def constant(module: Module, expression: ast.expr | None, scope: Scope) -> Any:
    """Return the value of an expression that needs no sample. Raises Unknown."""
    if expression is None:
        raise Unknown
    sample = Sample(0, None, lambda axis, sample: None)
    value = Evaluation(module, sample).value(expression, scope)
    if sample.used_free or sample.used_devices:
        raise Unknown
    return value


def axis_key(module: Module, expression: ast.expr, scope: Scope) -> str:
    """Return the name of an axis, or the text of the expression that gives it."""
    try:
        value = constant(module, expression, scope)
    except Unknown:
        return f"<{ast.unparse(expression)}>"
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else f"<{value!r}>"


def device_count(module: Module) -> int | None:
    """Return the number of devices that a program asks for or insists on."""
    found: set[Any] = set()
    for text in module.texts:
        if "device_count=" in text:
            found |= set(map(int, re.findall(r"xla_force_host_platform_device_count=(\d{1,6})", text)))
    for node in module.comparisons:
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            sides = [node.left, node.comparators[0]]
            for one, other in (sides, sides[::-1]):
                if isinstance(one, ast.Call) and _COUNTS_DEVICES.search(ast.unparse(one)):
                    with contextlib.suppress(Unknown):
                        found.add(constant(module, other, module.top))
    for call, scope in module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update" and len(call.args) == 2:
            with contextlib.suppress(Unknown):
                if constant(module, call.args[0], scope) == "jax_num_cpu_devices":
                    found.add(constant(module, call.args[1], scope))
    counts = {count for count in found if isinstance(count, int)}
    return counts.pop() if len(counts) == 1 else None


def _bound(target: ast.expr, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, (ast.Tuple, ast.List)):
        bound: dict[str, Any] = {}
        for part, item in zip(target.elts, value, strict=True):
            bound |= _bound(part, item)
        return bound
    raise Unknown


def _parts(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step


_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitXor: operator.xor,
}
_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_BUILT_IN = {
    f.__name__: f for f in (range, len, list, tuple, set, zip, enumerate, reversed, sorted, min, max, sum, abs, int)
}
