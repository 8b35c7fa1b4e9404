"""An exchange on a ring, one per scan step, against jax.lax.ppermute in the same run; and separate messages.

    python benchmarks/exchange.py [--ranks 2 4 8] [--repeat 9] [--quick] [--backward]

Prints Markdown tables with the environment. Each number of ranks is a process of its own, since the number of CPU
devices is fixed when JAX starts. Within it the two programs alternate, and the median of the repetitions counts;
ratios, unlike times, can be compared between runs. With --backward the programs are the transposed ones: the backward
pass of such a loop, and nothing else.
"""

import argparse
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

SIZES = {4: "4 B", 2**10: "1 KiB", 2**16: "64 KiB", 2**20: "1 MiB", 2**23: "8 MiB", 2**26: "64 MiB"}
HEADER = """
| ranks | message | peerax, µs per step | ppermute, µs per step | times faster | share of memcpy |
|---:|---:|---:|---:|---:|---:|"""


def steps_for(size_bytes: int, ranks: int) -> int:
    """Enough steps for a run of some tens of milliseconds."""
    return max(4, min(2000, int(4e8 / (size_bytes * ranks + 2e5))))


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def memcpy_seconds(size_bytes: int, ranks: int) -> float:
    """Seconds for every rank to copy one message, all at the same time, with nothing else to do."""
    import numpy as np

    # Filled, so that their pages are there before the clock runs.
    pairs = [(np.full(size_bytes, 2, np.uint8), np.full(size_bytes, 1, np.uint8)) for _ in range(ranks)]
    count = max(3, int(2e8 / (size_bytes * ranks + 1e4)))
    start = threading.Barrier(ranks + 1)

    def work(to, source):
        start.wait()
        for _ in range(count):
            np.copyto(to, source)

    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begin) / count


def measure(ranks: int, repeat: int, sizes: list[int], backward: bool) -> None:
    """Print the rows of one number of ranks. Runs in a process with that many devices."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import peerax

    mesh = Mesh(np.array(jax.devices()), ("x",))
    spec = PartitionSpec("x")
    ring = [(i, (i + 1) % ranks) for i in range(ranks)]

    def with_peerax(x, _):
        return peerax.precv(peerax.psend(x, "x", ring), x, "x", ring), None

    def with_ppermute(x, _):
        return lax.ppermute(x, "x", ring), None

    def program(step, steps):
        def loop(x):
            return lax.scan(step, x, None, length=steps)[0]

        f = jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec)
        return jax.jit((lambda x: jax.linear_transpose(f, x)(x)[0]) if backward else f)

    def seconds(f, x):
        begin = time.perf_counter()
        jax.block_until_ready(f(x))
        return time.perf_counter() - begin

    for size in sizes:
        steps = steps_for(size, ranks)
        x = np.random.default_rng(0).normal(size=(ranks * (size // 4),)).astype(np.float32)
        x = jax.device_put(x, NamedSharding(mesh, spec))
        programs = [program(with_peerax, steps), program(with_ppermute, steps)]
        results = [np.asarray(f(x)) for f in programs]
        assert np.array_equal(*results), "peerax and ppermute differ"
        times = [[], []]
        for _ in range(repeat):
            for f, taken in zip(programs, times, strict=True):
                taken.append(seconds(f, x) / steps)
        ours, theirs = median(times[0]), median(times[1])
        share = f"{memcpy_seconds(size, ranks) / ours:.0%}" if size >= 2**20 else ""
        print(f"| {ranks} | {SIZES[size]} | {ours * 1e6:.1f} | {theirs * 1e6:.1f} | {theirs / ours:.2f} | {share} |")
        sys.stdout.flush()

    if ranks == 2 and not backward:
        messages(program, seconds, jax.device_put(jnp.zeros(2), NamedSharding(mesh, spec)), repeat)


def messages(program, seconds, x, repeat: int) -> None:
    """Separate messages of 4 bytes: there and back, and a stream from rank 0 to rank 1."""
    import peerax

    there, back, steps = [(0, 1)], [(1, 0)], 2000

    def ping_pong(x, _):
        peerax.psend(x, "x", there)
        y = peerax.precv(peerax.create_token(), x, "x", there)
        peerax.psend(y, "x", back)
        return peerax.precv(peerax.create_token(), x, "x", back), None

    def stream(x, _):
        peerax.psend(x, "x", there)
        return peerax.precv(peerax.create_token(), x, "x", there), None

    latency, period = program(ping_pong, steps), program(stream, steps)
    for f in (latency, period):
        seconds(f, x)
    one_way = median([seconds(latency, x) / steps / 2 for _ in range(repeat)])
    each = median([seconds(period, x) / steps for _ in range(repeat)])
    print(f"\nA lone message of 4 bytes from rank 0 to rank 1: {one_way * 1e6:.1f} µs (half of there and back).")
    print(f"A stream of separate messages from rank 0 to rank 1: {1 / each:,.0f} messages per second.")


def processor(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The processor's name, from Linux where that has it; Python knows it on other systems only."""
    file = pathlib.Path(cpuinfo)
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def environment() -> str:
    import jax
    import jaxlib

    return (
        f"{platform.machine()} {processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, jax {jax.__version__}, jaxlib {jaxlib.__version__}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small messages only, few repetitions")
    parser.add_argument("--backward", action="store_true", help="the backward pass of the loop")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = list(SIZES)[:3] if options.quick else list(SIZES)
    repeat = 3 if options.quick else options.repeat
    if options.child:
        return measure(options.child, repeat, sizes, options.backward)
    print(environment())
    print(HEADER, flush=True)
    for ranks in options.ranks:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={ranks}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, __file__, "--child", str(ranks), *sys.argv[1:]], env=env, check=True)


if __name__ == "__main__":
    main()
