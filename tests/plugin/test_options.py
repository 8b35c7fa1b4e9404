"""The number of devices and the wait limit: on the command line, in the configuration, too late, and wrong."""

import os

import jax
import pytest

from peerax import runtime
from pytest_peerax._environment import set_environment

IS_SET = """
    import os

    def test_environment():
        assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=3"
        assert os.environ["PEERAX_TIMEOUT_S"] == "7.5"
"""
CONFIGURATION = """
    [pytest]
    peerax_devices = 3
    peerax_timeout_s = 7.5
"""


@pytest.fixture
def flags(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=1")


def test_a_conftest_that_imports_jax_finds_the_devices(project):
    project.makeini("[pytest]\npeerax_devices = 5\npeerax_timeout_s = 7.5\n")
    project.makeconftest("import jax\n\nDEVICES = jax.devices()")
    project.makepyfile("""
        import os

        from conftest import DEVICES

        def test_environment():
            assert len(DEVICES) == 3  # the command line takes precedence
            assert os.environ["PEERAX_TIMEOUT_S"] == "7.5"
    """)
    project.run_tests("--peerax-devices=3").assert_outcomes(passed=1)


def test_the_command_line_alone(project, flags):
    project.makepyfile(IS_SET)
    project.run_tests("--peerax-devices", "3", "--peerax-timeout", "7.5").assert_outcomes(passed=1)


def test_a_conftest_may_name_the_plugin(project, flags, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.makeini(CONFIGURATION)
    project.makeconftest("pytest_plugins = ['pytest_peerax']")
    project.makepyfile(IS_SET)
    project.runpytest_subprocess(timeout=300).assert_outcomes(passed=1)


def test_a_program_that_calls_pytest_keeps_its_environment(project, flags):
    project.makeini(CONFIGURATION)
    project.makepyfile(IS_SET)
    program = project.makepyfile(
        start="""
        import importlib.metadata
        import os
        import pytest

        def ours():
            return {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "PEERAX_"))}

        before = ours()
        installed = importlib.metadata.entry_points(group="pytest11", name="peerax")
        assert pytest.main([] if installed else ["-p", "pytest_peerax"]) == 0
        assert ours() == before
        """
    )
    assert project.runpython(program).ret == 0


def test_too_late_names_the_plugin_and_the_fix(project):
    project.makepyfile(early="import early_helper", early_helper="import jax", test_nothing="def test(): pass")
    result = project.run_tests("-p", "early", "--peerax-devices=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --peerax-devices 3 comes too late: JAX was imported already, by the plugin early "
            "(*early.py), which imports early_helper (*early_helper.py)",
            "  help: import JAX later there*",
            "*XLA_FLAGS=--xla_force_host_platform_device_count=3 in the environment",
        ]
    )
    assert "Traceback" not in result.stderr.str()


class TestInThisProcess:
    """JAX has been imported here."""

    def test_what_is_set_already_is_never_too_late(self, request, monkeypatch):
        flags = "--xla_force_host_platform_device_count=8 --xla_cpu_enable_fast_math=false"
        monkeypatch.setenv("XLA_FLAGS", flags)
        set_environment(request.config, ("peerax_devices", "8"), None)
        assert os.environ["XLA_FLAGS"] == flags
        with pytest.raises(pytest.UsageError, match="peerax_devices = 4 comes too late: JAX was imported"):
            set_environment(request.config, ("peerax_devices", "4"), None)
        assert os.environ["XLA_FLAGS"] == flags

    def test_what_jax_prefers_counts_as_well(self, request, monkeypatch):
        monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
        monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
        with pytest.raises(pytest.UsageError, match="JAX_NUM_CPU_DEVICES=8 in the environment"):
            set_environment(request.config, ("peerax_devices", "8"), None)

    def test_a_limit_that_was_read(self, request, monkeypatch):
        jax.devices()
        runtime.load()
        monkeypatch.setenv("PEERAX_TIMEOUT_S", "30")
        set_environment(request.config, None, ("--peerax-timeout", "30"))
        with pytest.raises(pytest.UsageError, match="--peerax-timeout 31 comes too late: peerax has run a program"):
            set_environment(request.config, None, ("--peerax-timeout", "31"))

    @pytest.mark.parametrize("text", ["four", "0", "-1", "1.5", ""])
    def test_a_wrong_number_of_devices(self, request, text):
        with pytest.raises(pytest.UsageError, match=f"^peerax_devices: '{text}' is not a number of devices, 1 or more"):
            set_environment(request.config, ("peerax_devices", text), None)

    @pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
    def test_a_wrong_limit(self, request, text):
        with pytest.raises(pytest.UsageError, match=f"^--peerax-timeout: '{text}' is not a number of seconds above 0"):
            set_environment(request.config, None, ("--peerax-timeout", text))
