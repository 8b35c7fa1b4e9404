"""The guards for programs. JAX's answer is put in their place where this machine has no such device."""

import jax
import pytest

import peerax


@pytest.fixture
def on(monkeypatch):
    """Let JAX say that it runs on a platform."""
    return lambda platform: monkeypatch.setattr(jax, "default_backend", lambda: platform)


@pytest.mark.parametrize(
    ("platform", "name"), [("cpu", "cpu"), ("gpu", "gpu"), ("cuda", "gpu"), ("rocm", "gpu"), ("tpu", "tpu")]
)
def test_each_platform_is_of_one_kind(platform, name, on):
    on(platform)
    assert [kind for kind in ("cpu", "gpu", "tpu") if peerax.backend_is(kind)] == [name]


def test_the_tests_run_on_the_cpu():
    assert peerax.backend_is("cpu") and not peerax.backend_is("gpu")
    peerax.require_backend("cpu")


def test_one_of_several_is_enough(on):
    on("tpu")
    peerax.require_backend("gpu", "tpu")


def test_another_backend_is_an_error_that_names_the_line_and_the_fix():
    with pytest.raises(peerax.PeeraxError) as caught:
        peerax.require_backend("gpu", "tpu")
    error = caught.value
    assert error.code == "PX402"
    assert "the program is for gpu or tpu, and JAX's default backend is cpu" in str(error)
    assert "JAX_PLATFORMS" in error.help
    ((file, _),) = error.locations
    assert file.endswith("test_backends.py")


@pytest.mark.parametrize("name", ["cuda", "GPU", "", None])
def test_another_name_is_an_error_with_the_valid_ones(name):
    for guard in (peerax.backend_is, peerax.require_backend):
        with pytest.raises(ValueError, match="'cpu', 'gpu', 'tpu'"):
            guard(name)


def test_every_name_is_looked_at():
    with pytest.raises(ValueError, match="'cuda'"):
        peerax.require_backend("cpu", "cuda")


def test_no_name_is_an_error():
    with pytest.raises(ValueError, match="'cpu', 'gpu', 'tpu'"):
        peerax.require_backend()
