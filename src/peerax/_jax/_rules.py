"""Rules of jax.custom_jvp: what is a value in them, and what is a tangent.

When JAX linearizes a rule, it computes what depends on no tangent at once, and keeps the rest for the tangents. A
receive depends on its token, which need not depend on any: it is its send that tells whether it brings a tangent.
"""

import functools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import ad, partial_eval

_rules = threading.local()


class Rule:
    """A rule that is being run, with the values and tangents that it is of."""

    def __init__(self, primals: Any, tangents: Any):
        self.trace = core.trace_ctx.trace
        self.primals = [x for x in jax.tree.leaves(primals) if isinstance(x, core.Tracer)]
        self.is_forward = self.trace is getattr(_rules, "forward", None)
        self.receiver: Any = None  # the last one
        self.made: dict[Any, Any] = {}  # values that are made once in it
        # By variable, whether it depends on a tangent.
        self._moving = dict.fromkeys((x.val for x in _variables(self.primals)), False)
        self._moving.update((x.val, True) for x in _variables(jax.tree.leaves(tangents)))
        # Messages that have not met their other end, by channel: the tokens of tangents that were sent (None for
        # values), and who receives.
        self._sent: defaultdict[Any, deque] = defaultdict(deque)
        self._awaited: defaultdict[Any, deque] = defaultdict(deque)

    def send(self, channels: Iterable[Any], token: Any, operands: Sequence[Any]) -> Any:
        """Note what was sent. Return the receiver that has taken one of the messages for a value, or None."""
        moves = any(map(self.moves, operands))
        mistaken = None
        for channel in channels:
            if not self._awaited[channel]:
                self._sent[channel].append(token if moves else None)
                continue
            receiver = self._awaited[channel].popleft()
            mistaken = receiver if moves else mistaken
        return mistaken

    def receive(self, channels: Iterable[Any], token: Any, receiver: Any) -> list[Any]:
        """Return the tokens of the sends that it receives a tangent from and its own token does not tell of."""
        self.receiver = receiver
        moves = self.moves(token)
        is_of_pair = moves or self.received(token) is not None
        tokens = []
        for channel in channels:
            sent = self._sent[channel]
            if is_of_pair:  # it takes what is like it, not what is first
                like_it = next((i for i, other in enumerate(sent) if (other is not None) == moves), None)
                if like_it is not None:
                    del sent[like_it]
            elif sent:
                tokens.append(sent.popleft())
            else:
                self._awaited[channel].append(receiver)
        return [token for token in tokens if token is not None]

    def moves(self, x: Any) -> bool:
        """Whether a value depends on a tangent."""
        if isinstance(x, partial_eval.JaxprTracer):
            return not x.is_known()
        if isinstance(x, partial_eval.DynamicJaxprTracer):
            return isinstance(x.val, core.Var) and self._depends(x)
        return isinstance(x, core.Tracer) and any(map(self.moves, _inside(x)))

    def _depends(self, x: partial_eval.DynamicJaxprTracer) -> bool:
        waiting = [x]
        while waiting:
            x = waiting[-1]
            parents = [] if x.parent is None or x.val in self._moving else [*_variables(x.parent.in_tracers)]
            unknown = [operand for operand in parents if operand.val not in self._moving]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            self._moving.setdefault(x.val, any(self._moving[operand.val] for operand in parents))
        return self._moving[x.val]

    def received(self, x: Any) -> Any:
        """The equation that communicates and that a value depends on, or None."""
        seen: set[Any] = {v for v, moves in self._moving.items() if moves}.union(
            x.val for x in _variables(self.primals)
        )
        waiting = [*_variables([x])]
        while waiting:
            x = waiting.pop()
            if x.val in seen or x.parent is None:
                continue
            seen.add(x.val)
            if self.effect in x.parent.effects:
                return x.parent
            waiting += _variables(x.parent.in_tracers)
        return None

    effect: Any = None  # of what communicates


def rule_here() -> Rule | None:
    """The rule whose own operations are being traced just now."""
    rule = getattr(_rules, "innermost", None)
    return rule if rule is not None and rule.trace is core.trace_ctx.trace else None


def _variables(values: Iterable[Any]) -> Iterator[partial_eval.DynamicJaxprTracer]:
    """The variables in values, also of what is known of them where they are differentiated or batched."""
    for x in values:
        if isinstance(x, partial_eval.DynamicJaxprTracer):
            if isinstance(x.val, core.Var):  # and no literal
                yield x
        elif isinstance(x, core.Tracer):
            yield from _variables(_inside(x))


def _inside(x: core.Tracer) -> list[Any]:
    if isinstance(x, partial_eval.JaxprTracer):
        return [x.pval.get_known()] if x.is_known() else []
    return [getattr(x, name, None) for name in ("primal", "tangent", "val")]


def _noted(rule: Callable, check: Callable) -> Callable:
    @functools.wraps(rule)
    def run(*args):
        before = getattr(_rules, "innermost", None)
        noted = _rules.innermost = Rule(*args[-2:])
        try:
            results = rule(*args)
            check(noted, results)
            return results
        finally:
            _rules.innermost = before

    run.peerax_noted = run  # and of no other function, which may have taken it over with functools.wraps
    return run


def _keep_forward(process: Callable) -> Callable:
    """Note under which trace a rule is run for the tangents that there are, and nothing is computed ahead of them."""

    @functools.wraps(process)
    def process_custom_jvp_call(self, *args, **kwargs):
        before = getattr(_rules, "forward", None)
        _rules.forward = None if isinstance(self.parent_trace, partial_eval.JaxprTrace) else self.parent_trace
        try:
            return process(self, *args, **kwargs)
        finally:
            _rules.forward = before

    return process_custom_jvp_call


ad.JVPTrace.process_custom_jvp_call = _keep_forward(ad.JVPTrace.process_custom_jvp_call)


def note_rules(effect: Any, check: Callable[[Rule, Any], None]) -> None:
    """Note the rules of jax.custom_jvp while they run, and call check with each and its results.

    effect is that of equations that communicate.
    """
    Rule.effect = effect
    call = jax.custom_jvp.__call__

    @functools.wraps(call)
    def call_with_noted_rule(self, *args, **kwargs):
        if self.jvp is not None and getattr(self.jvp, "peerax_noted", None) is not self.jvp:
            self.jvp = _noted(self.jvp, check)
        return call(self, *args, **kwargs)

    jax.custom_jvp.__call__ = call_with_noted_rule
