"""Set up JAX for the tests and give them a way to run a program that may hang."""

import itertools
import os
import subprocess
import sys

import hypothesis
import pytest

pytest_plugins = ["pytester"]  # tests/plugin runs pytest; only the uppermost conftest may name a plugin

_OUTER_ENVIRONMENT = dict(os.environ)
_DEVICES = 8


def _xla_flags(environment, devices):
    """Append the device count to the flags that are there already; XLA takes the last one."""
    flags = environment.get("XLA_FLAGS", "")
    return f"{flags} --xla_force_host_platform_device_count={devices}".strip()


# Before anything imports JAX.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = _xla_flags(_OUTER_ENVIRONMENT, _DEVICES)
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ci")


def _text(output):
    """Return captured output as text; what a timeout leaves may be bytes or None."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


@pytest.fixture(scope="module")
def wait_limit():
    """A wait limit for programs that run in the test process: a hang is an error, well before XLA aborts."""
    from peerax import runtime

    runtime.load()
    runtime.extension().set_timeout_s(20.0)
    yield
    runtime.extension().set_timeout_s(runtime.read_settings().timeout_s)


@pytest.fixture
def compiled():
    """The names of what is compiled from here on."""
    import jax

    names = []

    def listen(event, duration_s, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(kwargs.get("fun_name", ""))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def run_python(tmp_path):
    """Return a function that runs a program in a subprocess of its own, with a limit.

    run_python(code, *, devices=4, env=None, timeout_s=60) -> subprocess.CompletedProcess with text.
    The program is a file, so that reports can name its lines. devices=None leaves XLA's flags alone. env
    adds variables; a value of None removes one. A program that runs past its limit fails the test.
    """
    numbers = itertools.count(1)  # a test may run programs in several threads

    def run(code, *, devices=4, env=None, timeout_s=60):
        program = tmp_path / f"program_{next(numbers)}.py"
        program.write_text(code)
        environment = {**_OUTER_ENVIRONMENT, "JAX_PLATFORMS": "cpu"}
        if devices is not None:
            environment["XLA_FLAGS"] = _xla_flags(environment, devices)
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        try:
            return subprocess.run(
                [sys.executable, str(program)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                cwd=tmp_path,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as expired:
            pytest.fail(
                f"{program} ran past {timeout_s} s\n"
                f"--- stdout\n{_text(expired.stdout)}\n--- stderr\n{_text(expired.stderr)}"
            )

    return run
