"""The heat equation on a rod that is cut into pieces, one for each device.

    peerax run examples/halo.py --devices 4

In each step a point takes the values of its two neighbours. At the end of a piece the neighbour is on another
device, so each device sends the values at its ends to the left and to the right, and receives theirs: its
halo. That concerns neighbours only; nobody waits for all devices.

The ends of the rod are kept at 0. That comes by itself: a rank that is no destination receives zeros.
The result is compared with the same steps on one device; both do the same arithmetic, point by point.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import peerax

POINTS_PER_DEVICE, STEPS = 256, 2000
SPEED = 0.25  # at most 0.5, or the steps are too long for the equation to stay stable


def advance(left, middle, right):
    """Compute one step of middle, whose neighbours are left and right."""
    return middle + SPEED * (left - 2 * middle + right)


def on_pieces(u, size):
    """Compute all steps of one piece. Runs on every device."""
    to_right = [(rank, rank + 1) for rank in range(size - 1)]
    to_left = [(rank + 1, rank) for rank in range(size - 1)]

    def step(u, _):
        # A receive that is given the token of its send makes a pair with it: it cannot hang.
        token = peerax.psend(u[-1:], "x", to_right)
        from_left = peerax.precv(token, u[-1:], "x", to_right)
        token = peerax.psend(u[:1], "x", to_left)
        from_right = peerax.precv(token, u[:1], "x", to_left)
        with_halo = jnp.concatenate([from_left, u, from_right])
        return advance(with_halo[:-2], u, with_halo[2:]), None

    return lax.scan(step, u, length=STEPS)[0]


def on_one_device(u):
    """Compute all steps of the whole rod."""

    def step(u, _):
        with_ends = jnp.pad(u, 1)
        return advance(with_ends[:-2], u, with_ends[2:]), None

    return lax.scan(step, u, length=STEPS)[0]


def draw(u, columns=64):
    """Draw the temperatures along the rod as one line of text."""
    shades = " .:-=+*#%@"
    levels = np.asarray(u).reshape(columns, -1).mean(axis=1) / float(jnp.abs(u).max()) * (len(shades) - 1)
    return "|" + "".join(shades[round(level)] for level in levels) + "|"


def main():
    size = len(jax.devices())
    mesh = Mesh(np.array(jax.devices()), ("x",))
    positions = jnp.linspace(0, 1, size * POINTS_PER_DEVICE)
    start = jnp.where(abs(positions - 0.4) < 0.1, 1.0, 0.0)  # a hot spot across several pieces

    spread = jax.jit(jax.shard_map(lambda u: on_pieces(u, size), mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    end = spread(start)
    expected = jax.jit(on_one_device)(start)

    print(f"start {draw(start)}")
    print(f"end   {draw(end)}")
    print(f"{size} devices, {STEPS} steps, {POINTS_PER_DEVICE} points on each device")
    print(f"largest difference from one device: {np.abs(np.asarray(end) - expected).max()}")


if __name__ == "__main__":
    main()
