"""The order of stages in stacked parameters: those of rank 0 first, then those of rank 1, and so on."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from peerax.pipeline.schedules import Schedule


def stack_stages(stages: Sequence[Any], schedule: Schedule) -> Any:
    """Stack the parameters of stages so that each rank of a schedule has its own ones next to each other.

    Sharded along their first dimension, they are where the schedule needs them. If each rank has one stage, that is the
    order of the stages.

    Args:
      stages: for each stage in order a pytree of arrays, all alike.
      schedule: says which rank has which stage.

    Returns:
      A pytree of arrays with (stages,) in front.

    Raises:
      ValueError: there is another number of stages.

    Example:
      >>> params = peerax.pipeline.stack_stages([first, second], schedule)
    """
    if len(stages) != schedule.stages:
        raise ValueError(f"the schedule {schedule.name} has {schedule.stages} stages, not {len(stages)}")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(stages[number] for number in stage_order(schedule)))


def unstack_stages(params: Any, schedule: Schedule) -> list[Any]:
    """Return for each stage in order what `stack_stages` stacked: its parameters, or their gradients.

    Args:
      params: a pytree of arrays with (stages,) in front.
      schedule: says which rank has which stage.

    Returns:
      A list of pytrees.

    Example:
      >>> first, second = peerax.pipeline.unstack_stages(grads, schedule)
    """
    places = {stage: place for place, stage in enumerate(stage_order(schedule))}
    return [jax.tree.map(lambda leaf, place=places[stage]: leaf[place], params) for stage in range(schedule.stages)]


def stage_order(schedule: Schedule) -> list[int]:
    """Return the stages in the order of the ranks that have them."""
    return sorted(range(schedule.stages), key=lambda stage: (schedule.placement[stage], stage))
