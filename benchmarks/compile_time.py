"""How long a pipeline takes until it runs, against the same pipeline with jax.lax.ppermute in the same run.

    python benchmarks/compile_time.py [--ranks 4] [--steps 64] [--repeat 9] [--processor-time]

Prints Markdown tables with the environment: the time to trace, lower and compile a pipeline of so many steps, scanned
and unrolled, and its gradient. Every repetition begins with empty caches and traces, lowers and compiles both programs,
one after the other and the first of the last time second; the median of the repetitions counts, or, on a machine that
has other work, the least processor time. Ratios, unlike times, can be compared between runs.
"""

import argparse
import gc
import os
import time

from exchange import environment, median

HEADER = """
| pipeline | phase | peerax, ms | ppermute, ms | ratio |
|---|---|---:|---:|---:|"""
PHASES = ("trace", "lower", "compile")


def measure(ranks: int, steps: int, repeat: int, processor_time: bool) -> None:
    """Print the rows, with the first so many devices."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec

    import peerax

    clock, chosen = (time.process_time, min) if processor_time else (time.perf_counter, median)
    mesh = Mesh(np.array(jax.devices()[:ranks]), ("stage",))
    ring = [(i, (i + 1) % ranks) for i in range(ranks)]

    def with_peerax(x):
        return peerax.precv(peerax.psend(x, "stage", ring), x, "stage", ring)

    def with_ppermute(x):
        return lax.ppermute(x, "stage", ring)

    def pipeline(move, scanned):
        """The loss of a pipeline: each step, every stage computes, and its result moves on."""

        def step(w, arrived, x):
            result = jnp.tanh(jnp.where(lax.axis_index("stage") == 0, x, arrived) @ w)
            return move(result), result

        def loss(w, xs):
            arrived = jnp.zeros_like(xs[0]) + 0 * w[0, 0, 0]
            if scanned:
                _, results = lax.scan(lambda carry, x: step(w[0], carry, x), arrived, xs)
            else:
                results = []
                for x in xs:
                    arrived, result = step(w[0], arrived, x)
                    results.append(result)
                results = jnp.stack(results)
            last = lax.axis_index("stage") == ranks - 1
            return lax.psum(jnp.where(last, results[ranks - 1 :], 0).sum(), "stage")

        specs = PartitionSpec("stage"), PartitionSpec()
        return jax.shard_map(loss, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())

    random = np.random.default_rng(0)
    arguments = (
        random.normal(size=(ranks, 16, 16)).astype(np.float32),
        random.normal(size=(steps, 8, 16)).astype(np.float32),
    )

    def seconds(make):
        """Seconds of each phase, and the program."""
        jax.clear_caches()
        gc.collect()
        f = jax.jit(make())
        times = [clock()]
        traced = f.trace(*arguments)
        times.append(clock())
        lowered = traced.lower()
        times.append(clock())
        compiled = lowered.compile()
        times.append(clock())
        return [end - begin for begin, end in zip(times[:-1], times[1:], strict=True)], compiled

    for name, scanned, transform in (
        ("scanned", True, lambda f: f),
        ("scanned, gradient", True, jax.grad),
        ("unrolled", False, lambda f: f),
        ("unrolled, gradient", False, jax.grad),
    ):
        programs = [lambda m=m, s=scanned, t=transform: t(pipeline(m, s)) for m in (with_peerax, with_ppermute)]
        results = [np.asarray(seconds(make)[1](*arguments)) for make in programs]  # and warms up
        assert np.allclose(*results, rtol=1e-6), "peerax and ppermute differ"
        times = [[], []]
        for i in range(repeat):
            for which in (0, 1) if i % 2 else (1, 0):
                times[which].append(seconds(programs[which])[0])
        rows = [[*zip(*taken, strict=True), [sum(x) for x in taken]] for taken in times]
        for phase, ours, theirs in zip((*PHASES, "all"), *rows, strict=True):
            ours, theirs = chosen(ours), chosen(theirs)
            print(f"| {name} | {phase} | {ours * 1e3:.1f} | {theirs * 1e3:.1f} | {ours / theirs:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--processor-time", action="store_true", help="take the least processor time")
    options = parser.parse_args()
    # Before anything imports JAX.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={options.ranks}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    taken = "least processor times" if options.processor_time else "medians"
    print(f"{environment()}; {options.steps} steps on {options.ranks} ranks, {taken} of {options.repeat}")
    print(HEADER, flush=True)
    measure(options.ranks, options.steps, options.repeat, options.processor_time)


if __name__ == "__main__":
    main()
