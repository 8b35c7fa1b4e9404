"""The operations of a module that move arrays between ranks, and what is common to all rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from peerax.lint._contexts import Contexts
from peerax.lint._meshes import Meshes
from peerax.lint._names import message_of, names_of
from peerax.lint._scopes import Module, Scope, argument_of
from peerax.lint._values import Sample, device_count


@dataclass(frozen=True)
class Operation:
    """Hold one call of psend, precv, ppermute or permute_shards."""

    name: str
    of_lax: bool
    call: ast.Call
    scope: Scope
    axis: ast.expr | None
    perm: ast.expr | None
    token: ast.expr | None = None


class Source:
    """Hold a parsed module with what the rules want to know of it; each is found out when it is asked for."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Module(tree)
        self.ranks: dict[ast.expr, set[str]] = {}  # the axes on whose rank an expression depends

    @cached_property
    def operations(self) -> list[Operation]:
        """Return the operations, in the order of the text."""
        return list(_find(self.module))

    @cached_property
    def contexts(self) -> Contexts:
        """Return where the functions run."""
        return Contexts(self.module)

    @cached_property
    def meshes(self) -> Meshes:
        """Return the meshes that are made."""
        is_shard_map = self.contexts.is_shard_map
        return Meshes(self.module, lambda call, scope: is_shard_map(call.func, scope) or is_shard_map(call, scope))

    @cached_property
    def known_devices(self) -> int | None:
        """Return the number of devices that the program asks for."""
        return device_count(self.module)

    def sample(self, number: int, scope: Scope) -> Sample:
        """Return a choice of what is not known in a scope."""
        return Sample(number, self.known_devices, lambda axis, sample: self.meshes.size(axis, scope, sample))


def _find(module: Module) -> Iterator[Operation]:
    for call, scope in module.calls:
        names = names_of(module, call.func, scope)
        if not names:
            continue
        of_lax = any(name.startswith("jax.lax.") for name in names)
        op = message_of(names)
        if op == "precv":
            axis, perm = argument_of(call, 2, "axis_name"), argument_of(call, 3, "perm")
            yield Operation(op, of_lax, call, scope, axis, perm, argument_of(call, 0, "token"))
        elif op == "psend":
            token = next((keyword.value for keyword in call.keywords if keyword.arg == "token"), None)
            axis, perm = argument_of(call, 1, "axis_name"), argument_of(call, 2, "perm")
            yield Operation(op, of_lax, call, scope, axis, perm, token)
        elif not names.isdisjoint(("jax.lax.ppermute", "peerax.permute_shards")):
            name = "ppermute" if "jax.lax.ppermute" in names else "permute_shards"
            axis, perm = argument_of(call, 1, "axis_name"), argument_of(call, 2, "perm")
            yield Operation(name, of_lax, call, scope, axis, perm)
