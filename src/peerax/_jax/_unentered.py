"""Loops, branches and calls that JAX would leave as they are while what is inside must be differentiated or batched.

JAX does not enter them when none of their operands is. Here they get one operand more that always is, a mark, and the
tokens that are made inside depend on it. A loop carries its mark on, so that JAX sees no two steps alike and moves
nothing out of it that receives another message each time.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core
from jax._src.interpreters import ad, batching, partial_eval
from jax._src.util import weakref_lru_cache

from peerax._jax._differentiation import (
    AlwaysDifferentiated,
    is_to_be_transposed,
    operands_here,
    operands_of_body,
    primals_of,
)
from peerax._jax._jaxprs import equation_context, in_three, is_jaxpr, jaxprs_in, open_jaxpr, rebind, scan_counts

_CALLS = ("jit", "closed_call", "eval_jaxpr")
_CHECKPOINTS = ("remat2", "checkpoint")


def enter_if(condition: Callable[[Any], bool], link: AlwaysDifferentiated) -> None:
    """Enter what has a jaxpr that meets a condition. The tokens made in there are results of link, as is the mark."""
    rules = {"scan": _scan, "while": _while, "cond": _cond}
    rules |= dict.fromkeys(_CALLS, _call) | dict.fromkeys(_CHECKPOINTS, _checkpoint)

    def wrap(process_primitive: Callable, takes_part: Callable[[Any, Any], bool]) -> Callable:
        @functools.wraps(process_primitive)
        def process(self, primitive, args, params, /):
            rule = rules.get(primitive.name)
            if rule is None or "branches_platforms" in params or not any(map(condition, jaxprs_in(params))):
                return process_primitive(self, primitive, args, params)
            params = {name: _link_to_all(param, link) for name, param in params.items()}
            if primitive.name in _CHECKPOINTS and isinstance(self, partial_eval.JaxprTrace) and is_to_be_transposed():
                # JAX would take its jaxpr apart, and enter nothing in it. There are no values to compute once more.
                with core.set_current_trace(self):
                    return core.eval_jaxpr(params["jaxpr"], (), *args)
            if _sees_steps_alike(primitive, params) or not any(takes_part(self, x) for x in args):
                with core.set_current_trace(self):
                    # A value must depend on values, lest it is taken out of a loop, and not on tangents.
                    differentiated = takes_part is _is_differentiated
                    operands = [*primals_of(self, link), *operands_of_body()] if differentiated else operands_here(link)
                    mark = link.bind(np.zeros(1, np.float32), *operands, complete=True)
                    if takes_part(self, mark):  # not under a vmap around the shard_map, if that has nothing batched
                        return rule(link, mark, args, params)
            return process_primitive(self, primitive, args, params)

        return process

    for trace, takes_part in (
        (ad.JVPTrace, _is_differentiated),
        (ad.LinearizeTrace, _is_differentiated),
        (batching.BatchTrace, _is_batched),
        (partial_eval.JaxprTrace, _is_unknown),
    ):
        trace.process_primitive = wrap(trace.process_primitive, takes_part)


def _link_to_all(param: Any, link: AlwaysDifferentiated) -> Any:
    """Complete the operands of link in the jaxprs of a parameter: what a function closes over came later than they."""
    if isinstance(param, (tuple, list)):
        return type(param)(_link_to_all(x, link) for x in param) if any(map(is_jaxpr, param)) else param
    return _complete(param, link) if is_jaxpr(param) else param


@weakref_lru_cache
def _complete(jaxpr, link):
    inner, _ = open_jaxpr(jaxpr)
    inputs = [v for v in inner.invars if isinstance(v.aval, core.ShapedArray)]
    eqns = [
        eqn.replace(invars=[eqn.invars[0], *inputs], params={"complete": True})
        if eqn.primitive is link and not eqn.params["complete"]
        else eqn
        for eqn in inner.eqns
    ]
    complete = inner.replace(eqns=eqns)
    return complete if inner is jaxpr else jaxpr.replace(jaxpr=complete)


def _is_differentiated(trace, x) -> bool:
    return type(trace.to_primal_tangent_pair(x)[1]) is not ad.Zero


def _is_unknown(trace, x) -> bool:
    """In linear_transpose: whether it depends on what the function is linear in."""
    return isinstance(x, partial_eval.JaxprTracer) and not x.is_known()


def _is_batched(trace, x) -> bool:
    return trace.to_batch_info(x)[1] is not None


def _sees_steps_alike(primitive, params: dict[str, Any]) -> bool:
    return primitive.name == "scan" and scan_counts(params)[0] == len(open_jaxpr(params["jaxpr"])[0].invars)


def _evaluate(link: AlwaysDifferentiated, jaxpr, mark, operands: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr; all results of link in it depend on the mark too."""
    jaxpr, consts = open_jaxpr(jaxpr)
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *operands], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        with equation_context(eqn):
            env.update(zip(eqn.outvars, rebind(eqn, [*values, mark] if eqn.primitive is link else values), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _call(link, mark, operands, params):
    (jaxpr,) = jaxprs_in(params)
    return _evaluate(link, jaxpr, mark, operands)


def _checkpoint(link, mark, operands, params):
    (jaxpr,) = jaxprs_in(params)
    options = {name: params[name] for name in ("prevent_cse", "policy")}
    return jax.checkpoint(lambda mark, *xs: _evaluate(link, jaxpr, mark, xs), **options)(mark, *operands)


def _scan(link, mark, operands, params):
    num_consts, num_carry = scan_counts(params)
    fixed, carry, xs = in_three(operands, num_consts, num_carry)

    def step(state, x):
        mark, *carry = state
        results = _evaluate(link, params["jaxpr"], mark, [*fixed, *carry, *x])
        return (link.bind(mark, complete=True), *results[:num_carry]), tuple(results[num_carry:])

    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    (_, *carry), ys = lax.scan(step, (mark, *carry), tuple(xs), **options)
    return [*carry, *ys]


def _while(link, mark, operands, params):
    for_cond, for_body, carry = in_three(operands, params["cond_nconsts"], params["body_nconsts"])

    def again(state):
        return _evaluate(link, params["cond_jaxpr"], state[0], [*for_cond, *state[1:]])[0]

    def step(state):
        return (
            link.bind(state[0], complete=True),
            *_evaluate(link, params["body_jaxpr"], state[0], [*for_body, *state[1:]]),
        )

    _, *carry = lax.while_loop(again, step, (mark, *carry))
    return carry


def _cond(link, mark, operands, params):
    index, *operands = operands
    branches = [
        lambda mark, *operands, branch=branch: _evaluate(link, branch, mark, operands) for branch in params["branches"]
    ]
    return lax.switch(index, branches, mark, *operands)
