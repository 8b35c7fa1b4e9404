"""Programs from several threads at once; one of them fails all the time, on the channels of the others."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rig import (
    RANKS,
    check_nothing_left,
    check_shifted,
    exchange,
    failure,
    lone_receive,
    lone_send,
    numbers,
    on_ranks,
    permute,
    shifted,
)

ROUNDS = 100
errors = []


def thread(function, *args):
    def run():
        try:
            function(*args)
        except BaseException as error:
            errors.append(error)
            raise

    return threading.Thread(target=run)


def same_program(seed):
    """All of these threads call one compiled function, with values of their own."""
    inputs = [numbers(RANKS, 50, seed=1000 * seed + i) for i in range(ROUNDS)]
    outputs = [shifted(x) for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        check_shifted(x, y)


def rotate(x, perm, move):
    return lax.fori_loop(0, 5, lambda _, x: jnp.tanh(move(x, perm) @ jnp.ones((40, 40)) / 40), x)


def own_program(x, perm, wanted):
    run = on_ranks(lambda x: rotate(x, perm, exchange))
    for _ in range(ROUNDS):
        np.testing.assert_array_equal(run(x), wanted)


def failing():
    x = 1e9 * jnp.ones((RANKS, 50))
    for i in range(ROUNDS):
        program, code = (lone_receive, "PX202") if i % 2 else (lone_send, "PX201")
        text = failure(lambda program=program: program(x))
        assert code in text, text


threads = [thread(same_program, 1), thread(same_program, 2), thread(failing)]
for shift in (1, 3):
    x, perm = numbers(RANKS, 40, seed=shift), [(i, (i + shift) % RANKS) for i in range(RANKS)]
    wanted = jax.device_get(on_ranks(lambda x, perm=perm: rotate(x, perm, permute))(x))
    threads.append(thread(own_program, x, perm, wanted))
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not errors, errors
jax.block_until_ready(shifted(numbers(RANKS, 50)))
check_nothing_left()
