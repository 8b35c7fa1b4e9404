"""install(): peerax's functions in jax.lax, whatever JAX still has there."""

PRELUDE = """
import warnings
warnings.simplefilter("error")
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

def shift(x):
    right = [(0, 1), (1, 2), (2, 3)]
    token = jax.lax.psend(x, "x", right)
    x, token = jax.lax.optimization_barrier((x, token))
    return jax.lax.precv(token, jax.ShapeDtypeStruct(x.shape, x.dtype), "x", right)

def check():
    mesh = Mesh(np.array(jax.devices()), ("x",))
    run = jax.jit(jax.shard_map(shift, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    np.testing.assert_array_equal(run(jnp.arange(4.0)), [0, 0, 1, 2])
"""


def check(run_python, program):
    done = run_python(PRELUDE + program)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_are_peeraxs_and_no_warning_is_given(run_python):
    check(
        run_python,
        """
import peerax
assert peerax.install() is None
assert jax.lax.psend is peerax.psend and jax.lax.precv is peerax.precv
assert jax.lax.create_token is peerax.create_token
from jax.lax import psend
assert psend is peerax.psend
check()
""",
    )


def test_a_second_time_changes_nothing(run_python):
    check(
        run_python,
        """
import peerax
peerax.install()
names = ("psend", "precv", "create_token", "optimization_barrier")
before = [getattr(jax.lax, name) for name in names]
peerax.install()
assert all(getattr(jax.lax, name) is value for name, value in zip(names, before))
check()
""",
    )


def test_order_is_lowered_to_jaxs_barrier(run_python):
    check(
        run_python,
        """
import peerax
peerax.install()
mesh = Mesh(np.array(jax.devices()), ("x",))
def separate(x):
    jax.lax.psend(x, "x", [(0, 1)])
    return jax.lax.precv(jax.lax.create_token(), x, "x", [(0, 1)])
run = jax.jit(jax.shard_map(separate, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
text = run.trace(jnp.arange(4.0)).lower(lowering_platforms=("cuda",)).as_text()
assert "stablehlo.optimization_barrier" in text
""",
    )


def test_barrier_without_a_token_is_jaxs_own(run_python):
    check(
        run_python,
        """
import peerax
text = jax.lax.optimization_barrier.__doc__
peerax.install()
assert jax.lax.optimization_barrier.__doc__ == text
x, y = jnp.arange(3.0), {"y": jnp.arange(2)}
jaxpr = jax.make_jaxpr(jax.lax.optimization_barrier)((x, y))
assert [e.primitive.name for e in jaxpr.eqns] == ["optimization_barrier"], jaxpr
a, b = jax.lax.optimization_barrier((x, y))
np.testing.assert_array_equal(a, x)
np.testing.assert_array_equal(b["y"], y["y"])
""",
    )


def test_barrier_with_a_token_is_order(run_python):
    check(
        run_python,
        """
import peerax
peerax.install()
token, x = jax.lax.create_token(), jnp.arange(3.0)
jaxpr = jax.make_jaxpr(jax.lax.optimization_barrier)((x, token))
assert [e.primitive.name for e in jaxpr.eqns] == ["peerax_order"], jaxpr
a, b = jax.lax.optimization_barrier((x, token))
np.testing.assert_array_equal(a, x)
np.testing.assert_array_equal(b, token)
""",
    )


def test_names_that_jax_no_longer_has(run_python):
    check(
        run_python,
        """
for name in ("psend", "precv", "create_token", "optimization_barrier"):
    vars(jax.lax).pop(name, None)
    jax.lax._deprecations.pop(name, None)
    assert not hasattr(jax.lax, name)
import peerax
peerax.install()
check()
x, y = jax.lax.optimization_barrier((jnp.arange(3.0), jnp.arange(2)))
np.testing.assert_array_equal(x, [0, 1, 2])
np.testing.assert_array_equal(y, [0, 1])
""",
    )
