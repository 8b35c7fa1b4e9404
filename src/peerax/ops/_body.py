"""The total order: rewrites the body of a shard_map when it is lowered, after differentiation and batching.

Every communicating equation takes a handle from the one before and gives it to the next, through loops and branches,
and pairs become exchanges. What the operations become, and what the handle is, differs by platform: see _on_cpu and
_on_accelerators. Bodies without peerax's operations are left alone.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import PartitionSpec

from peerax import _jax
from peerax.diagnostics import PeeraxError
from peerax.ops._communication import (
    CONTROL_FLOW,
    call_of,
    communicates,
    communicates_within,
    has_branches,
    has_sums,
    is_collective,
)
from peerax.ops._in_place import LastUses
from peerax.ops._late_sums import are_in_the_way, put_sums_last
from peerax.ops._order import order_p
from peerax.ops._parts import Late, Part, pairs_of, uses
from peerax.ops._precv import precv_p
from peerax.ops._psend import psend_p
from peerax.ops._ranks import Ranks
from peerax.ops._site import location, site_of
from peerax.ops._stretches import find_stretches
from peerax.ops._token import link_p


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

    def __init__(self, ranks: Ranks, platform: str):
        self.ranks = ranks
        self.platform = platform
        self.pair_count = 0
        self.same_everywhere = False  # whether all ranks come by the same operations, in the same order
        self._put_off: list[Callable[[Any], Any]] = []  # what is left to do at the end, handle by handle

    def send(self, eqn, handle, token, values, pair=-1):
        """Return the handle after a psend of values that is separate, or the first half of a pair with that number.

        It comes after the token, as do the two below.
        """
        raise NotImplementedError

    def receive(self, eqn, handle, token, pair=-1):
        """Return the handle and the results of a precv that is separate, or the second half of a pair."""
        raise NotImplementedError

    def exchange(self, send, receive, handle, token, values, is_spent):
        """Return the handle and the results of the precv of a pair; values are what its psend sends.

        is_spent says of one of them, by its position, whether its memory may be taken.
        """
        raise NotImplementedError

    def collective(self, eqn, handle, values):
        """Return the handle and the results of one of JAX's collectives."""
        raise NotImplementedError

    def order(self, *values):
        """Return values, each of them available only when all are."""
        raise NotImplementedError

    def run_body(self, jaxpr, consts, handle, operands):
        """Evaluate a whole body; return the handle and the results."""
        if not are_in_the_way(jaxpr):  # all ranks come by each collective at the same place
            self.same_everywhere = not has_branches(jaxpr)
            return self.run(jaxpr, consts, handle, operands)
        if not has_sums(jaxpr):
            return self.run(jaxpr, consts, handle, operands)
        jaxpr, late = put_sums_last(jaxpr)
        put_off: list[Callable] = []
        handle, results = self.run(jaxpr, consts, handle, operands, late, put_off)
        for step in put_off:
            handle = step(handle)
        return handle, [_now(x) for x in results]

    def run(self, jaxpr, consts, handle, operands, late=(), put_off=None, carried=()):
        """Evaluate a part of a body; return the handle and the results.

        The equations at late, and what needs their results, are put off: what they do is added to a list.
        carried are the parameters that a loop replaces by results.
        """
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *operands], strict=True))
        pairs = pairs_of(jaxpr)
        split = {pairs[i]: i for i in pairs if self.splits_pairs and _separates(jaxpr.eqns, i, pairs)}
        last_uses = LastUses(jaxpr, carried) if pairs and self.same_everywhere else None
        received = {}  # results of exchanges, by the position of their precv
        stretches = {} if isinstance(jaxpr, Part) else find_stretches(jaxpr)
        next_one = 0
        untyped = isinstance(jaxpr, Part) and any(jaxpr.unsummed)

        def read(atom):
            return atom.val if isinstance(atom, _jax.Literal) else env[atom]

        for i, eqn in enumerate(jaxpr.eqns):
            if i < next_one:
                continue
            stretch = stretches.get(i)
            if stretch is not None and _jax.fits(stretch, values := [env[v] for v in stretch.invars]):
                env.update(zip(stretch.outvars, _jax.bind_stretch(stretch, values), strict=True))
                next_one = i + len(stretch.eqns)
                continue
            values = [read(v) for v in uses(eqn)]
            if untyped and not _has_rule(eqn):
                values = _alike(values)
            with _jax.equation_context(eqn):
                if i in pairs and pairs[i] in split:
                    # Something that may wait stands between the halves: this one must not.
                    split[pairs[i]] = self.pair_count = self.pair_count + 1
                    handle = self.send(eqn, handle, values[0], values[1:], pair=self.pair_count)
                    results = [_token_after(eqn, values[0])]
                elif i in split:
                    handle, results = self._receive(eqn, handle, values[0], pair=split[i])
                elif i in pairs:
                    receive = jaxpr.eqns[pairs[i]]
                    is_spent = functools.partial(last_uses.spent_at, i, pairs[i]) if last_uses else _never
                    handle, results = self.exchange(eqn, receive, handle, values[0], values[1:], is_spent)
                    received[pairs[i]] = _as_results_of(receive, results)
                    results = [_token_after(eqn, values[0])]
                elif i in received:
                    results = received.pop(i)
                elif i in late or any(isinstance(x, Late) for x in values):
                    results = [Late() for _ in eqn.outvars]
                    put_off.append(functools.partial(self._late_step, eqn, values, results))
                else:
                    handle, results = self._step(eqn, handle, values)
            env.update(zip(eqn.outvars, results, strict=True))
        return handle, _still_to_be_summed(jaxpr, [read(v) for v in jaxpr.outvars])

    def _step(self, eqn, handle, values):
        if eqn.primitive is psend_p:
            return self.send(eqn, handle, values[0], values[1:]), [_token_after(eqn, values[0])]
        if eqn.primitive is precv_p:
            return self._receive(eqn, handle, values[0])
        if is_collective(eqn):
            handle, results = self.collective(eqn, handle, values)
            return handle, _as_results_of(eqn, results)
        if eqn.primitive is order_p:
            return handle, _as_results_of(eqn, self.order(*values))
        if eqn.primitive is link_p:
            return handle, values
        if eqn.primitive.name == "pvary":
            # Inside what is put in place of a call, a value may vary already.
            return handle, [_jax.make_varying(x, tuple(eqn.params["axes"])) for x in values]
        if not communicates_within(eqn) and not _has_parts(eqn):  # JAX knows no parts
            return handle, _jax.rebind(eqn, values)
        rule = {
            "scan": self._scan,
            "while": self._while,
            "cond": self._cond,
            "shard_map": self._shard_map,
            "custom_linear_solve": self._linear_solve,
        }.get(eqn.primitive.name, self._inline)
        return rule(eqn, handle, values)

    def _receive(self, eqn, handle, token, **pair):
        handle, results = self.receive(eqn, handle, token, **pair)
        return handle, _as_results_of(eqn, results)

    def _late_step(self, eqn, values, results, handle):
        with _jax.equation_context(eqn):
            handle, done = self._step(eqn, handle, [_now(x) for x in values])
        for result, value in zip(results, done, strict=True):
            result.value = value
        return handle

    # Control flow.

    def _scan(self, eqn, handle, values):
        jaxpr, consts = _jax.open_jaxpr(eqn.params["jaxpr"])
        fixed, carry, xs = _jax.in_three(values, *_jax.scan_counts(eqn.params))

        carried = jaxpr.invars[len(fixed) : len(fixed) + len(carry)]
        carry = _still_to_be_summed(jaxpr, carry)

        def step(state, x):
            handle, results = self.run(jaxpr, consts, state[0], [*fixed, *state[1:], *x], carried=carried)
            return (handle, *results[: len(carry)]), tuple(results[len(carry) :])

        options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        (handle, *carried), ys = lax.scan(step, (handle, *carry), tuple(xs), **options)
        return handle, [*carried, *ys]

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

        if not any(map(communicates, cond.eqns)):

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
            branches = [
                branch
                for branch, names in zip(branches, platforms, strict=True)
                if names is None or self.platform in names
            ][:1]
            if not branches:
                raise PeeraxError.of("PX402", f"no branch is for {self.platform}", locations=(location(site_of(eqn)),))

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
        jaxpr = call_of(eqn)
        if jaxpr is not None:
            return self.run(*_jax.open_jaxpr(jaxpr), handle, values)
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
        (eqn.primitive in (psend_p, precv_p) and i not in paired) or communicates_within(eqn)
        for i, eqn in enumerate(equations[send : pairs[send]], send)
    )


def _has_rule(eqn) -> bool:
    """Whether what is inside an equation has types of its own."""
    return eqn.primitive.name in CONTROL_FLOW or call_of(eqn) is not None


def _has_parts(eqn) -> bool:
    return any(isinstance(jaxpr, Part) for jaxpr in _jax.jaxprs_in(eqn.params))


def _still_to_be_summed(jaxpr, values: list[Any]) -> list[Any]:
    """Values, in the order of results; those that are to be summed over ranks may differ."""
    unsummed = jaxpr.unsummed if isinstance(jaxpr, Part) else ()
    return [
        _jax.make_varying(x, axes) if axes else x for x, axes in itertools.zip_longest(values, unsummed[: len(values)])
    ]


def _alike(values: list[Any]) -> list[Any]:
    """Values that differ along the same axes, as JAX wants them."""
    axes = frozenset().union(*(_jax.varying(jax.typeof(x)) for x in values))
    return [_jax.make_varying(x, tuple(axes)) for x in values] if axes else values


def _never(leaf: int) -> bool:
    return False


def _now(x):
    return x.value if isinstance(x, Late) else x


def _select(chosen, new, old):
    return lax.select(lax.broadcast_in_dim(chosen, new.shape, tuple(range(chosen.ndim))), new, old)


def _as_results_of(eqn, values):
    """Values in the sharding along explicit axes that the results of an equation have: the transport knows none."""
    return [_jax.in_explicit_sharding(y, v.aval) for y, v in zip(values, eqn.outvars, strict=True)]


def _token_after(send, token):
    """The token that a psend returns. The order is in the handle; a token is only a value, of the right type."""
    return _jax.make_varying(token, tuple(_jax.varying(send.outvars[0].aval)))
