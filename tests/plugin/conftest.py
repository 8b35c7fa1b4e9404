"""Run pytest in a project of its own, as a user would."""

import importlib.metadata
import os

import pytest

IS_INSTALLED = bool(importlib.metadata.entry_points(group="pytest11", name="peerax"))


@pytest.fixture
def project(pytester, monkeypatch):
    """A project in a directory of its own. project.run(*args, plugin=True) runs its tests in a process of its own.

    Nothing is left in the environment of what the tests here have set for JAX and peerax, but that JAX is to run on
    the CPU. Where peerax is not installed, its plugin is named on the command line.
    """
    for name in list(os.environ):
        if name.startswith(("JAX_", "XLA_", "PEERAX_", "PYTEST_")) and name != "PYTEST_CURRENT_TEST":
            monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    # pytester gives it a home of its own, where it would look for what the user has installed.
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")

    def run(*args, plugin=True):
        if IS_INSTALLED:
            words = () if plugin else ("-p", "no:peerax")
        else:
            words = ("-p", "pytest_peerax") if plugin else ()
        return pytester.runpytest_subprocess(*words, "--strict-markers", *args, timeout=300)

    pytester.run_tests = run
    return pytester
