"""mesh, ranks and peerax_check."""

PROGRAM = """
    import jax
    import jax.numpy as jnp
    import pytest
    from jax.sharding import Mesh, PartitionSpec as P

    import peerax

    def on(mesh, body):
        return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))

    def pair(x):
        return peerax.precv(peerax.psend(x, "x", [(0, 1)]), x, "x", [(0, 1)])

    def receive(x):
        return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

    def cycle(x):
        peerax.psend(x, "x", [(0, 1), (1, 0)])
        return peerax.precv(peerax.create_token(), x, "x", [(0, 1), (1, 0)])

    def undecided(x):
        def send(x):
            peerax.psend(x, "x", [(0, 1)])
            return x + 1

        def small(x):
            return jax.lax.psum(x, "x")[0] < 100

        x = jax.lax.while_loop(small, send, x)
        return jax.lax.while_loop(small, receive, x)
"""


def test_meshes(project):
    project.makepyfile(
        PROGRAM
        + """
    def test_one_axis(mesh, ranks):
        made = mesh(4, "x")
        assert type(made) is Mesh and made.shape == {"x": 4} and ranks == 4
        assert on(made, pair)(jnp.arange(4.0)).tolist() == [0, 0, 0, 0]

    def test_several_axes(mesh):
        made = mesh((2, 1), ["x", "y"])
        assert made.shape == {"x": 2, "y": 1}
        assert made.devices.ravel().tolist() == jax.devices()[:2]
        assert mesh([3], "x").size == 3

    @pytest.mark.parametrize("shape", [0, -1, (2, 0), (1.5,), ("x",)])
    def test_wrong_shape(mesh, shape):
        with pytest.raises(ValueError, match="whole numbers, 1 or more"):
            mesh(shape, "x")

    @pytest.mark.parametrize("shape, names", [(2, ()), ((2, 2), "x"), (2, ("x", "y")), ((2, 2), ("x", "x")), (2, (1,))])
    def test_wrong_names(mesh, shape, names):
        with pytest.raises(ValueError, match="names, each a string of its own"):
            mesh(shape, names)

    def test_too_few_devices(mesh):
        mesh((2, 4), ("x", "y"))

    @pytest.fixture(scope="module")
    def program(mesh):
        return on(mesh(2, "x"), pair)

    def test_from_a_fixture_of_a_module(program):
        program(jnp.arange(2.0))
    """
    )
    result = project.run_tests("--peerax-devices=4")
    result.assert_outcomes(passed=13, failed=1)
    result.stdout.fnmatch_lines(
        [
            '>       mesh((2, 4), ("x", "y"))',
            "E       ValueError: a mesh of shape (2, 4) needs 8 devices, and JAX has 4 (cpu): "
            "pytest --peerax-devices 8, or mark the test devices(8) to skip it",
        ]
    )
    assert "_fixtures.py" not in result.stdout.str()  # the mistake is the caller's


def test_check(project):
    project.makepyfile(
        PROGRAM
        + """
    X = jax.ShapeDtypeStruct((2,), "float32")

    def test_safe(mesh, peerax_check):
        report = peerax_check(on(mesh(2, "x"), pair), X)
        assert report.ok and report.size == 2

    def test_unsafe(mesh, peerax_check):
        peerax_check(on(mesh(2, "x"), receive), X, allow_undecided=True)

    def test_undecided(mesh, peerax_check):
        peerax_check(on(mesh(2, "x"), undecided), X)

    def test_undecided_is_allowed(mesh, peerax_check):
        assert peerax_check(on(mesh(2, "x"), undecided), X, allow_undecided=True).verdict == "undecided"

    def test_options_of_check(mesh, peerax_check):
        assert peerax_check(on(mesh(2, "x"), cycle), X, semantics="buffered").ok
    """
    )
    result = project.run_tests("--peerax-devices=2")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "peerax_check: unsafe: *(2 ranks, rendezvous sends)",
            "PX202: receive without send",
            "  --> test_check.py:*",
            "  help: add a psend with the same perm and tag*",
        ]
    )
    result.stdout.fnmatch_lines(["peerax_check: undecided: *", "PX211: *"])
    assert "Traceback" not in result.stdout.str() and "_fixtures.py" not in result.stdout.str()
