"""What a name means: the qualified names that an expression may have, through imports and aliases."""

import ast

from peerax.lint._scopes import Module, Scope

# Where JAX's modules take their names from; code inside of JAX imports them from there.
_PRIVATE = (
    ("jax._src.lax.parallel.", "jax.lax."),
    ("jax._src.lax.lax.", "jax.lax."),
    ("jax._src.lax.", "jax.lax."),
    ("jax._src.mesh.", "jax.sharding."),
    ("jax._src.", "jax."),
)

MESSAGES = ("psend", "precv")
COLLECTIVES = frozenset(
    "psum pmean pmax pmin ppermute pshuffle all_gather all_gather_invariant all_to_all psum_scatter psum_invariant "
    "pbroadcast ragged_all_to_all preduced".split()
)


def names_of(module: Module, expression: ast.expr, scope: Scope) -> frozenset[str]:
    """Return the qualified names that an expression may have; empty if it is nothing that was imported.

    A name with several imports (in try and except, or in branches) has several. A built-in has its own name.
    """
    if expression not in module.names:
        module.names[expression] = frozenset()  # of a name that is bound to itself
        module.names[expression] = _names(module, expression, scope)
    return module.names[expression]


def _names(module: Module, expression: ast.expr, scope: Scope) -> frozenset[str]:
    if isinstance(expression, ast.Attribute):
        return frozenset(_canonical(f"{name}.{expression.attr}") for name in names_of(module, expression.value, scope))
    if not isinstance(expression, ast.Name):
        return frozenset()
    bindings = module.resolve(expression.id, scope)
    if not bindings:
        stars = frozenset(f"{origin}.{expression.id}" for origin in module.stars_around(scope))
        return frozenset(map(_canonical, stars)) | {expression.id}
    found: set[str] = set()
    for binding in bindings:
        if binding.kind == "import":
            found.add(_canonical(binding.imported))
        elif binding.kind == "value" and isinstance(binding.value, (ast.Name, ast.Attribute)):
            found |= names_of(module, binding.value, binding.scope)
    return frozenset(found)


def _canonical(name: str) -> str:
    for private, public in _PRIVATE:
        if name.startswith(private):
            return public + name[len(private) :]
    return name


def last(name: str) -> str:
    """Return what stands behind the last dot."""
    return name.rpartition(".")[2]


def message_of(names: frozenset[str]) -> str | None:
    """Return "psend" or "precv" if the names are those of JAX's or peerax's operation."""
    return next((op for op in MESSAGES if f"jax.lax.{op}" in names or f"peerax.{op}" in names), None)


def collective_of(names: frozenset[str]) -> str | None:
    """Return the name of JAX's collective that the names are of."""
    return next((last(name) for name in names if name.startswith("jax.lax.") and last(name) in COLLECTIVES), None)


def is_any(names: frozenset[str], *wanted: str) -> bool:
    """Whether one of the names is one of those."""
    return not names.isdisjoint(wanted)
