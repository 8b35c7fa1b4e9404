"""What is put around a step inside the shard_map, before its loss is transformed: loops, branches, rules, calls.

Where a function sends or receives itself, its ppermute version follows it.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
from jax import lax

import peerax
from tests.transformations.programs import chain, pair, separate, varying


def scan(step, w, x):
    return lax.scan(lambda c, s: (step(w * s, c), c), x, jnp.array([1.0, 0.5, 2.0]))[0]


def scan_reversed_and_stacked(step, w, x):
    return lax.scan(lambda c, s: (step(w, c * s), c * s), x, jnp.array([1.0, 0.5, 2.0]), reverse=True)[1].sum(0)


def scan_of_weights(step, w, x):
    return lax.scan(lambda c, w: (step(w, c), None), x, jnp.stack([w, w * 0.5]), unroll=2)[0]


def checkpointed_scan(step, w, x):
    return lax.scan(jax.checkpoint(lambda c, _: (step(w, c), None)), x, None, length=2)[0]


def while_loop(step, w, x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(w, s[1])), (0, x))[1]


def fori_loop(step, w, x):
    return lax.fori_loop(0, 3, lambda i, c: step(w * (i + 1).astype(w.dtype), c), x)


def cond(step, w, x):
    """Taken by all ranks or by none."""

    def again(y):
        return lax.cond(lax.psum(y.sum(), "x") < 1e6, functools.partial(step, w), lambda y: y * 2, y)

    return lax.cond(lax.psum(x.sum(), "x") > 1e6, functools.partial(step, w), again, x)


def switch(step, w, x):
    branches = [lambda w, x: x, step, lambda w, x: step(w, step(w, x))]
    return lax.switch(lax.axis_size("x") % 2 + 1, branches, w, x)


def while_by_weights(step, w, x):
    """Runs longer for some examples of a batch of weights than for others."""
    end = jnp.where(w[0, 0] > 0, 3, 2)
    return lax.while_loop(lambda s: s[0] < end, lambda s: (s[0] + 1, step(w, s[1])), (0, x))[1]


def cond_by_weights(step, w, x):
    return lax.cond(w[0, 0] > 0, step, lambda w, x: step(w * 2, x) + x, w, x)


def nested_jit(step, w, x):
    f = jax.jit(step)
    return f(w, jax.jit(lambda w, x: f(w, x) * 2)(w, x))


def custom_vjp(step, w, x):
    """A rule of the user's, which sends itself."""
    f = jax.custom_vjp(step)
    f.defvjp(
        lambda w, x: (step(w, x), w),
        lambda w, y_bar: (w * lax.psum(y_bar.sum(), "x"), step(w, y_bar)),
    )
    return f(w, f(w, x))


def custom_jvp(exchange, step, w, x):
    """A rule of the user's, which communicates itself."""
    f = jax.custom_jvp(step)

    @f.defjvp
    def rule(primals, tangents):
        (w, x), (w_dot, x_dot) = primals, tangents
        return step(w, x), exchange(x_dot, "x", [(0, 2), (1, 0)]) + x @ w_dot

    return f(w, f(w, x))


custom_jvp_with_pair = functools.partial(custom_jvp, pair)
custom_jvp_permuted = functools.partial(custom_jvp, lax.ppermute)


def linear_solve(halo, step, w, x):
    """A few iterations; the product sends along a chain, its transpose back."""

    def product(v):
        return v + halo(v / 4, "x", chain())

    def solve(matvec, b):
        return lax.fori_loop(0, 4, lambda _, v: v + (b - matvec(v)), b)

    return step(w, lax.custom_linear_solve(product, x, solve, transpose_solve=solve))


solve_with_pair = functools.partial(linear_solve, pair)
solve_with_separate = functools.partial(linear_solve, separate)
solve_permuted = functools.partial(linear_solve, lax.ppermute)


def tokens_in_carries(step, w, x):
    """The token of each iteration goes through the carry, and order ties it to what came."""

    def tick(carry, _):
        token, y = carry
        y = step(w, y)
        token, y = peerax.order(peerax.psend(y, "x", [(0, 1)], token=token, tag=9), y)
        return (token, y + peerax.precv(token, y, "x", [(0, 1)], tag=9)), None

    return lax.scan(tick, (varying(peerax.create_token()), x), None, length=3)[0][1]


def tokens_in_carries_permuted(step, w, x):
    def tick(y, _):
        y = step(w, y)
        return y + lax.ppermute(y, "x", [(0, 1)]), None

    return lax.scan(tick, x, None, length=3)[0]


def rank_dependent_switch(step, w, x):
    """Rank 0 sends in its branch, what rank 1 receives in another."""
    branches = [
        lambda y: y + 0 * peerax.psend(y * 2, "x", [(0, 1)], tag=9)[0],
        lambda y: y * peerax.precv(peerax.create_token(), y, "x", [(0, 1)], tag=9),
        lambda y: y,
    ]
    return lax.switch(jnp.minimum(lax.axis_index("x"), 2), branches, step(w, x))


def rank_dependent_switch_permuted(step, w, x):
    y = step(w, x)
    came = lax.ppermute(y * 2, "x", [(0, 1)])
    return jnp.where(lax.axis_index("x") == 1, y * came, y)


def sends_in_one_branch(step, w, x):
    """A cond whose branches send and receive, around a step that all ranks take."""

    def sends(y):
        peerax.psend(y * y, "x", [(2, 0)], tag=9)
        return y

    def receives(y):
        return lax.cond(
            lax.axis_index("x") == 0,
            lambda y: y - peerax.precv(peerax.create_token(), y, "x", [(2, 0)], tag=9),
            lambda y: y,
            y,
        )

    return step(w, lax.cond(lax.axis_index("x") == 2, sends, receives, x))


def sends_in_one_branch_permuted(step, w, x):
    return step(w, x - lax.ppermute(x * x, "x", [(2, 0)]))


# Each policy of jax.checkpoint that needs no names.
POLICIES = {
    name: policy
    for name, policy in vars(jax.checkpoint_policies).items()
    if any(p.kind == p.VAR_KEYWORD for p in inspect.signature(policy).parameters.values())
}
POLICIES = {policy: name for name, policy in POLICIES.items()}  # some have two names
POLICIES = {name: policy for policy, name in POLICIES.items()}
POLICIES["offload_dots"] = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
POLICIES["both"] = jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.nothing_saveable
)


def checkpoint(policy, step, w, x):
    return jax.checkpoint(step, policy=policy)(w, x)


def once(step, w, x):
    return step(w, x)
