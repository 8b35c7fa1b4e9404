"""The timeline: what happened when, in a run or in a simulation of one, and its views. Pure standard library."""

from peerax.timeline._timeline import Message, RankTime, Span, Timeline

__all__ = ["Message", "RankTime", "Span", "Timeline"]
