"""PXL010 and PXL011: what is taken for a rank, and collectives in branches that depend on one."""

import textwrap

import pytest

from tests.lint.linted import found

SELECT = """
def select_on_first_device(a, b):
    is_first_device = {test}
    return jnp.where(is_first_device, a, b)

{use}
"""
INSIDE = "on_ranks(lambda a, b: select_on_first_device(a, b))(1, 2)"


@pytest.mark.parametrize(
    "test",
    [
        'lax.broadcasted_iota("int32", a.shape, 0) == 0',
        'jax.lax.broadcasted_iota("int32", a.shape, dimension=0) == 4 - 1',
        "lax.iota(jnp.int32, a.shape[0]) != 0",
        "jnp.arange(a.shape[0]) == 0",
    ],
)
def test_iota_as_rank(test):
    assert found(SELECT.format(test=test, use=INSIDE), "PXL010") == [("PXL010", 3)]


@pytest.mark.parametrize(
    ("test", "use"),
    [
        ('lax.axis_index("x") == 0', INSIDE),
        ('lax.broadcasted_iota("int32", a.shape, 1) == 0', INSIDE),
        ('lax.broadcasted_iota("int32", a.shape, 0) < 2', INSIDE),
        ('lax.broadcasted_iota("int32", a.shape, 0) == 0', "jax.jit(select_on_first_device)(1, 2)"),  # whole arrays
        ('lax.broadcasted_iota("int32", a.shape, 0) == 0', ""),
    ],
)
def test_no_iota_as_rank(test, use):
    assert found(SELECT.format(test=test, use=use), "PXL010") == []


def test_an_iota_that_nobody_calls_a_rank():
    text = """
    @on_ranks
    def f(a):
        is_first_row = lax.broadcasted_iota("int32", a.shape, 0) == 0
        return jnp.where(is_first_row, 0, a)
    """
    assert found(text, "PXL010") == []


BRANCH = """
@on_ranks
def f(x):
    rank = lax.axis_index("x")
{body}
"""


def in_branch(body):
    return found(BRANCH.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")), "PXL011")


@pytest.mark.parametrize(
    "body",
    [
        'return lax.cond(rank == 0, lambda x: lax.psum(x, "x"), lambda x: x, x)',
        'return lax.cond(rank == 0, lambda x: x, lambda x: lax.ppermute(x, "x", right), x)',
        'return lax.cond(pred=rank == 0, true_fun=lambda x: lax.psum(x, "x"), false_fun=lambda x: x, operand=x)',
        'return lax.switch(rank, [lambda x: x, lambda x: lax.all_gather(x, "x")], x)',
        'return lax.switch(index=rank, branches=(lambda x: lax.psum(x, "x"), lambda x: x), operands=(x,))',
        'return lax.cond(rank == 0, lambda x: lax.psum(x, "x"), jnp.zeros_like, x)',
        'return lax.cond((rank % 2).astype(bool), lambda x: lax.pmean(x, ("x", "y")), lambda x: x, x)',
        'return lax.cond(jnp.logical_and(rank > 0, True), lambda x: lax.psum(x, "x"), lambda x: x, x)',
        'return lax.cond(lax.ppermute(rank, "x", right) == 0, lambda x: lax.psum(x, "x"), lambda x: x, x)',
    ],
)
def test_collective_in_a_branch(body):
    assert in_branch(body) == [("PXL011", 5)]


@pytest.mark.parametrize(
    "body",
    [
        'return lax.cond(x.sum() > 0, lambda x: lax.psum(x, "x"), lambda x: x, x)',
        'return lax.cond(rank == 0, lambda x: x + 1, lambda x: x, lax.psum(x, "x"))',
        'return lax.cond(rank == 0, lambda x: lax.psum(x, "y"), lambda x: x, x)',
        'return lax.cond(lax.psum(rank, "x") == 0, lambda x: lax.psum(x, "x"), lambda x: x, x)',
        'return lax.cond(rank == 0, lambda x: x * lax.psum(1, "x"), lambda x: x, x)',
        'return lax.cond(rank == 0, lambda x: peerax.psend(x, "x", right), lambda x: peerax.create_token(), x)',
        'return lax.cond(rank == 0, lambda x: x * lax.axis_size("x"), lambda x: x, x)',
        "return lax.cond(rank.shape == x.shape, lambda x: x, lambda x: x, x)",
        'return lax.cond(other(x), lambda x: lax.psum(x, "x"), lambda x: x, x)',
        'return lax.cond(rank == 0, lambda x: lax.psum(2 * x, "x"), lambda x: lax.psum(x, "x"), x)',
        'return lax.cond(rank == 0, lambda x: lax.psum(x, "x"), elsewhere, x)',
        "return lax.cond(rank == 0, jnp.zeros_like, jnp.ones_like, x)",
        "return lax.switch(rank, made_elsewhere, x)",
        "def f(x):\n    if KIND:\n        x = lax.psum(x, 'x')\n    return x\nlax.cond(rank == 0, f, lambda x: x, x)",
    ],
)
def test_no_collective_in_a_branch(body):
    assert in_branch(body) == []


def test_branches_with_other_collectives():
    body = 'return lax.cond(rank == 0, lambda x: lax.psum(x, "x"), lambda x: lax.pmax(x, "x"), x)'
    assert in_branch(body) == [("PXL011", 5), ("PXL011", 5)]
    twice = 'return lax.cond(rank == 0, lambda x: lax.psum(lax.psum(x, "x"), "x"), lambda x: lax.psum(x, "x"), x)'
    assert in_branch(twice) == [("PXL011", 5)] * 3


def test_through_functions():
    text = """
    def is_first(axis):
        return lax.axis_index("x") == 0

    def mean(x):
        return lax.pmean(x, "x")

    def loss(x):
        return mean(x) + mean(2 * x)

    @on_ranks
    def f(x):
        first = is_first("x")
        return lax.cond(first, loss, lambda x: x, x)
    """
    assert found(text, "PXL011") == [("PXL011", 6)]


def test_axes_as_parameters():
    text = """
    def f(x, axis, other):
        return lax.cond(lax.axis_index(axis) == 0, lambda x: lax.psum(x, {over}), lambda x: x, x)
    """
    assert found(text.format(over="axis"), "PXL011") == [("PXL011", 3)]
    assert found(text.format(over="other"), "PXL011") == []


def test_processes():
    head = "import jax\nfrom jax.experimental import multihost_utils as mu\n"
    text = head + "if jax.process_index() == 0:\n    mu.sync_global_devices('saved')\n"
    assert found(text, "PXL011", prelude="") == [("PXL011", 4)]
    for rest in (
        "if jax.process_count() > 1:\n    mu.sync_global_devices('saved')\n",
        "mu.broadcast_one_to_all(1, is_source=jax.process_index() == 0)\n",
        "if jax.process_index() == 0:\n    print(1)\nmu.sync_global_devices('saved')\n",
        "if jax.process_index() == 0:\n    x = mu.broadcast_one_to_all(1)\nelse:\n    x = mu.broadcast_one_to_all(0)\n",
        "x = mu.broadcast_one_to_all(jax.process_index())\nif x:\n    mu.sync_global_devices('saved')\n",
        "if jax.process_index() == 0:\n    def later():\n        mu.sync_global_devices('saved')\n",
    ):
        assert found(head + rest, "PXL011", prelude="") == [], rest
