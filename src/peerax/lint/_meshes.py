"""The meshes that a module makes, and the sizes of their axes."""

import ast
import math
from dataclasses import dataclass

from peerax.lint._names import is_any, last, names_of
from peerax.lint._scopes import Module, Scope, argument_of
from peerax.lint._values import Evaluation, Sample, Unknown, axis_key, constant

_NEW = ("Mesh", "make_mesh", "AbstractMesh")
_SAME_SHAPE = frozenset({"array", "asarray", "sort"})
_SHAPE_FIRST = frozenset({"create_device_mesh", "create_hybrid_device_mesh"})


@dataclass(frozen=True)
class MadeMesh:
    """Hold a call that makes a mesh; names is None if the names of its axes are not known."""

    call: ast.Call
    scope: Scope
    names: tuple[str, ...] | None
    of_devices: bool  # the first argument is an array of devices, and not a shape


class Meshes:
    """Know the sizes of the axes that the meshes of a module have."""

    def __init__(self, module: Module, is_shard_map) -> None:
        self.module = module
        self.made: list[MadeMesh] = []
        self._others: set[str] = set()  # axes that are no mesh's
        self._unknown_mesh = False
        for call, scope in module.calls:
            names = names_of(module, call.func, scope)
            if is_any(frozenset(map(last, names)), *_NEW):
                self._add(call, scope, is_any(frozenset(map(last, names)), "Mesh"))
            for keyword in call.keywords:
                if keyword.arg == "axis_name" and is_any(frozenset(map(last, names)), "vmap", "pmap", "partial"):
                    self._others.add(axis_key(module, keyword.value, scope))
                if keyword.arg == "mesh" and is_shard_map(call, scope):
                    self._unknown_mesh = self._unknown_mesh or not self._is_made_here(keyword.value, scope)

    def size(self, axis: str, scope: Scope, sample: Sample) -> int | None:
        """Return the size of an axis for what is used in a scope, if it is known in all meshes that may be meant."""
        if axis in self._others or any(other.startswith("<") for other in self._others):
            return None
        around = {id(outer.node) for outer in scope.outwards() if outer.parent is not None}
        near = [mesh for mesh in self.made if any(id(outer.node) in around for outer in mesh.scope.outwards())]
        candidates = near or self.made
        if self._unknown_mesh or any(mesh.names is None for mesh in candidates):
            return None
        try:
            sizes = {self._size_in(mesh, axis, sample) for mesh in candidates if axis in mesh.names}  # type: ignore[operator]
        except Unknown:
            return None
        return sizes.pop() if len(sizes) == 1 else None

    def _add(self, call: ast.Call, scope: Scope, of_devices: bool) -> None:
        if not call.args and not call.keywords:
            return
        try:
            names = constant(self.module, argument_of(call, 1, "axis_names"), scope)
        except Unknown:
            names = None
        names = (names,) if isinstance(names, str) else names
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            names = None
        self.made.append(MadeMesh(call, scope, names, of_devices))

    def _is_made_here(self, expression: ast.expr, scope: Scope, depth: int = 3) -> bool:
        if isinstance(expression, ast.Call):
            return any(mesh.call is expression for mesh in self.made) or is_any(
                frozenset(map(last, names_of(self.module, expression.func, scope))), *_NEW
            )
        if isinstance(expression, ast.Name) and depth:
            bindings = self.module.resolve(expression.id, scope)
            return bool(bindings) and all(
                binding.kind == "value"
                and binding.value is not None
                and self._is_made_here(binding.value, binding.scope, depth - 1)
                for binding in bindings
            )
        return False

    def _size_in(self, mesh: MadeMesh, axis: str, sample: Sample) -> int:
        assert mesh.names is not None
        if mesh.of_devices:
            shape = self._shape(argument_of(mesh.call, 0, "devices"), mesh.scope, sample)
        else:
            given = argument_of(mesh.call, 0, "axis_sizes" if _is_abstract(mesh.call) else "axis_shapes")
            if given is None:
                raise Unknown
            shape = _as_shape(Evaluation(self.module, sample).value(given, mesh.scope))
        position = mesh.names.index(axis)
        if position >= len(shape) or not isinstance(shape[position], int):
            raise Unknown
        return shape[position]

    def _shape(self, expression: ast.expr | None, scope: Scope, sample: Sample, depth: int = 8) -> tuple[int, ...]:
        """Return the shape of an array of devices."""
        if expression is None or depth == 0:
            raise Unknown
        if isinstance(expression, ast.Name):
            bindings = self.module.resolve(expression.id, scope)
            if len(bindings) == 1 and bindings[0].kind == "value":
                return self._shape(bindings[0].value, bindings[0].scope, sample, depth - 1)
            raise Unknown
        evaluation = Evaluation(self.module, sample)
        if isinstance(expression, ast.Call):
            name = expression.func.attr if isinstance(expression.func, ast.Attribute) else None
            called = frozenset(map(last, names_of(self.module, expression.func, scope)))
            if name == "reshape" and not called:
                before = self._shape(expression.func.value, scope, sample, depth - 1)  # type: ignore[union-attr]
                given = [evaluation.value(argument, scope) for argument in expression.args]
                return _reshaped(before, _as_shape(given[0] if len(given) == 1 else tuple(given)))
            if called & _SAME_SHAPE and expression.args:
                return self._shape(expression.args[0], scope, sample, depth - 1)
            if called & _SHAPE_FIRST and expression.args:
                return _as_shape(evaluation.value(expression.args[0], scope))
        value = evaluation.value(expression, scope)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise Unknown
        return (len(value),)


def _is_abstract(call: ast.Call) -> bool:
    return "AbstractMesh" in ast.unparse(call.func)


def _as_shape(value) -> tuple[int, ...]:
    shape = (value,) if isinstance(value, int) else value
    if not isinstance(shape, tuple) or not shape or not all(isinstance(size, int) for size in shape):
        raise Unknown
    return shape


def _reshaped(before: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    known = math.prod(size for size in shape if size != -1)
    if -1 not in shape:
        return shape
    if known <= 0 or math.prod(before) % known:
        raise Unknown
    return tuple(math.prod(before) // known if size == -1 else size for size in shape)
