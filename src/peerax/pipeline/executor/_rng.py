"""Random keys that belong to a layer and an example, wherever these are."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rng:
    """Give a stage random keys that depend on layer and example, not on how these are spread over ranks and time.

    A stage gets one as its third argument, if the call got a key.

    Args:
        key: the key of the call.
        stage: number of the stage; -1 in `embed_fn`.
        examples: int32[examples of the microbatch], their places in the whole batch.
    """

    key: Any
    stage: Any
    examples: Any

    def layer(self, number: Any = 0, *, of: int = 1) -> Any:
        """Return the key of a layer, the same for all examples.

        Args:
            number: of the layer within the stage.
            of: how many layers each stage has.
        """
        # 0 is for the embedding, whose stage is -1.
        return jax.random.fold_in(self.key, jnp.asarray(self.stage, jnp.int32) * of + number + 1)

    def examples_of(self, number: Any = 0, *, of: int = 1) -> Any:
        """Return a key for each example in a layer, shaped (examples of the microbatch,)."""
        return jax.vmap(jax.random.fold_in, (None, 0))(self.layer(number, of=of), self.examples)
