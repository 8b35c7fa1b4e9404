"""What `peerax doctor` tries in processes of its own, so that it can tell whatever happens there.

`python -m peerax.cli._probe devices`, `... exchange` and `... compilers` print what they find, one JSON object a line.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def main(probe: str) -> None:
    """Run a probe. An error is printed like everything else that is found."""
    try:
        for found in {"devices": devices, "exchange": exchange, "compilers": compilers}[probe]():
            print(json.dumps(found), flush=True)
    except Exception as error:
        text = str(error)
        if "more: peerax explain" not in text:  # a report says by itself what it is
            text = f"{type(error).__name__}: {text}"
        print(json.dumps({"error": text}), flush=True)


def devices() -> Iterator[dict[str, Any]]:
    """Find the devices that a program has in this environment."""
    import jax

    there = jax.devices()
    yield {"devices": len(there), "platform": there[0].platform}


def exchange() -> Iterator[dict[str, Any]]:
    """Load the extension, send between two ranks, and compare what arrives."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    import peerax
    from peerax.runtime import extension, load, statistics

    mesh = Mesh(np.array(jax.devices()[:2]), ("rank",))
    load()
    yield {"targets": len(extension().targets())}

    swap, right = [(0, 1), (1, 0)], [(0, 1)]

    def talk(x):
        token = peerax.psend(x, "rank", swap)
        other = peerax.precv(token, x, "rank", swap)  # a pair
        peerax.psend(2 * other, "rank", right, tag=1)
        return other + peerax.precv(peerax.create_token(), x, "rank", right, tag=1)  # separate

    run = jax.jit(jax.shard_map(talk, mesh=mesh, in_specs=P("rank"), out_specs=P("rank")))
    first, second = np.arange(1024, dtype=np.float32), np.arange(1024, 2048, dtype=np.float32)
    result = run(jnp.concatenate([first, second]))
    right_values = np.array_equal(result, np.concatenate([second, first + 2 * second]))
    yield {"right_values": right_values, "messages": statistics()["messages"]}


def compilers() -> Iterator[dict[str, Any]]:
    """Find for each platform what compile_for lacks: the command that brings it, or None."""
    from peerax.targets import missing_package, parse_target

    for target in map(parse_target, ("h100:8", "v5e:2x4")):
        yield {target.platform: missing_package(target)}


if __name__ == "__main__":
    main(sys.argv[1])
