"""Pipelines: the schedules of their ranks."""

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

__all__ = [
    "SCHEDULES",
    "Action",
    "Costs",
    "Ranking",
    "Replay",
    "Schedule",
    "ScheduleError",
    "compare",
    "schedule",
]
