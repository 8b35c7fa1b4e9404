"""The total order: rewrites the body of a shard_map when it is lowered, after differentiation and batching.

Every communicating equation takes a handle from the one before and gives it to the next, through loops and branches,
and pairs become exchanges. What the operations become, and what the handle is, differs by platform: see _on_cpu and
_on_accelerators. Bodies without peerax's operations are left alone.
"""

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._order import order_p
from peerax.ops._pairs import find_pairs
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p
from peerax.ops._ranks import Ranks
from peerax.ops._site import as_site, location

# Equations that name axes and yet communicate nothing.
_SILENT = {
    "axis_index",
    "pvary",
    "pcast",
    "vary_unreduced_cast",
    "vary_unreduced_cast_p",
    "reduced_vary_cast",
    "preduced",
}


def has_peerax(jaxpr: Any) -> bool:
    """Return whether psend or precv is anywhere in a jaxpr."""
    jaxpr, _ = _jax.open_jaxpr(jaxpr)
    return any(eqn.primitive in (psend_p, precv_p) or any_in_params(eqn.params, has_peerax) for eqn in jaxpr.eqns)


def has_separate(jaxpr: Any) -> bool:
    """Return whether a psend or precv that is not one of a pair is anywhere in a jaxpr."""
    jaxpr, _ = _jax.open_jaxpr(jaxpr)
    pairs = find_pairs(jaxpr.eqns)
    paired = {*pairs.keys(), *pairs.values()}
    return any(
        (eqn.primitive in (psend_p, precv_p) and i not in paired) or any_in_params(eqn.params, has_separate)
        for i, eqn in enumerate(jaxpr.eqns)
    )


def any_in_params(params: dict[str, Any], test: Callable[[Any], bool]) -> bool:
    """Return whether test holds for a jaxpr among the parameters of an equation."""
    return any(
        test(value)
        for param in params.values()
        for value in (param if isinstance(param, (tuple, list)) else (param,))
        if _jax.is_jaxpr(value)
    )


def shard_map_again(body, params: dict[str, Any], in_specs: Sequence[Any] = (), out_specs: Sequence[Any] = ()) -> Any:
    """Return a shard_map equation's function, of another body, with further operands and results before its own."""
    return jax.shard_map(
        body,
        mesh=params["mesh"],
        in_specs=(*in_specs, *params["in_specs"]),
        out_specs=[*out_specs, *params["out_specs"]],
        check_vma=params["check_vma"],
        axis_names=_jax.shard_map_axes(params),
    )


class Body:
    """Evaluates a jaxpr in total order. Subclasses say what the operations of one platform are."""

    splits_pairs = False  # whether the halves of a pair may run at different places

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.pair_count = 0

    def send(self, eqn, handle, token, values, pair=-1):
        """Return the handle after a psend of values that is separate, or the first half of a pair with that number.

        It comes after the token, as do the two below.
        """
        raise NotImplementedError

    def receive(self, eqn, handle, token, pair=-1):
        """Return the handle and the results of a precv that is separate, or the second half of a pair."""
        raise NotImplementedError

    def exchange(self, send, receive, handle, token, values):
        """Return the handle and the results of the precv of a pair; values are what its psend sends."""
        raise NotImplementedError

    def collective(self, eqn, handle, values):
        """Return the handle and the results of one of JAX's collectives."""
        raise NotImplementedError

    def order(self, *values):
        """Return values, each of them available only when all are."""
        raise NotImplementedError

    def run(self, jaxpr, consts, handle, operands):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *operands], strict=True))
        pairs = find_pairs(jaxpr.eqns)
        split = {pairs[i]: i for i in pairs if self.splits_pairs and _separates(jaxpr.eqns, i, pairs)}
        received = {}  # results of exchanges, by the position of their precv

        def read(atom):
            return atom.val if isinstance(atom, _jax.Literal) else env[atom]

        for i, eqn in enumerate(jaxpr.eqns):
            values = [read(v) for v in eqn.invars]
            with _jax.equation_context(eqn):
                if i in pairs and pairs[i] in split:
                    # Something that may wait stands between the halves: this one must not.
                    split[pairs[i]] = self.pair_count = self.pair_count + 1
                    handle = self.send(eqn, handle, values[0], values[1:], pair=self.pair_count)
                    results = [_token_after(eqn, values[0])]
                elif i in split:
                    handle, results = self.receive(eqn, handle, values[0], pair=split[i])
                elif i in pairs:
                    receive = jaxpr.eqns[pairs[i]]
                    handle, received[pairs[i]] = self.exchange(eqn, receive, handle, values[0], values[1:])
                    results = [_token_after(eqn, values[0])]
                elif i in received:
                    results = received.pop(i)
                else:
                    handle, results = self._step(eqn, handle, values)
            env.update(zip(eqn.outvars, results, strict=True))
        return handle, [read(v) for v in jaxpr.outvars]

    def _step(self, eqn, handle, values):
        if eqn.primitive is psend_p:
            return self.send(eqn, handle, values[0], values[1:]), [_token_after(eqn, values[0])]
        if eqn.primitive is precv_p:
            return self.receive(eqn, handle, values[0])
        if _is_collective(eqn):
            return self.collective(eqn, handle, values)
        if eqn.primitive is order_p:
            return handle, self.order(*values)
        if eqn.primitive.name == "pvary":
            # Inside what is put in place of a call, a value may vary already.
            return handle, [_jax.make_varying(x, tuple(eqn.params["axes"])) for x in values]
        if not any_in_params(eqn.params, _communicates):
            return handle, _jax.rebind(eqn, values)
        rule = {
            "scan": self._scan,
            "while": self._while,
            "cond": self._cond,
            "shard_map": self._shard_map,
            "custom_linear_solve": self._linear_solve,
        }.get(eqn.primitive.name, self._inline)
        return rule(eqn, handle, values)

    # Control flow.

    def _scan(self, eqn, handle, values):
        jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])
        num_consts, num_carry = _jax.scan_counts(eqn.params)
        fixed, carry, xs = (
            values[:num_consts],
            values[num_consts : num_consts + num_carry],
            values[num_consts + num_carry :],
        )

        def step(state, x):
            handle, results = self.run(jaxpr, consts, state[0], [*fixed, *state[1:], *x])
            return (handle, *results[:num_carry]), tuple(results[num_carry:])

        (handle, *carry), ys = lax.scan(
            step,
            (handle, *carry),
            tuple(xs),
            length=eqn.params["length"],
            reverse=eqn.params["reverse"],
            unroll=eqn.params["unroll"],
        )
        return handle, [*carry, *ys]

    def _while(self, eqn, handle, values):
        params = eqn.params
        cond, cond_consts = _jax.open_jaxpr(params["cond_jaxpr"])
        body, body_consts = _jax.open_jaxpr(params["body_jaxpr"])
        for_cond, rest = values[: params["cond_nconsts"]], values[params["cond_nconsts"] :]
        for_body, carry = rest[: params["body_nconsts"]], rest[params["body_nconsts"] :]

        def test(handle, carry):
            handle, (again,) = self.run(cond, cond_consts, handle, [*for_cond, *carry])
            return handle, again

        def advance(handle, again, carry):
            """One iteration; of a batch, whose condition is batched, only the members that go on."""
            handle, results = self.run(body, body_consts, handle, [*for_body, *carry])
            if again.ndim:
                results = [_select(again, new, old) for new, old in zip(results, carry, strict=True)]
            return handle, results

        if not _communicates(cond):

            def step(state):
                handle, results = advance(state[0], test(state[0], state[1:])[1], state[1:])
                return (handle, *results)

            def again(state):
                return test(state[0], state[1:])[1].any()

            handle, *carry = lax.while_loop(again, step, (handle, *carry))
            return handle, carry

        # A condition that communicates is evaluated in the body, where the handle can be given on.
        def step_and_test(state):
            handle, results = advance(state[0], state[1], state[2:])
            handle, again = test(handle, results)
            return (handle, again, *results)

        state = lax.while_loop(lambda state: state[1].any(), step_and_test, (*test(handle, carry), *carry))
        return state[0], state[2:]

    def _cond(self, eqn, handle, values):
        branches = [_jax.open_jaxpr(branch) for branch in eqn.params["branches"]]
        platforms = eqn.params.get("branches_platforms")
        if platforms is not None:  # the choice of lax.platform_dependent, known here
            branches = [b for b, names in zip(branches, platforms, strict=True) if names is None or "cpu" in names][:1]

        def run(branch, handle, *operands):
            handle, results = self.run(*branch, handle, operands)
            return (handle, *results)

        index, *operands = values
        if len(branches) == 1:
            handle, *results = run(branches[0], handle, *operands)
        else:
            handle, *results = lax.switch(index, [functools.partial(run, b) for b in branches], handle, *operands)
        return handle, results

    def _linear_solve(self, eqn, handle, values):
        lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
        before = lengths.matvec + lengths.vecmat
        solve, consts = _jax.open_jaxpr(jaxprs.solve)
        b = values[sum(lengths) :]
        return self.run(solve, consts, handle, [*values[before : before + lengths.solve], *b])

    def _inline(self, eqn, handle, values):
        """A call: jit, checkpoint, custom_jvp and so on, whose function is its only jaxpr."""
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if name in eqn.params:
                jaxpr, consts = _jax.open_jaxpr(eqn.params[name])
                if len(jaxpr.invars) == len(values) and len(jaxpr.outvars) == len(eqn.outvars):
                    return self.run(jaxpr, consts, handle, values)
        raise PeeraxError.of(
            "PX107",
            f"psend, precv or a collective inside {eqn.primitive.name} is not supported",
            locations=(location(site_of(eqn)),),
        )

    def _shard_map(self, eqn, handle, values):
        """A shard_map inside, over more axes of the same mesh: the same ranks go on in it."""
        jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])

        def body(handle, *xs):
            handle, results = self.run(jaxpr, consts, handle, xs)
            return [handle, *results]

        everywhere = (PartitionSpec(),)
        handle, *results = shard_map_again(body, eqn.params, everywhere, everywhere)(handle, *values)
        return handle, results


def _separates(equations, send: int, pairs: dict[int, int]) -> bool:
    """Whether a separate operation, or a loop, branch or call that communicates, stands between a pair's halves."""
    paired = {*pairs, *pairs.values()}
    return any(
        (eqn.primitive in (psend_p, precv_p) and i not in paired) or any_in_params(eqn.params, _communicates)
        for i, eqn in enumerate(equations[send : pairs[send]], send)
    )


def _communicates(jaxpr) -> bool:
    """Whether equations below here have a place in the order."""
    jaxpr, _ = _jax.open_jaxpr(jaxpr)
    return any(
        eqn.primitive in (psend_p, precv_p) or _is_collective(eqn) or any_in_params(eqn.params, _communicates)
        for eqn in jaxpr.eqns
    )


def _is_collective(eqn) -> bool:
    if eqn.primitive in (psend_p, precv_p) or eqn.primitive.name in _SILENT:
        return False
    return bool(axes_of(eqn)) and ("axes" in eqn.params or "axis_name" in eqn.params)


def axes_of(eqn) -> tuple:
    """The axis names of one of JAX's collectives."""
    axes = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(axis for axis in axes if not isinstance(axis, numbers.Integral))


def site_of(eqn) -> str:
    """The user's line that an equation comes from."""
    found = _jax.equation_site(eqn)
    return "<unknown>:0" if found is None else as_site(*found)


def _select(chosen, new, old):
    return lax.select(lax.broadcast_in_dim(chosen, new.shape, tuple(range(chosen.ndim))), new, old)


def _token_after(send, token):
    """The token that a psend returns. The order is in the handle; a token is only a value, of the right type."""
    return _jax.make_varying(token, tuple(_jax.varying(send.outvars[0].aval)))
