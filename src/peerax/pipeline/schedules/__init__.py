"""Schedules of pipelines as data: made, read, checked, replayed and drawn. Pure standard library."""

from peerax.pipeline.schedules._action import Action
from peerax.pipeline.schedules._catalogue import KNOWN, described, schedule
from peerax.pipeline.schedules._check import Fault, ScheduleError
from peerax.pipeline.schedules._compare import Ranking, compare
from peerax.pipeline.schedules._costs import Costs
from peerax.pipeline.schedules._flat import eager_1f1b, gpipe, one_forward_one_backward, zb_h1, zb_h2
from peerax.pipeline.schedules._folded import dualpipev, zbv
from peerax.pipeline.schedules._looped import (
    circular,
    combined_tick,
    interleaved_1f1b,
    interleaved_zero_bubble,
    looped_bfs,
)
from peerax.pipeline.schedules._replay import Replay, Timed
from peerax.pipeline.schedules._schedule import Schedule

SCHEDULES = tuple(KNOWN)

__all__ = [
    "SCHEDULES",
    "Action",
    "Costs",
    "Fault",
    "Ranking",
    "Replay",
    "Schedule",
    "ScheduleError",
    "Timed",
    "circular",
    "combined_tick",
    "compare",
    "described",
    "dualpipev",
    "eager_1f1b",
    "gpipe",
    "interleaved_1f1b",
    "interleaved_zero_bubble",
    "looped_bfs",
    "one_forward_one_backward",
    "schedule",
    "zb_h1",
    "zb_h2",
    "zbv",
]
