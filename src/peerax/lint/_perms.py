"""PXL004 to PXL007: what is wrong with a perm."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from peerax.lint._finding import Found
from peerax.lint._names import last, names_of
from peerax.lint._operations import Operation, Source
from peerax.lint._scopes import Scope
from peerax.lint._values import Evaluation, Unknown, axis_key

_SAMPLES = 81  # as many as two parameters need to have all their values together
_FEW = 9  # samples for the number of devices alone
_ENOUGH = 4  # samples that show the mistake
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Drawn:
    """Hold what a perm is in one sample."""

    pairs: Pairs
    size: int | None  # of its axis
    of_devices: bool  # it depends on the number of devices
    devices: int
    is_constant: bool

    @property
    def outside(self) -> list[int]:
        """Return the ranks that the axis does not have."""
        ranks = [rank for pair in self.pairs for rank in pair]
        return [rank for rank in ranks if rank < 0 or (self.size is not None and rank >= self.size)]

    @property
    def twice(self) -> tuple[str, int] | None:
        """Return a role and the first rank that has it twice."""
        for role, ranks in (("source", [s for s, _ in self.pairs]), ("destination", [d for _, d in self.pairs])):
            for rank in ranks:
                if ranks.count(rank) > 1:
                    return role, rank
        return None

    @property
    def is_ring(self) -> bool:
        """Whether the pairs are one cycle over 0..n-1, for n of at least 3."""
        after = dict(self.pairs)
        rank, seen = 0, []
        while rank in after and rank not in seen:
            seen.append(rank)
            rank = after[rank]
        return len(seen) >= 3 and rank == 0 and sorted(seen) == list(range(len(self.pairs)))


def perms(source: Source) -> Iterator[Found]:
    """Find PXL004, PXL005 and PXL006."""
    for operation in source.operations:
        if operation.perm is None:
            continue
        drawn = list(_draw(source, operation))
        if not drawn:
            continue
        node, shown = _written(source, operation)
        related = () if node is operation.perm else ((operation.call.lineno, f"{operation.name} takes it here"),)
        for code, message in _faults(drawn, shown):
            yield Found(code, node, message, related)


def ring_for_chain(source: Source) -> Iterator[Found]:
    """Find PXL007: what arrives by a ring is replaced on its first or last rank."""
    for operation in source.operations:
        if operation.perm is None or operation.name == "psend":
            continue
        replaced = _is_replaced_at_an_end(source, operation)
        if replaced is None:
            continue
        drawn = list(_draw(source, operation))
        if drawn and all(d.is_ring for d in drawn if len(d.pairs) > 2) and any(d.is_ring for d in drawn):
            message = f"the perm of this {operation.name} is a ring, and what arrives at one end is replaced"
            yield Found("PXL007", operation.call, message, ((replaced.lineno, "it is replaced here"),))


def _faults(drawn: list[Drawn], shown: str) -> Iterator[tuple[str, str]]:
    """Yield the code and the message of what is wrong in every sample."""
    several = [d for d in drawn if len(d.pairs) > 1]
    if _are_enough(several) and all(d.twice for d in several):
        drawn, first = several, several[0]
        role, rank = first.twice  # type: ignore[misc]
        yield "PXL004", f"{shown}{_example(drawn)} has rank {rank} as a {role} more than once"
        return
    filled = [d for d in drawn if d.pairs]
    if not _are_enough(filled) or not all(d.outside for d in filled):
        return
    drawn, first = filled, filled[0]
    too_large = all(d.size is not None and max(d.outside) >= d.size for d in filled)
    if too_large and all(d.of_devices and d.size != d.devices for d in filled):
        axis = f"of {first.size}" if first.is_constant or len({d.size for d in filled}) == 1 else "of fewer"
        yield "PXL006", f"{shown} is made for all devices of the machine, on an axis {axis} ranks"
        return
    rank = first.outside[0]
    if rank < 0:
        yield "PXL005", f"{shown}{_example(drawn)} names rank {rank}; a negative rank does not count from the end"
    else:
        yield "PXL005", f"{shown}{_example(drawn)} names rank {rank}, and the axis has 0..{first.size - 1}"  # type: ignore[operator]


def _are_enough(drawn: list[Drawn]) -> bool:
    return len(drawn) >= (1 if drawn and drawn[0].is_constant else _ENOUGH)


def _example(drawn: list[Drawn]) -> str:
    """Return what is in a perm, if it is not written out."""
    first = next(d for d in drawn if d.pairs)
    if first.is_constant:
        return ""
    pairs = ", ".join(map(str, first.pairs[:4])) + (", ..." if len(first.pairs) > 4 else "")
    example = "" if all(d.pairs == first.pairs for d in drawn) else "for example "
    return f" ({example}[{pairs}])"


def _draw(source: Source, operation: Operation) -> Iterator[Drawn]:
    """Yield what the perm of an operation is in some samples; nothing if it cannot be told."""
    assert operation.perm is not None
    axis = None if operation.axis is None else axis_key(source.module, operation.axis, operation.scope)
    needed = 1
    for number in range(_SAMPLES):
        if number >= needed:
            return
        sample = source.sample(number, operation.scope)
        try:
            value = Evaluation(source.module, sample).value(operation.perm, operation.scope)
            is_perm = _is_perm(value)
        except Unknown:
            is_perm = False
        if sample.used_devices or sample.used_free:
            needed = max(needed, _FEW, sample.combinations)
        if not is_perm:
            continue
        of_devices, is_constant = sample.used_devices, not (sample.used_devices or sample.used_free)
        size = None
        if axis is not None:
            size = source.meshes.size(axis, operation.scope, sample)
            size = sample.chosen_size(axis) if size is None else size
        yield Drawn(value, size, of_devices, sample.devices, is_constant)


def _is_perm(value) -> bool:
    if not isinstance(value, tuple):
        return False
    return all(isinstance(pair, tuple) and len(pair) == 2 and all(type(rank) is int for rank in pair) for pair in value)


def _written(source: Source, operation: Operation) -> tuple[ast.expr, str]:
    """Return where a perm is written, and how to speak of it."""
    assert operation.perm is not None
    expression, _ = source.module.value_of(operation.perm, operation.scope)
    named = isinstance(operation.perm, ast.Name) and expression is not operation.perm
    return expression, f"the perm {operation.perm.id}" if named else "the perm"  # type: ignore[attr-defined]


def _is_replaced_at_an_end(source: Source, operation: Operation) -> ast.expr | None:
    """Return the where() that replaces what an operation returns, if its condition asks for rank 0 or the last."""
    module = source.module
    arrived: list[tuple[ast.expr, Scope]] = [(operation.call, operation.scope)]
    parent = module.parents[operation.call]
    if isinstance(parent, ast.Assign):
        for target in parent.targets:
            if isinstance(target, ast.Name):
                for binding in module.resolve(target.id, operation.scope):
                    if binding.node is parent:
                        arrived += module.loads_of(binding)
    for node, scope in arrived:
        where = module.parents[node]
        if not isinstance(where, ast.Call) or len(where.args) != 3 or node not in where.args[1:]:
            continue
        names = frozenset(map(last, names_of(module, where.func, scope)))
        if names & {"where", "select"} and _asks_for_an_end(source, where.args[0], scope):
            return where
    return None


def _asks_for_an_end(source: Source, test: ast.expr, scope: Scope) -> bool:
    """Whether an expression compares the rank with 0 or with size - 1."""
    test, scope = source.module.value_of(test, scope)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return False
    end = test.comparators[0]
    at_end = isinstance(end, ast.Constant) and end.value == 0
    at_end = at_end or (isinstance(end, ast.BinOp) and isinstance(end.op, ast.Sub))
    rank, scope = source.module.value_of(test.left, scope)
    return at_end and isinstance(rank, ast.Call) and "jax.lax.axis_index" in names_of(source.module, rank.func, scope)
