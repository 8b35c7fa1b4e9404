"""Where the functions of a module run: inside of shard_map, outside of it, or nobody here can say.

A function runs where it is called, and where the functions run that it is handed to. That is followed through the
calls, names, decorators and parameters of one file. What leaves the file (it is returned, stored, or handed to a
function that is not known) may be called anywhere.
"""

import ast
from collections.abc import Iterator
from enum import Flag

from peerax.lint._names import is_any, last, names_of
from peerax.lint._scopes import FUNCTIONS, Binding, Function, Module, Scope, all_arguments


class Context(Flag):
    """Say where a function may run."""

    NOWHERE = 0
    INSIDE = 1
    OUTSIDE = 2
    UNKNOWN = 4


Node = ast.AST  # a function, or a parameter (ast.arg) that may be one

# What is handed to these is called later, where the result is called.
_PASS_ON = frozenset(
    "jit pjit grad value_and_grad vmap checkpoint remat custom_vjp custom_jvp custom_vmap named_call partial wraps "
    "staticmethod classmethod jacfwd jacrev hessian filter_jit filter_grad filter_value_and_grad filter_vmap "
    "named_scope cache lru_cache partialmethod".split()
)
# These call what they are handed at once.
_CALL = frozenset(
    "scan cond switch while_loop fori_loop map associative_scan vjp jvp linearize linear_transpose eval_shape "
    "make_jaxpr tree_map reduce closure_convert check simulate compile_for program run_scoped when filter sorted "
    "pallas_call".split()
)
_MAKE_A_MESH = ("Mesh", "make_mesh", "AbstractMesh", "create_mesh", "set_mesh", "use_mesh")


class Contexts:
    """Say of each function of a module where it may run."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._methods: dict[str, list[Function]] = {}
        self._contexts: dict[Node, Context] = {}
        self._edges: set[tuple[Node, Node]] = set()  # the second runs where the first does
        self._group: dict[Node, Node] = {}
        self._has_uses: set[Node] = set()
        self._followed: set[tuple[Node, Binding]] = set()
        # What was found out about an expression. While it is found out, it is what holds of a name bound to itself.
        self._functions: dict[ast.expr, tuple[Function, ...]] = {}
        self._are_shard_maps: dict[tuple[ast.expr, bool], bool] = {}
        for function, scope in module.functions:
            if isinstance(scope.node, ast.ClassDef) and not isinstance(function, ast.Lambda):
                self._methods.setdefault(function.name, []).append(function)
        for function, scope in module.functions:
            self._use_function(function, scope)
        self._add_roots()
        self._spread()

    def of(self, function: Function | None) -> Context:
        """Return where a function may run; None stands for the module itself."""
        return Context.OUTSIDE if function is None else self._contexts.get(function, Context.NOWHERE)

    def inside(self, scope: Scope) -> bool:
        """Whether what is in a scope runs inside of shard_map, as far as is seen."""
        return Context.INSIDE in self.of(scope.function)

    def group(self, function: Function | None) -> Node | None:
        """Return what is the same for all functions that call, contain or are handed to each other."""
        return None if function is None else self._find(function)

    def functions_of(self, expression: ast.expr, scope: Scope) -> tuple[Function, ...]:
        """Return the functions of this module that an expression may be."""
        if expression not in self._functions:
            self._functions[expression] = ()
            self._functions[expression] = tuple(dict.fromkeys(self._find_functions(expression, scope)))
        return self._functions[expression]

    def _find_functions(self, expression: ast.expr, scope: Scope) -> Iterator[Function]:
        if isinstance(expression, ast.Lambda):
            yield expression
        elif isinstance(expression, ast.Name):
            for binding in self.module.resolve(expression.id, scope):
                if binding.kind == "def":
                    yield binding.node  # type: ignore[misc]
                elif binding.kind == "value" and binding.value is not None:
                    yield from self.functions_of(binding.value, binding.scope)
        elif isinstance(expression, ast.Attribute):
            yield from self._methods_of(expression, scope)
        elif isinstance(expression, ast.Call) and self._passes_on(expression, scope) and expression.args:
            yield from self.functions_of(expression.args[0], scope)

    def _methods_of(self, attribute: ast.Attribute, scope: Scope) -> list[Function]:
        """Return the methods that an attribute may be: those of its class, where that is known, or else of any."""
        methods = self._methods.get(attribute.attr, [])
        if not methods or names_of(self.module, attribute, scope):
            return []
        if isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls"):
            around = next((outer.node for outer in scope.outwards() if isinstance(outer.node, ast.ClassDef)), None)
            own = [method for method in methods if self.module.parents[method] is around]
            return own or methods
        return methods

    # How a function is used.

    def _use_function(self, function: Function, scope: Scope) -> None:
        if scope.function is not None:
            self._join(function, scope.function)
        if isinstance(function, ast.Lambda):
            self._use(function, function, scope)
            return
        for decorator in reversed(function.decorator_list):
            if self._decorate(function, decorator, scope):
                return
        if isinstance(scope.node, ast.ClassDef):
            self._use_method(function)
            return
        for binding in scope.bindings.get(function.name, ()):
            if binding.node is function:
                self._use_binding(function, binding)

    def _use_method(self, method: ast.FunctionDef) -> None:
        if method.name.startswith("__"):
            self._add(method, Context.UNKNOWN)
        for node, scope in self.module.loads_of_attribute.get(method.name, ()):
            if method in self._methods_of(node, scope):
                self._use(method, node, scope)

    def _use_binding(self, user: Node, binding: Binding, depth: int = 8) -> None:
        if (user, binding) not in self._followed:
            self._followed.add((user, binding))
            for node, scope in self.module.loads_of(binding):
                self._use(user, node, scope, depth)

    def _decorate(self, function: ast.FunctionDef, decorator: ast.expr, scope: Scope) -> bool:
        """Follow a function into its decorator; return whether its name means something else from then on."""
        if self.is_shard_map(decorator, scope):
            self._add(function, Context.INSIDE)
            return True
        callee = decorator.func if isinstance(decorator, ast.Call) else decorator
        names = names_of(self.module, callee, scope)
        if is_any(frozenset(map(last, names)), "fixture", "property", "cached_property"):
            self._add(function, Context.UNKNOWN)
            return True
        if isinstance(decorator, ast.Call) and self._passes_on(decorator, scope):
            return False
        if any(last(name) in _PASS_ON or name.startswith(("pytest.", "jax._src.test_util.")) for name in names):
            return False
        for target in self.functions_of(decorator, scope):
            self._hand_over(function, target, 0, None)
            return True
        if any(".test" in name or "testing" in name for name in names):
            return False
        self._add(function, Context.UNKNOWN)
        return True

    def _use(self, user: Node, node: ast.expr, scope: Scope, depth: int = 8) -> None:
        """Note what is done with an expression that is the function, or a wrapped form of it."""
        parent = self.module.parents[node]
        if depth == 0:
            self._add(user, Context.UNKNOWN)
        elif isinstance(parent, ast.Call) and parent.func is node:
            self._called_in(user, scope)
        elif isinstance(parent, (ast.Call, ast.keyword, ast.List, ast.Tuple, ast.Starred)):
            self._use_as_argument(user, node, scope, depth)
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and parent.value is node:
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            bindings = [b for name in names for b in self.module.resolve(name, scope) if b.value is node]
            if not bindings:
                self._add(user, Context.UNKNOWN)
            for binding in bindings:
                self._use_binding(user, binding, depth - 1)
        elif isinstance(parent, ast.IfExp) and parent.test is not node:
            self._use(user, parent, scope, depth - 1)
        elif isinstance(parent, FUNCTIONS) and node in getattr(parent, "decorator_list", ()):
            self._called_in(user, scope)
        elif isinstance(parent, ast.Attribute):
            if parent.attr in ("lower", "trace", "eval_shape", "apply"):
                self._called_in(user, scope)
        elif not isinstance(parent, ast.Expr):
            self._add(user, Context.UNKNOWN)

    def _use_as_argument(self, user: Node, node: ast.expr, scope: Scope, depth: int) -> None:
        where: ast.AST = node
        keyword, in_list = None, False
        parent = self.module.parents[where]
        while isinstance(parent, (ast.keyword, ast.List, ast.Tuple, ast.Starred)):
            keyword = parent.arg if isinstance(parent, ast.keyword) else keyword
            in_list = in_list or not isinstance(parent, ast.keyword)
            where, parent = parent, self.module.parents[parent]
        if not isinstance(parent, ast.Call):
            self._add(user, Context.UNKNOWN)
            return
        callee = parent.func
        names = frozenset(map(last, names_of(self.module, callee, scope)))
        if self.is_shard_map(callee, scope) or self.is_shard_map(parent, scope, made=True):
            self._add(user, Context.INSIDE)
        elif self._gives_an_axis(parent, scope):
            self._add(user, Context.INSIDE)
        elif self._passes_on(parent, scope) and not in_list:
            first = bool(parent.args) and parent.args[0] is where
            if first or keyword in ("f", "fun", "func"):
                self._use(user, parent, scope, depth - 1)
            else:
                self._add(user, Context.UNKNOWN)
        elif names & _CALL:
            self._called_in(user, scope)
        elif isinstance(callee, ast.Attribute) and callee.attr in ("defvjp", "defjvp", "def_vmap"):
            for target in self.functions_of(callee.value, scope):  # a rule of that function runs where it does
                self._has_uses.add(user)
                self._edges.add((target, user))
                self._join(user, target)
        elif targets := self.functions_of(callee, scope):
            position = None if in_list or keyword else parent.args.index(where)  # type: ignore[arg-type]
            for target in targets:
                self._hand_over(user, target, position, keyword, method=isinstance(callee, ast.Attribute))
        else:
            self._add(user, Context.UNKNOWN)

    def _hand_over(self, user: Node, target: Function, position, keyword, *, method: bool = False) -> None:
        """Note that a function is given to a parameter of a function of this module."""
        arguments = all_arguments(target)
        if position is not None and method:
            position += 1
        chosen = None
        if keyword is not None:
            chosen = next((argument for argument in arguments if argument.arg == keyword), None)
        elif position is not None and position < len(target.args.posonlyargs) + len(target.args.args):
            chosen = arguments[position]
        self._join(user, target)
        if chosen is None:
            self._add(user, Context.UNKNOWN)
            return
        self._has_uses.add(user)
        self._edges.add((chosen, user))
        if chosen not in self._has_uses:
            self._has_uses.add(chosen)
            for binding in self.module.inner[target].bindings.get(chosen.arg, ()):
                if binding.node is chosen:
                    self._use_binding(chosen, binding)

    def _called_in(self, user: Node, scope: Scope) -> None:
        self._has_uses.add(user)
        if scope.function is None:
            self._add(user, Context.OUTSIDE)
        else:
            self._edges.add((scope.function, user))
            self._join(user, scope.function)

    def _add(self, node: Node, context: Context) -> None:
        self._has_uses.add(node)
        self._contexts[node] = self._contexts.get(node, Context.NOWHERE) | context

    # What makes axes manual.

    def is_shard_map(self, expression: ast.expr, scope: Scope, *, made: bool = False) -> bool:
        """Whether an expression is shard_map, or shard_map with some arguments; with made, only the latter counts."""
        key = (expression, made)
        if key not in self._are_shard_maps:
            self._are_shard_maps[key] = False
            find = self._is_made_shard_map if isinstance(expression, ast.Call) else self._is_named_shard_map
            self._are_shard_maps[key] = find(expression, scope, made)
        return self._are_shard_maps[key]

    def _is_made_shard_map(self, call: ast.Call, scope: Scope, made: bool) -> bool:
        if self.is_shard_map(call.func, scope):
            # shard_map(mesh=...) waits for the function; shard_map(f, mesh=...) has it.
            return not call.args and not any(keyword.arg in ("f", "fun") for keyword in call.keywords)
        if is_any(frozenset(map(last, names_of(self.module, call.func, scope))), "partial") and call.args:
            if self._gives_an_axis(call, scope):
                return len(call.args) == 1
            return self.is_shard_map(call.args[0], scope)
        return self._gives_an_axis(call, scope) and not call.args

    def _is_named_shard_map(self, expression: ast.expr, scope: Scope, made: bool) -> bool:
        if not made and any(_is_shard_map_name(last(name)) for name in names_of(self.module, expression, scope)):
            return True
        if isinstance(expression, ast.Attribute):
            return not made and _is_shard_map_name(expression.attr)
        return isinstance(expression, ast.Name) and any(
            binding.kind == "value"
            and binding.value is not None
            and self.is_shard_map(binding.value, binding.scope, made=made)
            for binding in self.module.resolve(expression.id, scope)
        )

    def _gives_an_axis(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a call is a vmap or pmap with an axis name, or a partial of one."""
        names = frozenset(map(last, names_of(self.module, call.func, scope)))
        keywords = {keyword.arg for keyword in call.keywords}
        if is_any(names, "partial") and call.args:
            names = frozenset(map(last, names_of(self.module, call.args[0], scope)))
        if is_any(names, "pmap", "xmap", "soft_pmap", "core_map"):
            return True
        return is_any(names, "vmap") and ("axis_name" in keywords or len(call.args) > 3 or None in keywords)

    def _passes_on(self, call: ast.Call, scope: Scope) -> bool:
        """Whether the result of a call stands for the function that it is handed."""
        callee = call.func
        names = frozenset(map(last, names_of(self.module, callee, scope)))
        if names & _PASS_ON:
            return True
        # partial(jit, ...)(f) and jit(static_argnums=...)(f)
        return isinstance(callee, ast.Call) and self._passes_on(callee, scope)

    # Where functions run that nobody calls, and the rest of what follows.

    def _add_roots(self) -> None:
        makers = {
            scope.function
            for call, scope in self.module.calls
            if is_any(frozenset(map(last, names_of(self.module, call.func, scope))), *_MAKE_A_MESH)
        }
        for function, scope in self.module.functions:
            if function in self._has_uses:
                continue
            self._add(function, Context.UNKNOWN)
            if isinstance(function, ast.Lambda):
                continue
            # A test is called by pytest, and what makes its own mesh is in nobody else's.
            test = function.name.lower().startswith("test") or function.name == "main"
            jitted = scope.function is None and self._is_jitted(function, scope)
            if test or jitted or function in makers:
                self._contexts[function] = Context.OUTSIDE

    def _is_jitted(self, function: ast.FunctionDef, scope: Scope) -> bool:
        for decorator in function.decorator_list:
            parts = [decorator]
            if isinstance(decorator, ast.Call):
                parts = [decorator.func, *decorator.args[:1]]
            if any(is_any(names_of(self.module, part, scope), "jax.jit", "jax.pjit") for part in parts):
                return True
        return False

    def _spread(self) -> None:
        after: dict[Node, list[Node]] = {}
        for before, node in self._edges:
            after.setdefault(before, []).append(node)
        open_nodes = list(self._contexts)
        while open_nodes:
            before = open_nodes.pop()
            for node in after.get(before, ()):
                known = self._contexts.get(node, Context.NOWHERE)
                wider = known | self._contexts[before]
                if wider != known:
                    self._contexts[node] = wider
                    open_nodes.append(node)

    def _find(self, node: Node) -> Node:
        while (above := self._group.get(node, node)) is not node:
            node = above
        return node

    def _join(self, one: Node, other: Node) -> None:
        self._group[self._find(one)] = self._find(other)


def _is_shard_map_name(name: str) -> bool:
    return "shard_map" in name or name in ("smap", "shmap")
