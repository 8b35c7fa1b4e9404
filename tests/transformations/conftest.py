"""Each program that runs here may hang."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _limited(wait_limit):
    pass
