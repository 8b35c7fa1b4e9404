"""The executor of schedules: a table of ticks, and one loop that runs it on every rank."""

from peerax.pipeline.executor._layout import stack_stages, unstack_stages
from peerax.pipeline.executor._rng import Rng
from peerax.pipeline.executor._value_and_grad import Aux, evaluate, value_and_grad

__all__ = ["Aux", "Rng", "evaluate", "stack_stages", "unstack_stages", "value_and_grad"]
