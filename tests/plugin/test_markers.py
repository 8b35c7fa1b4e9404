"""The markers: what is skipped and why, what is wrong, and whose they are."""

import importlib.metadata

import pytest


def test_what_is_not_here_is_skipped_with_the_reason(project):
    project.makepyfile("""
        import pytest

        ALWAYS = [
            pytest.mark.devices(2),
            pytest.mark.devices(n=1),
            pytest.mark.processes(1, 2),
            pytest.mark.backend("cpu"),
            pytest.mark.backend("gpu", "cpu"),
        ]

        @pytest.mark.parametrize("x", [pytest.param(0, marks=mark) for mark in ALWAYS])
        def test_runs(x):
            pass

        NEVER = [
            pytest.mark.devices(3),
            pytest.mark.processes(1, 4),
            pytest.mark.processes(p=2, n=1),
            pytest.mark.backend("gpu"),
            pytest.mark.backend("gpu", "tpu"),
        ]

        @pytest.mark.parametrize("x", [pytest.param(0, marks=mark) for mark in NEVER])
        def test_is_skipped(x):
            assert False

        @pytest.mark.devices(3)
        class TestClass:
            def test_is_skipped(self):
                assert False

            @pytest.mark.devices(1)
            def test_its_own_marker_counts(self):
                pass

        @pytest.fixture
        def needs_more():
            assert False, "a test that is skipped has no fixtures"

        @pytest.mark.devices(3)
        def test_with_fixture(needs_more):
            pass

        WRONG = [
            pytest.mark.devices(),
            pytest.mark.devices("2"),
            pytest.mark.devices(0),
            pytest.mark.devices(1, 2),
            pytest.mark.devices(1, n=2),
            pytest.mark.devices(count=2),
            pytest.mark.processes(2),
            pytest.mark.backend("cuda"),
            pytest.mark.backend(),
            pytest.mark.backend(["cpu"]),
            pytest.mark.backend(name="cpu"),
        ]

        @pytest.mark.parametrize("x", [pytest.param(0, marks=mark) for mark in WRONG])
        def test_has_a_wrong_marker(x):
            pass
    """)
    result = project.run_tests("-rs", "--peerax-devices=2")
    result.assert_outcomes(passed=6, skipped=7, errors=11)
    reasons = {line.partition(": ")[2] for line in result.outlines if line.startswith("SKIPPED")}
    only_one = "and programs of peerax run on the devices of one process in this version"
    assert reasons == {
        "needs 3 devices, and JAX has 2 (cpu): pytest --peerax-devices 3",
        "needs 4 devices, and JAX has 2 (cpu): pytest --peerax-devices 4",
        f"needs 2 processes, {only_one}; devices(2) runs on as many devices",
        "is for gpu, and JAX's default backend is cpu",
        "is for gpu or tpu, and JAX's default backend is cpu",
    }
    for line in (
        "devices(n) takes a number of devices, 1 or more, not ('2')",
        "processes(p, n) takes a number of processes and of devices in each, 1 or more, not (2)",
        "backend(name, ...) takes one or more of 'cpu', 'gpu', 'tpu', not ('cuda')",
    ):
        assert line in result.outlines


LEFT_ALONE = """
    import sys
    import pytest

    @pytest.mark.backend("numpy")
    @pytest.mark.devices("all")
    def test_runs():
        assert "jax" not in sys.modules
"""


def test_markers_of_the_project_itself_are_left_alone(project):
    project.makeini("[pytest]\nmarkers =\n    backend(name): which arrays\n    devices: some\n")
    project.makepyfile(LEFT_ALONE)
    project.run_tests().assert_outcomes(passed=1)
    listed = project.run_tests("--markers").stdout.str()
    assert listed.count("@pytest.mark.backend") == listed.count("@pytest.mark.devices") == 1
    assert listed.count("@pytest.mark.processes(p, n)") == 1


def test_markers_of_a_conftest_are_left_alone(project):
    project.makeconftest("""
        def pytest_configure(config):
            config.addinivalue_line("markers", "backend(name): which arrays")
            config.addinivalue_line("markers", "devices: some")
    """)
    project.makepyfile(LEFT_ALONE)
    project.run_tests().assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_itself(project):
    if not importlib.metadata.entry_points(group="pytest11", name="peerax"):
        pytest.skip("peerax is not installed")
    result = project.runpytest_subprocess("--markers", timeout=300)
    result.stdout.fnmatch_lines(["@pytest.mark.devices(n): *", "@pytest.mark.backend(name, ...): *"])
