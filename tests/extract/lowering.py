"""Lowers the random programs of the verifier's tests to JAX functions, and compares what comes back with them.

A node becomes what a user would write for it: a subset of the ranks is a cond on the rank's index, a table a cond on
its element for rank and iteration, a value that is not known an argument of the program.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import peerax
from peerax.verifier import Branch, Collective, Exchange, Loop, Program, Recv, Send, Table, Unknown
from tests.ranks import line
from tests.verifier.programs import Op, Repeat, Select, Unsure

NAMES = ("p", "q")
WRAPPERS = (lambda function: function, jax.jit, jax.checkpoint)


def as_in_jax(nodes, numbers=None):
    """Return nodes in which each pair has a number of its own, and each loop of unknown length a name of its own.

    In JAX, what stands in two branches is two things. A value that branches depend on may be the same. A collective of
    several arrays is one after another.
    """
    numbers = count() if numbers is None else numbers
    changed = []
    for node in nodes:
        if isinstance(node, Op):
            if isinstance(node.operation, Collective):
                operation = node.operation
                changed += [replace(node, operation=replace(operation, types=(name,))) for name in operation.types]
                continue
            if isinstance(node.operation, Exchange):
                node = replace(node, operation=replace(node.operation, pair=next(numbers)))
        elif isinstance(node, Unsure):
            name = node.name if len(node.branches) > 1 else f"{node.name}{next(numbers)}"
            node = replace(node, name=name, branches=tuple(as_in_jax(branch, numbers) for branch in node.branches))
        else:
            node = replace(node, nodes=as_in_jax(node.nodes, numbers))
        changed.append(node)
    return tuple(changed)


def to_function(size, nodes, wrapper=0, runs=False, unrolled=False):
    """Return the program as a function of its arguments.

    Args:
        wrapper: what each node is wrapped in.
        runs: whether it has an operation of peerax in any case: a body without is left to XLA, which may abort.
        unrolled: whether loops are written out.
    """

    def body(shared, own, x):
        if runs:
            peerax.psend((), "x", [])
        hidden = jax.pure_callback(lambda x: x, jax.typeof(shared), shared)
        values = {"uniform": shared, "varying": own, "unknown": hidden}
        return _Lowering(values, WRAPPERS[wrapper], unrolled).run(nodes, x)

    in_specs = (P(), P("x"), P("x"))
    return jax.shard_map(body, mesh=line(size), in_specs=in_specs, out_specs=P("x"), check_vma=False)


def arguments(size):
    """The types of numbers that all ranks have, of numbers that differ, and of the data."""
    values = [jax.ShapeDtypeStruct((ranks * len(NAMES),), jnp.int32) for ranks in (1, size)]
    return *values, jax.ShapeDtypeStruct((size,), jnp.float32)


@dataclass
class _Lowering:
    values: dict
    wrap: Callable
    unrolled: bool

    def run(self, nodes, x):
        for node in nodes:
            x = self.wrap(lambda x, node=node: self._node(node, x))(x)
        return x

    def _node(self, node, x):
        kind = {Op: self._op, Repeat: self._repeat, Select: self._select, Unsure: self._unsure}[type(node)]
        return kind(node, x)

    def _op(self, node, x):
        size = lax.axis_size("x")
        if len(node.ranks) == size:
            return _operation(node.operation, x)
        there = jnp.asarray([rank in node.ranks for rank in range(size)])[lax.axis_index("x")]
        return lax.cond(there, lambda x: _operation(node.operation, x), lambda x: x, x)

    def _repeat(self, node, x):
        if self.unrolled:
            for _ in range(node.trip):
                x = self.run(node.nodes, x)
            return x
        return lax.fori_loop(0, node.trip, lambda _, x: self.run(node.nodes, x), x)

    def _select(self, node, x):
        table = jnp.asarray(node.tables, jnp.int32)[lax.axis_index("x")]

        def tick(x, chosen):
            return lax.switch(chosen, [lambda x: x, lambda x: self.run(node.nodes, x)], x), None

        if self.unrolled:
            for chosen in table:
                x, _ = tick(x, chosen)
            return x
        return lax.scan(tick, x, table)[0]

    def _unsure(self, node, x):
        value = self.values[node.kind][NAMES.index(node.name[0])]
        if len(node.branches) == 1:
            return lax.fori_loop(0, value, lambda _, x: self.run(node.branches[0], x), x)
        return lax.switch(value, [lambda x, nodes=nodes: self.run(nodes, x) for nodes in node.branches], x)


def _operation(operation, x):
    """Run an operation on what x makes; its result goes into x, so that it is used."""
    types = [_parse(name) for name in operation.types]
    arrays = [jnp.broadcast_to(x, t.shape).astype(t.dtype) for t in types]
    if isinstance(operation, Collective):
        size = lax.axis_size("x")
        (members,) = operation.groups
        groups = None if len(members) == size else [[*members], *([r] for r in range(size) if r not in members)]
        reduce = {"psum": lax.psum, "pmax": lax.pmax}[operation.name]
        results = reduce(tuple(arrays), "x", axis_index_groups=groups)
    elif isinstance(operation, Send):
        return x + peerax.psend(arrays, "x", operation.perm, tag=operation.tag)
    else:
        token = peerax.create_token()
        if isinstance(operation, Exchange):
            token = peerax.psend(arrays, "x", operation.perm, tag=operation.tag)
        results = peerax.precv(token, types, "x", operation.perm, tag=operation.tag)
    return x + sum(result[:1].astype(x.dtype) for result in results)


def _parse(name):
    dtype, _, length = name.partition("[")
    return jax.ShapeDtypeStruct((int(length[:-1]),), jnp.dtype(dtype))


def normal(program: Program) -> list:
    """Return what each rank does, without lines, with pairs and unknown values numbered as they come."""
    numbers: dict = {}
    return [_normal(body, numbers) for body in program.bodies()]


def _normal(body, numbers):
    items = []
    for item in body:
        if isinstance(item, Loop):
            inner = _normal(item.body, numbers)
            items += [("loop", _value(item.trip, numbers), inner)] if inner and item.trip != 0 else []
        elif isinstance(item, Branch):
            branches = [_normal(branch, numbers) for branch in item.branches]
            value = _value(item.selector, numbers)
            if isinstance(value, int):
                items += branches[value]
            elif any(branches):
                items.append(("branch", value, branches))
        elif isinstance(item, Collective):
            groups = sorted(tuple(sorted(group)) for group in item.groups if len(group) > 1)
            items += [("collective", item.name, groups, item.types)] if groups else []
        else:
            pair = numbers.setdefault(("pair", item.pair), len(numbers)) if isinstance(item, Exchange) else None
            kind = {Send: "send", Recv: "recv", Exchange: "exchange"}[type(item)]
            items.append((kind, sorted(item.perm), item.types, item.tag, item.path, pair))
    return items


def _value(value, numbers):
    if isinstance(value, Unknown):
        return value.kind, numbers.setdefault(value.name, len(numbers))
    if isinstance(value, Table):
        return value.values[0] if len(set(value.values)) == 1 else (value.values, value.depth)
    return value


def is_split(program: Program) -> bool:
    """Return whether a value that differs is known to decide on nothing between the ranks that it differs for."""
    return "[x=" in str(program)
