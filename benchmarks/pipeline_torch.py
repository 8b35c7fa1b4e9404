"""Steps of 1F1B on 4 ranks, against torch.distributed.pipelining on the same machine in the same run.

    pip install torch==2.13.0
    python benchmarks/pipeline_torch.py [--microbatches 8 32] [--width 128] [--repeat 9] [--quick]

Torch has a process for each rank, which talk over gloo, and peerax one process with as many devices. Both compute the
same model in float32, keep the activations of forwards, and return the same loss and gradients, which is checked. They
take turns, while the other one sleeps; the ratio is the median of those of all turns.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

from exchange import environment, median
from pipeline import LAYERS_PER_RANK, RANKS, Bench, numbers, options_of_sizes, ratio, seconds


def rank_of_torch(rank: int, port: int, microbatches: int, width: int, examples: int) -> None:
    """Answer each line of the input with a step; lines come from the process that measures."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.set_num_threads(1)  # there are more ranks than cores
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    layers, x, targets = numbers(width, examples * microbatches)
    mine = slice(rank * LAYERS_PER_RANK, (rank + 1) * LAYERS_PER_RANK)

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Parameter(torch.from_numpy(layers["up"][mine].copy()))
            self.down = torch.nn.Parameter(torch.from_numpy(layers["down"][mine].copy()))

        def forward(self, x):
            for up, down in zip(self.up, self.down, strict=True):
                x = x + torch.tanh(x @ up) @ down
            return x

    module = Stage()
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=torch.nn.functional.mse_loss)
    x, targets = torch.from_numpy(x), torch.from_numpy(targets)
    for _ in sys.stdin:
        module.zero_grad()
        dist.barrier()
        losses, begin = [], time.perf_counter()
        if rank == 0:
            schedule.step(x)
        elif rank == RANKS - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        end = time.perf_counter()
        loss = sum(each.item() for each in losses) / microbatches
        squared = [float((p.grad.double() ** 2).sum()) for p in (module.up, module.down)]
        print(json.dumps([begin, end, loss, squared]), flush=True)
    dist.destroy_process_group()


class Torch:
    """The processes of torch."""

    def __init__(self, microbatches: int, options) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        what = [str(number) for number in (port, microbatches, options.width, options.examples)]
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--torch-rank", str(rank), *what],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]

    def step(self) -> tuple[float, float, list[float]]:
        """Return the seconds from the first begin to the last end, the loss, and squared norms of gradients."""
        for process in self.processes:
            process.stdin.write("step\n")
            process.stdin.flush()
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            raise RuntimeError("a process of torch has ended")
        begins, ends, losses, squared = zip(*map(json.loads, lines), strict=True)
        return max(ends) - min(begins), max(losses), [sum(each) for each in zip(*squared, strict=True)]

    def close(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(60)
            process.stdout.close()


def measure(microbatches: int, options) -> None:
    """Print the row of one number of microbatches. Runs in a process with as many devices as ranks."""
    import numpy as np

    bench = Bench(options.width, options.examples, microbatches)
    bench.add("1f1b", False)
    ours, arguments = bench.programs["1f1b", False], bench.arguments["1f1b", False]
    loss, grads = ours(*arguments)
    theirs = Torch(microbatches, options)
    try:
        theirs.step()
        _, loss_of_torch, squared = theirs.step()
        np.testing.assert_allclose(loss_of_torch, loss, rtol=1e-5)
        wanted = [(np.asarray(grads[name], np.float64) ** 2).sum() for name in ("up", "down")]
        np.testing.assert_allclose(squared, wanted, rtol=1e-4)
        taken = [[], []]
        for _ in range(options.repeat):
            taken[0].append(seconds(ours, arguments)[0])
            taken[1].append(theirs.step()[0])
    finally:
        theirs.close()
    times_s = [median(each) * 1e3 for each in taken]
    print(f"| {microbatches} | {times_s[0]:.1f} | {times_s[1]:.1f} | {ratio(taken[1], taken[0]):.2f} |", flush=True)


def main() -> None:
    parser = options_of_sizes(__doc__.splitlines()[0])
    parser.add_argument("--torch-rank", type=int, nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_rank:
        return rank_of_torch(*options.torch_rank)
    if options.quick:
        options.width, options.examples, options.repeat, options.microbatches = 8, 4, 3, [8]
    if options.child:
        return measure(options.child, options)
    import torch

    print(f"{environment()}, torch {torch.__version__}")
    print("\n| microbatches | peerax, ms | torch, ms | times faster |\n|---:|---:|---:|---:|", flush=True)
    for microbatches in options.microbatches:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={RANKS}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, __file__, "--child", str(microbatches), *sys.argv[1:]], env=env, check=True)


if __name__ == "__main__":
    main()
