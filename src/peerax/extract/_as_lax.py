"""The verdict on a program as jax.lax would run it: every order that the data allow must be right."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from typing import Literal

from peerax.diagnostics import Diagnostic
from peerax.extract._orders import Order, between, free_pair, orders
from peerax.extract._project import Projection
from peerax.extract._steps import Chosen, Repeated, Step
from peerax.verifier import Report, check_program, operation_name

MOST_ORDERS = 300
_ASSUMED = "judged as jax.lax.psend and precv on GPUs: no pairs, and one order for all ranks that the data allow"


def check_orders(
    steps: list[Step], projection: Projection, order: Order, semantics: Literal["rendezvous", "buffered"]
) -> Report:
    """Return the report on all orders of the steps of a program."""

    def judge(arranged: list[Step]) -> Report:
        return check_program(projection.program(arranged), semantics)

    good = bad = undecided = None
    number = 0
    # The order that is farthest from the program's is the likeliest to be wrong, so it comes first.
    for arranged in chain(islice(orders(steps, order, backwards=True), 1), orders(steps, order)):
        if number > MOST_ORDERS or (good and bad):
            break
        number += 1
        report = judge(arranged)
        if report.verdict == "safe":
            good = good or (arranged, report)
        elif report.verdict == "unsafe":
            bad = bad or (arranged, report)
        else:
            undecided = undecided or report
    number -= 1  # the first one came twice
    if bad and good:
        return _report(good[1], "unsafe", _not_fixed(good[0], bad[0], judge))
    if bad or undecided:
        written = judge(steps)
        worst = written if written.verdict != "safe" else undecided or bad[1]
        return _report(worst, worst.verdict, *worst.diagnostics)
    pair = free_pair(steps, order)
    if pair is None:
        return _report(good[1], "safe", *good[1].diagnostics)
    if number >= MOST_ORDERS or order.cut:
        message = f"{_nothing_fixes(*pair)}; there are more orders than could be tried, and none of these was wrong"
        return _report(good[1], "undecided", Diagnostic("PX211", message, _lines(*pair)))
    warning = Diagnostic(
        "PX206", f"{_nothing_fixes(*pair)}; all {number} orders are safe", _lines(*pair), severity="warning"
    )
    return _report(good[1], "safe", *good[1].diagnostics, warning)


def _report(report: Report, verdict: Literal["safe", "unsafe", "undecided"], *diagnostics: Diagnostic) -> Report:
    return replace(report, verdict=verdict, diagnostics=diagnostics, assumptions=(_ASSUMED, *report.assumptions))


def _not_fixed(good: list[Step], bad: list[Step], judge: Callable[[list[Step]], Report]) -> Diagnostic:
    """Return the diagnostic, which names the two operations that must not change places."""
    changes = between(good, bad)
    arranged, first, second = next(changes)
    while (found := judge(arranged)).verdict != "unsafe":
        arranged, first, second = next(changes)  # the last one is bad
    error = next(each for each in found.diagnostics if each.severity == "error")
    return Diagnostic(
        "PX206",
        f"{_nothing_fixes(first, second)}, and it matters",
        _lines(first, second),
        error.ranks,
        error.channel,
        (f"in another order: {error.code}, {error.title}", *(f"  {line}" for line in error.message.splitlines())),
    )


def _nothing_fixes(first: Step, second: Step) -> str:
    return f"nothing fixes whether {_name(first)} or {_name(second)} comes first"


def _name(step: Step) -> str:
    kind = "the loop" if isinstance(step, Repeated) else "the branch" if isinstance(step, Chosen) else None
    return f"{kind or operation_name(step)} at {step.location[0]}:{step.location[1]}"


def _lines(*steps: Step) -> tuple:
    return tuple(dict.fromkeys(step.location for step in steps))
