"""What must not change the verdict on a JAX program."""

from dataclasses import replace

import jax
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import peerax
from peerax.verifier import Collective, Recv, Send
from tests.extract.lowering import WRAPPERS, arguments, as_in_jax, to_function
from tests.verifier.programs import Op, Select, small_nodes
from tests.verifier.test_against_oracle import PROGRAMS

few = settings(max_examples=PROGRAMS // 50, deadline=None, suppress_health_check=list(HealthCheck))


def report(size, nodes, **options):
    return peerax.check(to_function(size, as_in_jax(nodes), **options), *arguments(size))


def codes(size, nodes, **options):
    return sorted(found.code for found in report(size, nodes, **options).diagnostics)


def change(nodes, function):
    """Apply a function to each node, the innermost first, that returns nodes in its place."""
    changed = []
    for node in nodes:
        node = node if isinstance(node, Op) else replace(node, nodes=change(node.nodes, function))
        changed += function(node)
    return tuple(changed)


@few
@given(small_nodes(), st.randoms(use_true_random=False))
def test_new_numbers_for_the_ranks(made, random):  # P-4
    size, nodes = made
    number = random.sample(range(size), size)

    def renumber(node):
        if isinstance(node, Op):
            operation = node.operation
            if isinstance(operation, Collective):
                groups = tuple(tuple(number[rank] for rank in group) for group in operation.groups)
                operation = replace(operation, groups=groups)
            else:
                operation = replace(operation, perm=tuple((number[s], number[d]) for s, d in operation.perm))
            node = Op(operation, frozenset(number[rank] for rank in node.ranks))
        elif isinstance(node, Select):
            rows = dict(zip(number, node.tables, strict=True))
            node = replace(node, tables=tuple(rows[rank] for rank in range(size)))
        return [node]

    assert report(size, change(nodes, renumber)).verdict == report(size, nodes).verdict


@few
@given(small_nodes(), st.randoms(use_true_random=False))
def test_another_order_of_the_pairs_of_a_perm(made, random):  # P-4
    size, nodes = made

    def shuffle(node):
        if isinstance(node, Op) and not isinstance(node.operation, Collective):
            perm = random.sample(node.operation.perm, len(node.operation.perm))
            node = replace(node, operation=replace(node.operation, perm=tuple(perm)))
        return [node]

    assert codes(size, change(nodes, shuffle)) == codes(size, nodes)


@few
@given(small_nodes())
def test_a_perm_in_two_operations(made):  # P-4
    size, nodes = made

    def split(node):
        if isinstance(node, Op) and isinstance(node.operation, Send | Recv) and len(node.operation.perm) == 2:
            (a, b), (c, d) = node.operation.perm
            if len({a, b, c, d}) == 4:
                return [replace(node, operation=replace(node.operation, perm=(pair,))) for pair in ((a, b), (c, d))]
        return [node]

    assert report(size, change(nodes, split)).verdict == report(size, nodes).verdict


@few
@given(small_nodes())
def test_loops_that_are_written_out(made):  # P-4
    assert codes(*made, unrolled=True) == codes(*made)


@few
@given(small_nodes(), st.integers(0, len(WRAPPERS) - 1))
def test_the_gradient(made, wrapper):  # P-7
    size, nodes = made
    assume("pmax" not in str(nodes))  # which has no gradient
    function = to_function(size, as_in_jax(nodes), wrapper)
    *values, x = arguments(size)
    loss = jax.grad(lambda x, *values: (function(*values, x) ** 2).sum())
    forward, both = peerax.check(function, *values, x), peerax.check(loss, x, *values)
    assert both.verdict == forward.verdict, f"{both}\n{forward}"
