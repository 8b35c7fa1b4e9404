"""The walk through a program's jaxpr: what communicates, in which loops and branches, on what these depend."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.extract import _loops
from peerax.extract._equations import (
    OPAQUE,
    PASS_ON,
    Communication,
    as_ours,
    axes_indexed,
    collective_name,
    is_message,
    operand_types,
    pairs_of,
    site_of,
    sums_last,
)
from peerax.extract._expressions import AxisIndex, Choice, Reduced, Shard
from peerax.extract._orders import Order
from peerax.extract._steps import Chosen, Scope, Step
from peerax.extract._values import NOWHERE, Numbers, Parts, Value, joined, narrowed
from peerax.ops import location
from peerax.ops import reading as ops
from peerax.verifier import Collective, Exchange, Recv, Send

# Collectives whose result is the same for all members.
_SAME_FOR_ALL = (
    "psum",
    "pmax",
    "pmin",
    "all_gather",
    "pbroadcast",
    "unreduced_psum",
    "unreduced_pmax",
    "unreduced_pmin",
)
# Those of them that are computed here where the operand of each rank is known.
_COMPUTED = ("psum", "pmax", "pmin")


@dataclass
class Walk:
    """Walks through a program, and notes what it relies on.

    Args:
        order: notes which steps depend on which, where nothing but data fix their order. There are no pairs then.
        platform: the branches of lax.platform_dependent that are taken.
    """

    order: Order | None = None
    platform: str = "cpu"
    ranks: ops.Ranks | None = None
    assumptions: dict[str, None] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    communication: Communication = field(default_factory=Communication)
    _sections: int = 0
    _pair: int = -1
    _meshes: dict[tuple, ops.Ranks] = field(default_factory=dict)
    _perms: dict[tuple, tuple] = field(default_factory=dict)
    _groups: dict[tuple, tuple] = field(default_factory=dict)

    def run(self, jaxpr, consts, operands: Sequence[Value], scope: Scope, whole: bool = False):
        """Walk through a jaxpr; return its steps and results. A whole one is the body of a shard_map."""
        part, late = (jaxpr, []) if not whole or self.order is not None else sums_last(jaxpr)
        equations = part.eqns if scope.ranks is None else [as_ours(eqn, scope.ranks) for eqn in part.eqns]
        pairs = {} if self.order is not None else pairs_of(part, equations)
        receives = {receive: send for send, receive in pairs.items()}
        env: dict[Any, Value] = {}
        env.update(zip(part.constvars, map(self.numbers.constant, consts), strict=True))
        env.update(zip(part.invars, operands, strict=True))
        steps: list[Step] = []

        def read(atom):
            return self.numbers.constant(atom.val) if isinstance(atom, _jax.Literal) else env[atom]

        for i in (*sorted({*range(len(equations))} - {*late}), *late):
            eqn = equations[i]
            values = [read(v) for v in ops.uses(eqn)]
            if i in pairs:
                steps.append(self._exchange(eqn, equations[pairs[i]], scope))
                results = self._message_results(eqn, values)
            elif i in receives:
                results = self._message_results(eqn, values)
            else:
                results = self._step(eqn, values, scope, steps)
            if self.order is not None:
                results = self.order.note(eqn, values, results, steps)
            if scope.typed:
                results = [narrowed(x, v.aval) for x, v in zip(results, eqn.outvars, strict=True)]
            env.update(zip(eqn.outvars, results, strict=True))
        return steps, [read(v) for v in part.outvars]

    def _step(self, eqn, values: list[Value], scope: Scope, steps: list[Step]) -> list[Value]:
        name = eqn.primitive.name
        if is_message(eqn):
            steps.append(self._message(eqn, scope))
            return self._message_results(eqn, values)
        if name == "axis_index":
            return [self._axis_index(eqn, scope)]
        if ops.is_collective(eqn):
            return self._collective(eqn, values, scope, steps)
        if eqn.primitive is ops.link_p:
            return values[:1]
        if eqn.primitive is ops.order_p or name in PASS_ON:
            return values[: len(eqn.outvars)]
        if name == "shard_map":
            return self._shard_map(eqn, values, scope, steps)
        if self.communication.within(eqn):
            return self._structure(eqn, values, scope, steps)
        return self._silent(eqn, values, scope, steps)

    def _structure(self, eqn, values, scope, steps) -> list[Value]:
        """Something that has communication inside."""
        rule = {"scan": _loops.scan, "while": _loops.while_loop, "cond": _cond}.get(eqn.primitive.name)
        if rule is not None:
            return rule(self, eqn, values, scope, steps)
        if eqn.primitive.name == "custom_linear_solve":
            return self._linear_solve(eqn, values, scope, steps)
        jaxpr = ops.call_of(eqn)
        if jaxpr is None:
            raise PeeraxError.of(
                "PX107",
                f"psend, precv or a collective inside {eqn.primitive.name} is not supported",
                locations=(site_of(eqn),),
            )
        inside, results = self.run(*_jax.open_jaxpr(jaxpr), values, scope)
        steps += inside
        return results

    def _silent(self, eqn, values, scope, steps) -> list[Value]:
        """Something that does not communicate."""
        name = eqn.primitive.name
        if name in OPAQUE or self.communication.opaque_within(eqn):
            file, line = site_of(eqn)
            self.assumptions[f"{name} at {file}:{line} does not communicate, and waits for no other rank"] = None
            axes, doubtful = joined(values)
            return [Value(self.numbers.new(), axes, doubtful | scope.axes) for _ in eqn.outvars]
        if (jaxpr := ops.call_of(eqn)) is not None:
            return self.run(*_jax.open_jaxpr(jaxpr), values, scope)[1]
        if _jax.has_effects(eqn):  # it reads and writes what no equation shows
            axes, doubtful = joined(values)
            return [Value(self.numbers.new(), axes, doubtful | scope.axes) for _ in eqn.outvars]
        known = [value.expression is not None for value in values]
        if not all(known) and ((name == "scan" and any(known)) or (name == "cond" and known[0])):
            return self._structure(eqn, values, scope, [])  # some results may be known
        indexed = self.communication.indexed_within(eqn)
        here = (scope.ranks, indexed) if indexed else ()
        return self.numbers.results(eqn, values, here)

    # Messages and collectives.

    def _message(self, eqn, scope: Scope) -> Send | Recv:
        kind = Send if eqn.primitive is ops.psend_p else Recv
        return kind(*self._common(eqn, scope), location(eqn.params["site"]), **self._named(eqn, scope))

    def _exchange(self, send, receive, scope: Scope) -> Exchange:
        self._pair += 1
        lines = location(send.params["site"]), location(receive.params["site"])
        return Exchange(*self._common(send, scope), *lines, self._pair, **self._named(send, scope))

    def _common(self, eqn, scope: Scope) -> tuple[tuple, tuple[str, ...]]:
        key = scope.section, eqn.params["axes"], eqn.params["perm"]
        if key not in self._perms:  # one object for what is equal: programs are long
            destination, _ = scope.ranks.ends(*key[1:])
            self._perms[key] = tuple((s, d) for s, d in enumerate(destination) if d >= 0)
        return self._perms[key], eqn.params["types"]

    def _named(self, eqn, scope: Scope) -> dict[str, Any]:
        path = eqn.params["path"]
        if scope.section > 1:
            path = f"{scope.section}:{path}"
        return {"tag": eqn.params["tag"], "path": path, "axes": tuple(map(str, eqn.params["axes"]))}

    def _message_results(self, eqn, values: list[Value]) -> list[Value]:
        axes, doubtful = joined(values)
        axes |= frozenset(eqn.params["axes"])
        return [Value(self.numbers.new(), axes, doubtful) for _ in eqn.outvars]

    def _collective(self, eqn, values, scope: Scope, steps: list[Step]) -> list[Value]:
        axes = ops.axes_of(eqn)
        groups = eqn.params.get("axis_index_groups")
        key = scope.section, axes, None if groups is None else tuple(map(tuple, groups))
        if key not in self._groups:
            members: dict[int, list[int]] = {}
            for rank, number in enumerate(scope.ranks.groups(*key[1:])):
                members.setdefault(number, []).append(rank)
            self._groups[key] = tuple(map(tuple, members.values()))
        steps.append(
            Collective(collective_name(eqn), self._groups[key], operand_types(eqn), site_of(eqn), tuple(map(str, axes)))
        )
        differing, doubtful = joined(values)
        if eqn.primitive.name.removesuffix("_invariant") in _SAME_FOR_ALL and groups is None:
            differing, doubtful = differing - set(axes), doubtful - set(axes)
            first = self.numbers.of(eqn.primitive, scope.ranks, axes, tuple(value.number for value in values))
            return [
                Value(self.numbers.of("result", first, i), differing, doubtful, _reduced(eqn, axes, value, scope))
                for i, value in enumerate(values[: len(eqn.outvars)])
            ]
        return [Value(self.numbers.new(), differing | set(axes), doubtful) for _ in eqn.outvars]

    def _axis_index(self, eqn, scope: Scope) -> Value:
        axes = axes_indexed(eqn)
        return Value(self.numbers.of("axis_index", scope.ranks, axes), frozenset(axes), expression=AxisIndex(axes))

    # Structure.

    def _shard_map(self, eqn, values, scope: Scope, steps) -> list[Value]:
        jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])
        new, typed = _jax.shard_map_axes(eqn.params), eqn.params["check_vma"]
        mesh = eqn.params["mesh"]
        sizes = tuple(mesh.shape.items())
        outermost = scope.ranks is None
        if outermost:
            # One object for equal meshes, since it tells values of different ones apart.
            ranks = self._meshes.setdefault(sizes, ops.Ranks(mesh.axis_names, tuple(mesh.shape.values())))
            if self.ranks is not None and ranks.size != self.ranks.size:
                raise ValueError(f"the program has shard_maps over {self.ranks.size} and over {ranks.size} ranks")
            self.ranks = ranks if self.ranks is None else self.ranks
            self._sections += 1
            inner = replace(scope, ranks=ranks, axes=new, typed=typed, section=self._sections)
        else:
            inner = replace(scope, axes=scope.axes | new, typed=typed)
        specs = zip(values, map(_split, eqn.params["in_specs"]), strict=True)
        operands = [self._part(value, split, sizes) for value, split in specs]
        inside, results = self.run(jaxpr, consts, operands, inner, whole=outermost)
        steps += inside
        if outermost and scope.loops and self.order is None:
            # peerax sees to it that a message is received in the iteration in which it is sent: ranks end together.
            everyone = (tuple(range(self.ranks.size)),)
            steps.append(Collective("shard_map", everyone, (), site_of(eqn)))
        specs = zip(results, map(_split, eqn.params["out_specs"]), strict=True)
        return [self._put_together(value, split, sizes, new) for value, split in specs]

    def _part(self, value: Value, split: tuple[tuple, ...], sizes: tuple) -> Value:
        """A rank's part of an operand."""
        if value.parts is not None and (value.parts.mesh, value.parts.axes) == (sizes, split):
            return value.parts.value
        # What nobody can say of the axes of one mesh, nobody can say of those of another.
        doubtful = frozenset(name for name, _ in sizes) if value.doubtful else NOWHERE
        if not split:
            return Value(value.number, value.axes, doubtful, value.expression, value.behind)
        expression = None if value.expression is None else Shard((value.expression,), split)
        number = self.numbers.of("part", value.number, sizes, split)
        return Value(number, value.axes.union(*split), doubtful, expression, value.behind)

    def _put_together(self, value: Value, split: tuple[tuple, ...], sizes: tuple, axes: frozenset) -> Value:
        """A result, of all ranks together. What differs, and is said not to, may be any rank's."""
        names = NOWHERE.union(*split)
        doubtful = (value.doubtful | value.axes & axes) - names
        known = value.expression is not None and not names and not value.axes
        return Value(
            value.number if known else self.numbers.new(),
            value.axes - axes,
            doubtful,
            value.expression if known else None,
            value.behind,
            Parts(sizes, split, value) if value.axes & axes <= names else None,
        )

    def _linear_solve(self, eqn, values, scope, steps) -> list[Value]:
        lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
        before = lengths.matvec + lengths.vecmat
        operands = [*values[before : before + lengths.solve], *values[sum(lengths) :]]
        inside, results = self.run(*_jax.open_jaxpr(jaxprs.solve), operands, scope)
        steps += inside
        return results


def _reduced(eqn, axes: tuple, value: Value, scope: Scope) -> Reduced | None:
    """The value of a reduction of what is known of all ranks."""
    name = eqn.primitive.name.removesuffix("_invariant")
    if value.expression is None or name not in _COMPUTED:
        return None
    if not scope.apart.isdisjoint(axes):  # it may meet one of another branch, with another operand
        return None
    return Reduced((value.expression,), name, axes)


def _split(spec) -> tuple[tuple, ...]:
    """For each dimension of a spec, up to the last one that is split, the axes that it is split along."""
    axes = [() if names is None else names if isinstance(names, tuple) else (names,) for names in spec]
    while axes and not axes[-1]:
        axes.pop()
    return tuple(axes)


def _cond(walk: Walk, eqn, values, scope: Scope, steps) -> list[Value]:
    selector, *operands = values
    branches = [_jax.open_jaxpr(branch) for branch in eqn.params["branches"]]
    platforms = eqn.params.get("branches_platforms")
    if platforms is not None:
        chosen = [
            branch for branch, names in zip(branches, platforms, strict=True) if names is None or walk.platform in names
        ]
        inside, results = walk.run(*chosen[0], operands, scope)
        steps += inside
        file, line = site_of(eqn)
        walk.assumptions[f"the branch for {walk.platform} is taken at {file}:{line}"] = None
        return results
    inner = replace(scope, apart=scope.apart | selector.axes | selector.doubtful)
    walked = [walk.run(*branch, operands, inner) for branch in branches]
    steps.append(Chosen(selector, [inside for inside, _ in walked], site_of(eqn), scope.ranks))
    return [_choice(walk, selector, options) for options in zip(*(results for _, results in walked), strict=True)]


def _choice(walk: Walk, selector: Value, options: Sequence[Value]) -> Value:
    """A result of a branch."""
    expressions = tuple(value.expression for value in (selector, *options))
    return Value(
        walk.numbers.new(), *joined([selector, *options]), None if None in expressions else Choice(expressions)
    )
