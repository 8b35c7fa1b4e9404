"""pytest-xdist's workers have the devices, the limit and the reports of the process that started them."""


def test_workers(project):
    project.makeini("[pytest]\npeerax_timeout_s = 7.5\n")
    project.makepyfile("""
        import os

        import jax
        import pytest

        @pytest.fixture(autouse=True)
        def in_a_worker():
            assert os.environ["PYTEST_XDIST_WORKER"]

        @pytest.mark.parametrize("x", range(4))
        @pytest.mark.devices(3)
        def test_environment(x, ranks):
            assert ranks == len(jax.devices()) == 3
            assert os.environ["PEERAX_TIMEOUT_S"] == "7.5"

        @pytest.mark.devices(4)
        def test_skipped():
            pass

        def test_fails(mesh, peerax_check):
            import peerax

            def body(x):
                return peerax.precv(peerax.create_token(), x, "x", [(0, 1)])

            spec = jax.sharding.PartitionSpec("x")
            program = jax.shard_map(body, mesh=mesh(2, "x"), in_specs=spec, out_specs=spec)
            peerax_check(program, jax.ShapeDtypeStruct((2,), "float32"))
    """)
    result = project.run_tests("-n", "2", "-rs", "--peerax-devices=3")
    result.assert_outcomes(passed=4, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["PX202: receive without send"])
    result.stdout.fnmatch_lines(["SKIPPED * needs 4 devices, and JAX has 3 (cpu): pytest --peerax-devices 4"])
