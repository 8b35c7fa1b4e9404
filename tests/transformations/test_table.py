"""The table: every transformation of every program gives what it gives for the ppermute version, bit for bit.

TABLE is the data. A row is a transformation of the loss, or something that is put around the step inside the
shard_map and then differentiated; a column is a program. Number of ranks and check_vma go round in such a way that
each row and each column has all of them.
"""

import functools
from typing import NamedTuple

import jax
import pytest

import peerax
from tests.transformations import around, transforms
from tests.transformations.programs import STEPS, assert_same, loss, on_ranks, rows, weights


class Row(NamedTuple):
    transform: object  # of the loss
    columns: tuple
    claim: str = ""  # what the docstrings' lines call it
    around: object = around.once  # around the step
    around_permuted: object = None  # if not the same
    jit: bool = True


ALL = tuple(STEPS)
MANY = ("ring-pair", "pytree-pair", "ordered-pair", "separate", "pipeline")
SOME = ("partial-pair", "token-chain", "two-tags", "pipeline")
FEW = ("chain-pair", "two-tags", "pipeline")

TABLE = {
    "value": Row(transforms.value, ALL, "jit"),
    "no-jit": Row(transforms.grad, ("token-chain", "pipeline"), jit=False),
    "grad": Row(transforms.grad, ALL, "grad"),
    "vjp": Row(transforms.vjp, SOME, "grad"),
    "jvp": Row(transforms.jvp, ALL, "grad"),
    "jvp-rows": Row(transforms.jvp_of_rows_only, FEW, "grad"),
    "linearize": Row(transforms.linearize, SOME, "grad"),
    "jacfwd": Row(transforms.jacfwd, MANY, "grad"),
    "jacrev": Row(transforms.jacrev, SOME, "grad"),
    "hessian": Row(transforms.hessian, MANY, "grad"),
    "rev-over-rev": Row(transforms.hessian_reverse_over_reverse, SOME, "grad"),
    "rev-over-fwd": Row(transforms.hessian_reverse_over_forward, FEW, "grad"),
    "jvp-of-jvp": Row(transforms.jvp_of_jvp, FEW, "grad"),
    "grad-of-grad": Row(transforms.grad_of_grad, SOME, "grad"),
    "transposed-jvp": Row(transforms.linear_transpose_of_jvp, SOME, "grad"),
    "vmap-0": Row(transforms.vmap_leading, MANY, "vmap"),
    "vmap-last": Row(transforms.vmap_last, SOME, "vmap"),
    "vmap-weights": Row(transforms.vmap_of_weights_only, MANY, "vmap"),
    "vmap-rows": Row(transforms.vmap_of_rows_only, SOME, "vmap"),
    "vmap-nested": Row(transforms.vmap_nested, SOME, "vmap"),
    "vmap-grad": Row(transforms.vmap_of_grad, MANY, "vmap"),
    "grad-vmap": Row(transforms.grad_of_vmap, SOME, "vmap"),
    "vmap-jvp": Row(transforms.vmap_of_jvp, FEW, "vmap"),
    "vmap-while": Row(transforms.vmap_of_weights_only, FEW, "vmap", around.while_by_weights),
    "vmap-cond": Row(transforms.vmap_of_grad, FEW, "vmap", around.cond_by_weights),
    "checkpoint-outside": Row(transforms.outer_checkpoint, SOME, "grad"),
    **{
        f"checkpoint-{name}": Row(transforms.grad, FEW[1:], "grad", functools.partial(around.checkpoint, policy))
        for name, policy in around.POLICIES.items()
    },
    "checkpoint-hessian": Row(transforms.hessian, FEW, "grad", functools.partial(around.checkpoint, None)),
    "scan": Row(transforms.grad, ("ordered-pair", "token-chain", "pipeline"), "scan", around.scan),
    "scan-reversed": Row(transforms.grad, SOME, "scan", around.scan_reversed_and_stacked),
    "scan-jvp": Row(transforms.jvp, FEW, "scan", around.scan),
    "scan-of-weights": Row(transforms.grad, FEW, "scan", around.scan_of_weights),
    "scan-checkpointed": Row(transforms.grad, FEW, "scan", around.checkpointed_scan),
    "while": Row(transforms.jvp, SOME, "", around.while_loop),
    "while-jacfwd": Row(transforms.jacfwd, FEW, "", around.while_loop),
    "fori": Row(transforms.grad, SOME, "", around.fori_loop),
    "cond": Row(transforms.grad, SOME, "", around.cond),
    "switch": Row(transforms.grad, SOME, "", around.switch),
    "nested-jit": Row(transforms.grad, SOME, "jit", around.nested_jit),
    "custom-vjp": Row(transforms.grad, SOME, "", around.custom_vjp),
    "custom-jvp": Row(transforms.grad, SOME, "", around.custom_jvp_with_pair, around.custom_jvp_permuted),
    "solve-pair": Row(transforms.grad, FEW, "", around.solve_with_pair, around.solve_permuted),
    "solve-pair-jvp": Row(transforms.jvp, ("ring-pair",), "", around.solve_with_pair, around.solve_permuted),
    "solve-separate": Row(
        transforms.grad, ("ring-pair", "separate"), "", around.solve_with_separate, around.solve_permuted
    ),
    "tokens-in-carries": Row(
        transforms.grad, SOME, "scan", around.tokens_in_carries, around.tokens_in_carries_permuted
    ),
    "rank-switch": Row(transforms.grad, SOME, "", around.rank_dependent_switch, around.rank_dependent_switch_permuted),
    "rank-switch-jvp": Row(
        transforms.jvp, FEW, "", around.rank_dependent_switch, around.rank_dependent_switch_permuted
    ),
    "rank-switch-vmap": Row(
        transforms.vmap_of_grad, FEW, "", around.rank_dependent_switch, around.rank_dependent_switch_permuted
    ),
    "rank-cond": Row(transforms.grad, SOME, "", around.sends_in_one_branch, around.sends_in_one_branch_permuted),
}
# Number of ranks and check_vma go round.
CELLS = [
    pytest.param(row, column, (4, 3, 8)[(i + j) % 3], (i + j // 3) % 2 == 0, id=f"{row}-of-{column}")
    for i, row in enumerate(TABLE)
    for j, column in enumerate(TABLE[row].columns)
]


@pytest.mark.parametrize("name, column, size, check_vma", CELLS)
def test_equals_the_ppermute_version(name, column, size, check_vma):
    row = TABLE[name]
    ours, permuted = STEPS[column]
    wrappers = (row.around, row.around_permuted or row.around)
    results = []
    for wrapper, step in zip(wrappers, (ours, permuted), strict=True):
        f = on_ranks(loss(functools.partial(wrapper, step)), size, check_vma)
        run = functools.partial(row.transform, f)
        results.append((jax.jit(run) if row.jit else run)(weights(), rows(size)))
    assert_same(*results)


# The lines of the docstrings.

USES = {
    peerax.psend: ALL,
    peerax.precv: ALL,
    peerax.create_token: ("separate", "two-tags", "pipeline"),
    peerax.order: ("ordered-pair",),
}
CLAIMS = ("jit", "vmap", "grad", "scan")


@pytest.mark.parametrize("operation", USES, ids=lambda f: f.__name__)
def test_the_docstring_says_what_the_table_shows(operation):
    (line,) = [line for line in operation.__doc__.splitlines() if line.strip().startswith("Transformations:")]
    said = dict(entry.split()[:2] for entry in line.partition(":")[2].split("·"))
    rows = {claim: [row for row in TABLE.values() if row.claim == claim] for claim in CLAIMS}
    shown = {claim: any(set(row.columns) & set(USES[operation]) for row in rows[claim]) for claim in CLAIMS}
    assert said == {claim: "yes" if yes else "no" for claim, yes in shown.items()}
