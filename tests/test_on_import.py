"""peerax imported before JAX: its hooks are there when JAX is, whoever looked for JAX in between."""

import textwrap

import pytest

EAGER = """
import numpy as np
assert "peerax.ops" in sys.modules
assert not any(type(finder).__module__.startswith("peerax") for finder in sys.meta_path)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
ring = [(rank, (rank + 1) % 4) for rank in range(4)]

def body(x):
    return peerax.precv(peerax.psend(x, "x", ring), x, "x", ring)

spec = jax.sharding.PartitionSpec("x")
run = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
assert run(jax.numpy.arange(4)).tolist() == [3, 0, 1, 2]
assert type(jax.__loader__).__module__ == type(jax.__spec__.loader).__module__ == type(np.__loader__).__module__
"""

BEFORE = {
    "nobody": "",
    "find_spec": """
        for _ in range(2):
            assert importlib.util.find_spec("jax").origin.endswith("__init__.py")
    """,
    "peerax twice": """
        for name in [name for name in sys.modules if name.startswith("peerax")]:
            del sys.modules[name]
        import peerax
        assert importlib.util.find_spec("jax").origin.endswith("__init__.py")
        assert importlib.util.find_spec("peerax_has_no_such_neighbour") is None
    """,
    "an import that fails": """
        sys.modules["jaxlib"] = None
        try:
            import jax
        except ImportError:
            del sys.modules["jaxlib"]
            for name in [name for name in sys.modules if name.startswith("jax")]:
                del sys.modules[name]
    """,
}


@pytest.mark.parametrize("before", BEFORE)
def test_an_eager_shard_map_runs(before, run_python):
    start = "import importlib.util, sys\nimport peerax\nassert 'jax' not in sys.modules\n"
    done = run_python(f"{start}{textwrap.dedent(BEFORE[before])}\nimport jax\n{EAGER}")
    assert (done.returncode, done.stderr) == (0, "")
