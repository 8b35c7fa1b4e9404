"""Compile a program ahead of time for GPUs and TPUs that are not there.

A target is a name such as "h100:8" (GPUs of one host), "h100:4x8" (hosts x GPUs each) or "v5p:4x4x4" (a TPU topology).
"""

import dataclasses
import math
import os
import re
from importlib.util import find_spec
from typing import Any

import jax

import peerax.ops as _ops  # noqa: F401  (its lowering rules)
from peerax import _jax
from peerax.diagnostics import PeeraxError

# Facts from the vendor's data sheets and from what CUDA reports on such a device: compute capability, multiprocessors,
# bytes of shared memory per multiprocessor, bytes per second, bytes of L2 cache, GHz, bytes of memory, name.
_GPUS = {
    "a100": (8, 0, 108, 167936, 2_039_000_000_000, 41943040, 1.41, 85_100_000_000, "NVIDIA A100-SXM4-80GB"),
    "h100": (9, 0, 132, 233472, 3_352_320_000_000, 52428800, 1.98, 85_028_896_768, "NVIDIA H100 80GB HBM3"),
    "h200": (9, 0, 132, 233472, 4_800_000_000_000, 52428800, 1.98, 150_100_000_000, "NVIDIA H200"),
}
_TPUS = ("v4", "v5e", "v5p", "v6e")

_NO_TPU_MACHINE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

_GPU_CONFIG = """
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {l2}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {optin}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 minor: 0 }}
device_description_str: "{name}"
"""


@dataclasses.dataclass(frozen=True)
class Target:
    """What a program is compiled for.

    name: as given, "h100:4x8". platform: "cuda" or "tpu". kind: "h100". shape: (4, 8).
    """

    name: str
    platform: str
    kind: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class CompiledFor:
    """A program compiled for devices that are not there.

    hlo is the optimized program as text. memory holds bytes per device: arguments, outputs, temporaries, code.
    executable is JAX's compiled object; it can be inspected and serialized, not run.
    """

    target: Target
    hlo: str
    memory: dict[str, int]
    executable: Any


def parse_target(name: str) -> Target:
    """Return the target of that name.

    Raises:
      PeeraxError: PX403, with the valid names.
    """
    found = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if found:
        kind, shape = found[1], tuple(int(n) for n in found[2].split("x"))
        if all(shape):
            if kind in _GPUS and len(shape) <= 2:
                return Target(name, "cuda", kind, shape)
            if kind in _TPUS and 2 <= len(shape) <= 3:
                return Target(name, "tpu", kind, shape)
    raise PeeraxError.of(
        "PX403",
        f"there is no target {name!r}; GPUs: {', '.join(_GPUS)} as KIND:GPUS or KIND:HOSTSxGPUS; "
        f"TPUs: {', '.join(_TPUS)} as KIND:TOPOLOGY",
        help='for example "h100:8", "h100:4x8", "v5e:2x4" or "v5p:4x4x4"',
    )


def compile_for(fn: Any, *args: Any, target: str, **kwargs: Any) -> CompiledFor:
    """Compile a function for a target, on a machine that has no such device.

    The function may be jitted, and may use a mesh of as many CPU devices as the target has, or a
    jax.sharding.AbstractMesh: for the large ones.

    Args:
      fn: a function of arrays.
      *args: arrays or jax.ShapeDtypeStruct, with shardings where they matter.
      target: "h100:8", "a100:8", "h100:4x8" (hosts x GPUs), "v5e:2x4", "v5p:4x4x4" and so on.
      **kwargs: further arguments of fn.

    Returns:
      The compiled program, its memory figures and its optimized HLO.

    Raises:
      PeeraxError: PX213 (a separate operation on a TPU), PX403 (no such target, a package is missing, or the program
        has another number of devices); and what tracing and compiling fn raises.

    Transformations: jit no · vmap no · grad no · scan no

    Example:
      >>> peerax.compile_for(step, x, target="h100:8").memory["temporaries"]
    """
    wanted = parse_target(target)
    jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
    lowered = jitted.trace(*args, **kwargs).lower(lowering_platforms=(wanted.platform,))
    return compile_computation(_jax.computation_of(lowered), wanted)


def compile_computation(computation: Any, wanted: Target) -> CompiledFor:
    """Compile for a target what was lowered for its platform.

    Raises:
      PeeraxError: PX403 (a package is missing, or the program has another number of devices).
    """
    size = _jax.device_count_of(computation)
    if size not in (wanted.size, 1):
        raise PeeraxError.of(
            "PX403",
            f"the program is for {size} devices, and {wanted.name} has {wanted.size}",
            help=f"give the mesh {wanted.size} devices, or choose a target with {size}",
        )
    executable = _jax.compile_for_devices(computation, _devices(wanted)[:size])
    stats = executable.memory_analysis()
    memory = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    return CompiledFor(wanted, executable.as_text(), memory, executable)


def missing_package(target: Target) -> str | None:
    """Return the command that brings what compiling for a target needs, or None if it is there."""
    if target.platform == "tpu":
        return None if _found("libtpu") else 'pip install "peerax[tpu]"'
    plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
    return None if any(_found(name) for name in plugins) else 'pip install "peerax[cuda13]"'


def require_compiler(target: Target) -> None:
    """Raise PeeraxError, PX403, if what compiling for a target needs is not installed."""
    command = missing_package(target)
    if command is not None:
        raise PeeraxError.of(
            "PX403", f"compiling for {target.name} needs a package that is not installed", help=command
        )


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _devices(target: Target) -> list[Any]:
    from jax.experimental import topologies

    require_compiler(target)
    if target.platform == "tpu":
        # libtpu looks for the machine it is on and complains on standard error that there is none.
        for name, value in _NO_TPU_MACHINE.items():
            os.environ.setdefault(name, value)
        name = f"{target.kind}:{'x'.join(map(str, target.shape))}"
        return list(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)
    hosts, gpus = target.shape if len(target.shape) == 2 else (1, target.shape[0])
    return list(
        topologies.get_topology_desc(
            platform="cuda",
            topology_name=target.kind,
            target_config=_gpu_config(target.kind),
            topology=f"1x{hosts}x{gpus}",
        ).devices
    )


def _gpu_config(kind: str) -> str:
    major, minor, cores, shared, bandwidth, l2, clock, memory, name = _GPUS[kind]
    return _GPU_CONFIG.format(
        major=major,
        minor=minor,
        cores=cores,
        shared=shared,
        optin=shared - 1024,
        fpus=128 if major >= 9 else 64,
        bandwidth=bandwidth,
        l2=l2,
        clock=clock,
        memory=memory,
        name=name,
    )
