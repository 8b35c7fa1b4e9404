"""A wait limit for the programs that run in the test process: a hang is an error, well before XLA aborts."""

import pytest

from peerax import runtime


@pytest.fixture(scope="module", autouse=True)
def wait_limit():
    runtime.load()
    runtime.extension().set_timeout_s(20.0)
    yield
    runtime.extension().set_timeout_s(runtime.read_settings().timeout_s)
