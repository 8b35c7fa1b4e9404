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
from jax._src.interpreters import partial_eval

_rules = threading.local()


class Rule:
    """A rule that is being run, with the values and tangents that it is of."""

    def __init__(self, primals: Any, tangents: Any):
        self.trace = core.trace_ctx.trace
        self.primals = [x for x in jax.tree.leaves(primals) if isinstance(x, core.Tracer)]
        self._moving: dict[Any, bool] = {}  # by variable
        self._moving.update((x.val, False) for x in _innermost(self.primals))
        self._moving.update((x.val, True) for x in _innermost(jax.tree.leaves(tangents)))
        # Messages that have not met their other end, by channel: tokens of what was sent, and what says who receives.
        self._sent: defaultdict[Any, deque] = defaultdict(deque)
        self._awaited: defaultdict[Any, deque] = defaultdict(deque)

    def send(self, channels: Iterable[Any], token: Any, operands: Sequence[Any]) -> Any:
        """Note what was sent. Return what said who received it before, as a value, if it depends on a tangent."""
        moves = any(map(self._moves, operands))
        missed = None
        for channel in channels:
            if not self._awaited[channel]:
                self._sent[channel].append(token if moves else None)
            elif moves:
                missed = self._awaited[channel].popleft()
            else:
                self._awaited[channel].popleft()
        return missed

    def receive(self, channels: Iterable[Any], token: Any, receiver: Any) -> list[Any]:
        """Return the tokens of the sends that it receives a tangent from and its own token does not tell of."""
        known = not self._moves(token)
        tokens = []
        for channel in channels:
            if self._sent[channel]:
                tokens.append(self._sent[channel].popleft())
            elif known:
                self._awaited[channel].append(receiver)
        return [sent for sent in tokens if known and sent is not None]

    def _moves(self, x: Any) -> bool:
        """Whether a value depends on a tangent."""
        if isinstance(x, partial_eval.JaxprTracer):
            return not x.is_known()
        return any(map(self._depends, _innermost([x])))

    def _depends(self, x: partial_eval.DynamicJaxprTracer) -> bool:
        waiting = [x]
        while waiting:
            x = waiting[-1]
            parents = [*_innermost(x.parent.in_tracers)] if x.parent is not None and x.val not in self._moving else []
            unknown = [operand for operand in parents if operand.val not in self._moving]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            self._moving.setdefault(x.val, any(self._moving[operand.val] for operand in parents))
        return self._moving[x.val]


def rule_here() -> Rule | None:
    """The rule whose own operations are being traced just now."""
    rule = getattr(_rules, "innermost", None)
    return rule if rule is not None and rule.trace is core.trace_ctx.trace else None


def _innermost(values: Iterable[Any]) -> Iterator[partial_eval.DynamicJaxprTracer]:
    """The variables in values that are differentiated or batched."""
    for x in values:
        if isinstance(x, partial_eval.DynamicJaxprTracer):
            if isinstance(x.val, core.Var):  # and no literal
                yield x
        elif isinstance(x, core.Tracer):
            yield from _innermost(getattr(x, name, None) for name in ("primal", "tangent", "val"))


def _noted(rule: Callable) -> Callable:
    @functools.wraps(rule)
    def run(*args):
        before = getattr(_rules, "innermost", None)
        _rules.innermost = Rule(*args[-2:])
        try:
            return rule(*args)
        finally:
            _rules.innermost = before

    run.peerax_noted = True
    return run


def _note_rules(call: Callable) -> Callable:
    @functools.wraps(call)
    def call_with_noted_rule(self, *args, **kwargs):
        if self.jvp is not None and not hasattr(self.jvp, "peerax_noted"):
            self.jvp = _noted(self.jvp)
        return call(self, *args, **kwargs)

    return call_with_noted_rule


jax.custom_jvp.__call__ = _note_rules(jax.custom_jvp.__call__)
