"""Steps of a pipeline against GPipe by automatic differentiation: a scan with ppermute, and what JAX makes of it.

    python benchmarks/pipeline.py [--microbatches 8 32] [--width 128] [--repeat 9] [--quick]

Prints Markdown tables with the environment: the time of a step, that of all processors together, and the bytes that the
program needs besides its arguments and results, on each of 4 ranks. Each number of microbatches is a process of its
own. Within it all programs have the same loss and gradients, which is checked, and take turns; a ratio is the median of
those of all turns.

Then it measures what forwards, backwards and halves of backwards take on one device, and says what ZB-H1 would gain
over 1F1B with as many microbatches as ranks, and what it does gain.
"""

import argparse
import os
import subprocess
import sys
import time
from functools import partial

from exchange import environment, median

RANKS, LAYERS_PER_RANK = 4, 2
HEADER = """
| program | keeps | ticks | step, ms | times baseline | processors, ms | times baseline | bytes, KiB | times baseline |
|---|---|---:|---:|---:|---:|---:|---:|---:|"""
BASELINE = "GPipe by autodiff"


def stage(weights, x):
    """As many layers as are in the weights; hidden layers are four times as wide."""
    import jax.numpy as jnp

    for up, down in zip(weights["up"], weights["down"], strict=True):
        x = x + jnp.tanh(x @ up) @ down
    return x


def squares(y, targets):
    return ((y - targets) ** 2).mean()


def numbers(width: int, examples: int):
    """Return the weights of all layers, what goes in, and what should come out."""
    import numpy as np

    random = np.random.default_rng(0)
    layers = RANKS * LAYERS_PER_RANK
    shapes = {"up": (layers, width, 4 * width), "down": (layers, 4 * width, width)}
    weights = {name: random.normal(size=shape).astype(np.float32) / width for name, shape in shapes.items()}
    return weights, *(random.normal(size=(examples, width)).astype(np.float32) for _ in range(2))


def seconds(program, arguments) -> tuple[float, float]:
    """Return how long a program takes, and how long its threads compute."""
    import jax

    begin, computing = time.perf_counter(), time.process_time()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - begin, time.process_time() - computing


def in_turns(programs: dict, arguments: dict, repeat: int) -> dict:
    """Return the times of each program, and those of its threads, in which the same place is the same turn."""
    taken = {key: ([], []) for key in programs}
    for _ in range(repeat):
        for key, program in programs.items():
            for times, value in zip(taken[key], seconds(program, arguments[key]), strict=True):
                times.append(value)
    return taken


def ratio(times: list[float], of: list[float]) -> float:
    return median([a / b for a, b in zip(times, of, strict=True)])


def by_autodiff(mesh, microbatches: int, remat: bool):
    """What one writes without schedules: ranks in which no microbatch is compute too, and count for nothing."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    right = [(rank, rank + 1) for rank in range(RANKS - 1)]
    of_stage = jax.checkpoint(stage) if remat else stage

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("stage"), P(), P()), out_specs=P())
    def loss(weights, x, targets):
        rank = jax.lax.axis_index("stage")
        mine = jax.tree.map(lambda leaf: leaf[0], weights)
        x, targets = (a.reshape(-1, microbatches, a.shape[-1]).swapaxes(0, 1) for a in (x, targets))

        def tick(arrived, number):
            first = x[jnp.minimum(number, microbatches - 1)]
            y = of_stage(mine, jnp.where(rank == 0, first, arrived))
            last = number - (RANKS - 1)
            counts = (rank == RANKS - 1) & (last >= 0)
            of_last = jnp.where(counts, squares(y, targets[jnp.maximum(last, 0)]), 0.0)
            return jax.lax.ppermute(y, "stage", right), of_last

        nothing = jax.lax.pcast(jnp.zeros_like(x[0]), "stage", to="varying")
        _, losses = jax.lax.scan(tick, nothing, jnp.arange(microbatches + RANKS - 1))
        return jax.lax.psum(losses.sum(), "stage") / microbatches

    return jax.value_and_grad(loss)


class Bench:
    """The programs of one number of microbatches, compiled, with their arguments."""

    def __init__(self, width: int, examples: int, microbatches: int) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh

        self.mesh, self.microbatches = Mesh(np.array(jax.devices()[:RANKS]), ("stage",)), microbatches
        self.layers, self.x, self.targets = numbers(width, examples * microbatches)
        self.programs, self.arguments, self.ticks = {}, {}, {}

    def add_baseline(self, remat: bool) -> None:
        self._add((BASELINE, remat), by_autodiff(self.mesh, self.microbatches, remat), None)

    def add(self, name: str, remat: bool, **options) -> None:
        """Add a schedule."""
        from peerax.pipeline import schedule, value_and_grad
        from peerax.pipeline.executor._ticks import in_ticks

        made = schedule(name, RANKS, self.microbatches)
        options = {"schedule": made, "axis_name": "stage", "mesh": self.mesh, "remat": remat, **options}
        self._add((name, remat), value_and_grad(stage, squares, **options), made)
        self.ticks[name, remat] = len(in_ticks(made))

    def _add(self, key, function, made) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        from peerax.pipeline import stack_stages

        stages = made.stages if made else RANKS
        weights = jax.tree.map(lambda a: a.reshape(stages, -1, *a.shape[1:]), self.layers)
        if made:
            weights = stack_stages([jax.tree.map(lambda a, s=s: a[s], weights) for s in range(stages)], made)
        weights = jax.device_put(weights, NamedSharding(self.mesh, PartitionSpec("stage")))
        self.arguments[key] = (
            weights,
            *jax.device_put((self.x, self.targets), NamedSharding(self.mesh, PartitionSpec())),
        )
        self.programs[key] = jax.jit(function).lower(*self.arguments[key]).compile()
        self._check(key, made)

    def _check(self, key, made) -> None:
        """Its loss and gradients are those of the first one."""
        import jax
        import numpy as np

        from peerax.pipeline import unstack_stages

        loss, grads = self.programs[key](*self.arguments[key])
        if made:
            grads = jax.tree.map(lambda *each: np.stack(each), *unstack_stages(grads, made))
        grads = jax.tree.map(lambda g, w: np.asarray(g).reshape(w.shape), grads, self.layers)
        if not hasattr(self, "wanted"):
            self.wanted = loss, grads
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), (loss, grads), self.wanted)

    def report(self, repeat: int) -> None:
        taken = in_turns(self.programs, self.arguments, repeat)
        sizes = {key: p.memory_analysis().temp_size_in_bytes / 1024 for key, p in self.programs.items()}
        print(f"\n{self.microbatches} microbatches:\n{HEADER}")
        for (name, remat), times in taken.items():
            baseline = BASELINE, remat
            columns = [(median(a) * 1e3, ratio(a, b)) for a, b in zip(times, taken[baseline], strict=True)]
            print(
                f"| {name} | {'inputs' if remat else 'activations'} | {self.ticks.get((name, remat), '')} "
                f"| {' | '.join(f'{ms:.1f} | {of:.2f}' for ms, of in columns)} | {sizes[name, remat]:,.0f} "
                f"| {sizes[name, remat] / sizes[baseline]:.2f} |"
            )
        sys.stdout.flush()


def halves(width: int, examples: int, repeat: int) -> None:
    """ZB-H1 and 1F1B with as many microbatches as ranks: what measured costs promise, and what is."""
    import jax

    from peerax.pipeline import Costs, schedule
    from peerax.pipeline.executor import _stages

    layers, x, _ = numbers(width, examples)
    weights = jax.tree.map(lambda a: a[:LAYERS_PER_RANK], layers)
    traced = _stages.stage(lambda w, x, _: (stage(w, x), None), weights, x, (), split=True)
    forward = jax.jit(lambda w, x: traced.forward(w, x, ()))
    *_, kept_input, kept_both = forward(weights, x)
    first = jax.jit(lambda w, x, *kept_and_dy: traced.input_half(w, x, (), *kept_and_dy))
    _, between = first(weights, x, kept_input, kept_both, x)
    programs = {
        "F": (forward, (weights, x)),
        "B": (jax.jit(lambda w, x, *more: traced.backward(w, x, (), *more)), (weights, x, kept_input, kept_both, x)),
        "I": (first, (weights, x, kept_input, kept_both, x)),
        "W": (jax.jit(lambda w, x, *more: traced.weights_half(w, x, (), *more)), (weights, x, kept_both, x, between)),
    }
    programs, arguments = ({key: pair[part] for key, pair in programs.items()} for part in (0, 1))
    in_turns(programs, arguments, 1)
    taken = {key: median(times) for key, (times, _) in in_turns(programs, arguments, 10 * repeat).items()}
    costs = Costs(taken["F"], taken["B"], taken["I"], taken["W"])
    print("\nOn one device:", ", ".join(f"{kind} {time_s * 1e3:.2f} ms" for kind, time_s in taken.items()) + ".")
    print(f"In I and W together it is {(taken['I'] + taken['W']) / taken['B']:.2f} of B.")

    bench = Bench(width, examples, RANKS)
    for name in ("1f1b", "zb-h1"):
        bench.add(name, False)
    real = {
        name: times
        for (name, remat), (times, _) in in_turns(bench.programs, bench.arguments, repeat).items()
        if not remat
    }
    print(
        f"\n{RANKS} microbatches:\n\n"
        f"| schedule | simulated, ms | all its work / {os.cpu_count()} cores, ms | step, ms |"
    )
    print("|---|---:|---:|---:|")
    replays = {name: schedule(name, RANKS, RANKS).replay(costs) for name in ("1f1b", "zb-h1")}
    for name, replay in replays.items():
        work = sum(replay.busy_s) / os.cpu_count()
        print(f"| {name} | {replay.makespan_s * 1e3:.1f} | {work * 1e3:.1f} | {median(real[name]) * 1e3:.1f} |")
    simulated = replays["1f1b"].makespan_s / replays["zb-h1"].makespan_s
    print(f"\nZB-H1 is {simulated:.2f} times faster in the simulation, where each rank has a core of its own;", end=" ")
    print(f"here {ratio(real['1f1b'], real['zb-h1']):.2f} times.")


def measure(microbatches: int, options) -> None:
    """Print the table of one number of microbatches. Runs in a process with as many devices as ranks."""
    from peerax.pipeline import SCHEDULES

    if microbatches == RANKS:
        return halves(options.width, options.examples, options.repeat)
    bench = Bench(options.width, options.examples, microbatches)
    for remat in (False, True):
        bench.add_baseline(remat)
    for name in options.schedules or SCHEDULES:
        for remat in (False, True):
            bench.add(name, remat)
    bench.report(options.repeat)


def options_of_sizes(description: str) -> argparse.ArgumentParser:
    """Return a parser of what all benchmarks of pipelines are asked."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--width", type=int, default=128, help="of the stages")
    parser.add_argument("--examples", type=int, default=64, help="in a microbatch")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a narrow stage, and little of all else")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    parser = options_of_sizes(__doc__.splitlines()[0])
    parser.add_argument("--schedules", nargs="+", help="only these")
    options = parser.parse_args()
    if options.quick:
        options.width, options.examples, options.repeat, options.microbatches = 8, 4, 1, [8]
        options.schedules = ["zb-h1"]
    if options.child:
        return measure(options.child, options)
    print(environment(), flush=True)
    print(
        f"\n{RANKS} ranks, {LAYERS_PER_RANK} layers each, width {options.width}, {options.examples} examples in a "
        f"microbatch. Load when it began: {os.getloadavg()[0]:.1f}.",
        flush=True,
    )
    for microbatches in (*options.microbatches, RANKS):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={RANKS}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, __file__, "--child", str(microbatches), *sys.argv[1:]], env=env, check=True)


if __name__ == "__main__":
    main()
