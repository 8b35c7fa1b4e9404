"""Transformations of a loss, which is a function f of weights and rows: the rows of the table."""

import functools

import jax
import jax.numpy as jnp


def value(f, w, x):
    return f(w, x)


def grad(f, w, x):
    return jax.value_and_grad(f, argnums=(0, 1))(w, x)


def vjp(f, w, x):
    y, back = jax.vjp(f, w, x)
    return y, back(y * 2), back(jnp.ones_like(y))


def jvp(f, w, x):
    return jax.jvp(f, (w, x), (w * 2, x - 1))


def jvp_of_rows_only(f, w, x):
    return jax.jvp(functools.partial(f, w), (x,), (x - 1,))


def linearize(f, w, x):
    y, forward = jax.linearize(f, w, x)
    return y, forward(w, x), forward(w * 0, x - 1)


def jacfwd(f, w, x):
    return jax.jacfwd(f)(w, x)


def jacrev(f, w, x):
    return jax.jacrev(f, argnums=(0, 1))(w, x)


def hessian(f, w, x):
    return jax.hessian(f)(w, x)


def hessian_reverse_over_reverse(f, w, x):
    return jax.jacrev(jax.jacrev(f))(w, x)


def hessian_reverse_over_forward(f, w, x):
    return jax.jacrev(jax.jacfwd(f))(w, x)


def jvp_of_jvp(f, w, x):
    def once(w, x):
        return jax.jvp(f, (w, x), (w, x))[1]

    return jax.jvp(once, (w, x), (w * 2, x - 1))


def grad_of_grad(f, w, x):
    def scaled(s):
        return f(w * s, x * s)

    return jax.grad(jax.grad(scaled))(1.0)


def linear_transpose_of_jvp(f, w, x):
    def forward(w_dot, x_dot):
        return jax.jvp(f, (w, x), (w_dot, x_dot))[1]

    return jax.linear_transpose(forward, w, x)(jnp.float32(2.0))


def vmap_leading(f, w, x):
    return jax.vmap(f)(jnp.stack([w, w + 1]), jnp.stack([x, x * 2]))


def vmap_last(f, w, x):
    return jax.vmap(f, in_axes=(2, 1))(jnp.stack([w, w + 1, w * 2], 2), jnp.stack([x, x * 2, x], 1))


def vmap_of_weights_only(f, w, x):
    return jax.vmap(f, in_axes=(-1, None))(jnp.stack([w, w + 1, w * 2], -1), x)


def vmap_of_rows_only(f, w, x):
    return jax.vmap(f, in_axes=(None, 0))(w, jnp.stack([x, x * 2]))


def vmap_nested(f, w, x):
    inner = jax.vmap(f, in_axes=(None, 1))
    return jax.vmap(inner, in_axes=(0, None))(jnp.stack([w, w + 1]), jnp.stack([x, x * 2, x + 1], 1))


def vmap_of_grad(f, w, x):
    return jax.vmap(jax.grad(f, argnums=(0, 1)), in_axes=(0, None))(jnp.stack([w, w + 1]), x)


def grad_of_vmap(f, w, x):
    batched = jax.vmap(f, in_axes=(None, 0))
    return jax.grad(lambda w, x: batched(w, jnp.stack([x, x * 2])).sum(), argnums=(0, 1))(w, x)


def vmap_of_jvp(f, w, x):
    return jax.vmap(lambda w_dot: jax.jvp(f, (w, x), (w_dot, x)))(jnp.stack([w, w + 1]))


def outer_checkpoint(f, w, x):
    return jax.value_and_grad(jax.checkpoint(f))(w, x)
