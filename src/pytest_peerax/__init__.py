"""peerax's pytest plugin: devices and wait limit, markers, fixtures, and what was in flight when a test failed.

It is a package of its own beside peerax, since pytest imports it in every project of an environment. Importing peerax
means that JAX gets its hooks once it is imported; a project that does not use peerax must not get them. So only the
standard library and pytest are imported here, and the rest when it is used.
"""

import re
import sys
from collections.abc import Generator
from typing import Any

import pytest

from pytest_peerax._fixtures import mesh, peerax_check, ranks

__all__ = ["mesh", "peerax_check", "ranks"]

_MARKERS = (
    "devices(n): skip the test where JAX has fewer than n devices",
    "processes(p, n): skip the test where there are not p processes with n devices each",
    "backend(name, ...): skip the test where JAX's default backend is none of these: 'cpu', 'gpu', 'tpu'",
)
_OUR_MARKERS = pytest.StashKey[tuple[str, ...]]()
_PREPARED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register what can be set: on the command line, or in the project's configuration."""
    devices = "number of CPU devices that JAX has in the tests"
    timeout = "limit of every wait in peerax's programs, in seconds, or inf (PEERAX_TIMEOUT_S)"
    group = parser.getgroup("peerax", "point-to-point communication for JAX (peerax)")
    group.addoption("--peerax-devices", metavar="N", help=devices)
    group.addoption("--peerax-timeout", metavar="S", help=timeout)
    parser.addini("peerax_devices", f"{devices}; --peerax-devices takes precedence", default=None)
    parser.addini("peerax_timeout_s", f"{timeout}; --peerax-timeout takes precedence", default=None)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the environment before a conftest can import JAX."""
    _prepare(early_config)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, besides those that the project or another plugin has itself: they are not ours."""
    _prepare(config)
    others = {re.split(r"[:(\s]", line.strip(), maxsplit=1)[0] for line in config.getini("markers")}
    ours = {line.partition("(")[0]: line for line in _MARKERS}
    config.stash[_OUR_MARKERS] = tuple(name for name in ours if name not in others)
    for name in config.stash[_OUR_MARKERS]:
        config.addinivalue_line("markers", ours[name])


def _prepare(config: pytest.Config) -> None:
    """Set what was asked for, once; a conftest that names this plugin loads it after the first of the two hooks."""
    if _PREPARED in config.stash:
        return
    config.stash[_PREPARED] = True
    devices = _asked(config, "--peerax-devices", "peerax_devices")
    timeout_s = _asked(config, "--peerax-timeout", "peerax_timeout_s")
    if devices or timeout_s:
        from pytest_peerax._environment import set_environment

        set_environment(config, devices, timeout_s)


def _asked(config: pytest.Config, option: str, ini: str) -> tuple[str, str] | None:
    """Return where a value was given, and the value."""
    name = option[2:].replace("-", "_")
    # The first of the two hooks comes before pytest has put the command line into its options.
    value = getattr(config.known_args_namespace, name, None) or config.getoption(name, None)
    if value is not None:
        return option, value
    value = config.getini(ini)
    return None if value is None else (ini, value)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what is not here."""
    for name in item.config.stash[_OUR_MARKERS]:
        mark = item.get_closest_marker(name)
        if mark is not None:
            from pytest_peerax._markers import reason_to_skip

            reason = reason_to_skip(mark)
            if reason is not None:
                # As a marker: pytest, whose turn it is next, then shows the line of the test.
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, pytest.TestReport]:
    """Show what was in flight when a test failed, if it has run anything of peerax."""
    report = yield
    if report.failed and "peerax.runtime._extension" in sys.modules:
        from pytest_peerax._in_flight import in_flight

        text = in_flight(call.excinfo)
        if text:
            report.sections.append(("peerax: in flight", text))
    return report
