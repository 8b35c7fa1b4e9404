"""Donated arguments: memory that XLA uses again as soon as it may, while it is lent to another rank."""

import jax.numpy as jnp
from rig import RANKS, assert_same, check_nothing_left, exchange, numbers, on_ranks, permute, receive, send

ROUNDS = 100
WORDS = 300_000  # more than a megabyte: lent, not copied


def ours(x):
    y = exchange(x)
    x = x.at[:, ::2].multiply(2)  # in place, right after the exchange
    send(x)
    x = x.at[:, 1::2].add(1)
    return jnp.where(receive(x) > y, x, y) / 2


def theirs(x):
    y = permute(x)
    x = x.at[:, ::2].multiply(2)
    z = permute(x, [(i, i + 1) for i in range(RANKS - 1)])
    x = x.at[:, 1::2].add(1)
    return jnp.where(z > y, x, y) / 2


ours, theirs = on_ranks(ours, donate_argnums=0), on_ranks(theirs, donate_argnums=0)
x, y = numbers(RANKS, WORDS), numbers(RANKS, WORDS)
x, y = ours(x), theirs(y)  # placed on the devices now, so that there is something to donate
for _ in range(ROUNDS):
    before = x
    x, y = ours(x), theirs(y)
    assert before.is_deleted()
assert_same(x, y)
check_nothing_left()
