"""The timeline: what happened when, in a run or in a simulation of one, and its views. Pure standard library."""

from peerax.timeline._compare import Compared, Comparison, OperationTimes
from peerax.timeline._matrix import Matrix, Traffic
from peerax.timeline._timeline import Message, Pause, RankTime, Span, Timeline

__all__ = [
    "Compared",
    "Comparison",
    "Matrix",
    "Message",
    "OperationTimes",
    "Pause",
    "RankTime",
    "Span",
    "Timeline",
    "Traffic",
]
