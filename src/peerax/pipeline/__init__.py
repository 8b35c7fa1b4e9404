"""Pipelines: the schedules of their ranks, and what runs them. Only what runs them imports JAX."""

import importlib
from typing import TYPE_CHECKING

from peerax.pipeline.schedules import (
    SCHEDULES,
    Action,
    Costs,
    Ranking,
    Replay,
    Schedule,
    ScheduleError,
    compare,
    schedule,
)

if TYPE_CHECKING:
    from peerax.pipeline.executor import Aux, Rng, evaluate, stack_stages, unstack_stages, value_and_grad

__all__ = [
    "SCHEDULES",
    "Action",
    "Aux",
    "Costs",
    "Ranking",
    "Replay",
    "Rng",
    "Schedule",
    "ScheduleError",
    "compare",
    "evaluate",
    "schedule",
    "stack_stages",
    "unstack_stages",
    "value_and_grad",
]

_EXECUTED = ("Aux", "Rng", "evaluate", "stack_stages", "unstack_stages", "value_and_grad")


def __getattr__(name: str):
    if name not in _EXECUTED:
        raise AttributeError(f"module 'peerax.pipeline' has no attribute {name!r}")
    value = getattr(importlib.import_module("peerax.pipeline.executor"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
