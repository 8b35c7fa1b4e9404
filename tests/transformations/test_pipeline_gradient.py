"""The gradient of a pipeline that is written for jax.lax.psend and precv equals that of its ppermute version."""

import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import sys
    import peerax
    peerax.install()

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    STAGES, MICROBATCHES, ROUNDS, BATCH, WIDTH = int(sys.argv[1]), 3, 2, 2, 4
    DOWN = [(s, s + 1) for s in range(STAGES - 1)]
    UP = [(STAGES - 1, 0)]
    SHAPE = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32)


    def work(weights, fresh, t, came, returned):
        first = lax.axis_index("stage") == 0
        x = jnp.where(t < MICROBATCHES, fresh[t % MICROBATCHES], returned)
        return jnp.tanh(jnp.where(first, x, came) @ weights)


    def put(results, new, t):
        return lax.dynamic_update_index_in_dim(results, new, (t + 2) % MICROBATCHES, 0)


    def of_sends(weights, fresh):
        # The receive of a tick meets the send of the next: one receive before the loop, one send after it.
        def tick(carry, t):
            results, mine, came, returned = carry
            sent = lax.psend(mine, "stage", DOWN)
            new = work(weights, fresh, t, came, returned)
            old, _ = lax.optimization_barrier((results[(t + 1) % MICROBATCHES], sent))
            returned = lax.ppermute(old, "stage", UP)
            token, _ = lax.optimization_barrier((lax.create_token(), returned))
            came = lax.precv(token, SHAPE, "stage", DOWN)
            return (put(results, new, t), new, came, returned), None

        zeros = jnp.zeros(SHAPE.shape)
        came = lax.precv(lax.create_token(), SHAPE, "stage", DOWN)
        ticks = jnp.arange(ROUNDS * MICROBATCHES + STAGES - 1)
        (results, mine, _, _), _ = lax.scan(tick, (jnp.zeros_like(fresh), zeros, came, zeros), ticks)
        lax.psend(mine, "stage", DOWN)
        return results


    def of_ppermute(weights, fresh):
        def tick(carry, t):
            results, mine, returned = carry
            came = lax.ppermute(mine, "stage", DOWN)
            new = work(weights, fresh, t, came, returned)
            returned = lax.ppermute(results[(t + 1) % MICROBATCHES], "stage", UP)
            return (put(results, new, t), new, returned), None

        zeros = jnp.zeros(SHAPE.shape)
        ticks = jnp.arange(ROUNDS * MICROBATCHES + STAGES - 1)
        return lax.scan(tick, (jnp.zeros_like(fresh), zeros, zeros), ticks)[0][0]


    def loss_of(version):
        def body(weights, fresh):
            return version(weights[0], fresh)[None]

        mesh = Mesh(np.array(jax.devices()), ("stage",))
        results = jax.shard_map(body, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"), check_vma=False)
        return lambda weights, fresh: ((results(weights, fresh) - target) ** 2).mean()


    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.normal(size=(STAGES, WIDTH, WIDTH)), jnp.float32)
    fresh = jnp.asarray(rng.normal(size=(MICROBATCHES, BATCH, WIDTH)), jnp.float32)
    target = jnp.asarray(rng.normal(size=(BATCH, WIDTH)), jnp.float32)
    run = jax.jit if sys.argv[2] == "jit" else lambda f: f
    transforms = {
        "value_and_grad": lambda f: jax.value_and_grad(f, argnums=(0, 1)),
        "checkpoint": lambda f: jax.value_and_grad(jax.checkpoint(f)),
        "jvp": lambda f: lambda w, x: jax.jvp(f, (w, x), (w, x)),
        "vmap": lambda f: jax.vmap(jax.grad(f), in_axes=(None, 0)),
    }
    for name in sys.argv[3:]:
        batch = (jnp.stack([fresh, fresh * 2]),) if name == "vmap" else (fresh,)
        results = [run(transforms[name](loss_of(v)))(weights, *batch) for v in (of_sends, of_ppermute)]
        for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
            assert np.abs(theirs).max() > 1e-3
            print(name, float(jnp.abs(ours - theirs).max()))
    """
)


@pytest.mark.parametrize("stages, how", [(4, "jit"), (3, "jit"), (8, "no-jit")])
def test_equals_ppermutes(run_python, tmp_path, stages, how):
    transforms = ["value_and_grad", "checkpoint", "jvp", "vmap"] if how == "jit" else ["value_and_grad"]
    code = PROGRAM.replace("import sys\n", f"import sys\nsys.argv[1:] = {[str(stages), how, *transforms]!r}\n", 1)
    result = run_python(code, devices=stages, env={"PEERAX_TIMEOUT_S": "10"}, timeout_s=120)
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert {name for name, _ in lines} == set(transforms)
    assert all(float(difference) == 0 for _, difference in lines), result.stdout
