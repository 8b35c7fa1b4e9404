"""The examples that train: the transformer learns the same in every way, and modules of other packages are stages."""

import importlib.util
import re

import pytest

from tests.documents import ROOT

TRANSFORMER = str(ROOT / "examples" / "train_transformer.py")
LIMIT_S = 180  # a few seconds on an idle machine, most of them for the compiler
QUICKLY_COMPILED = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}


def missing(*packages):
    """Skip a test where a package is not installed."""
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


@pytest.fixture
def train(python):
    """Return a function that trains with some words, and returns the loss after each step and what was printed."""

    def run(*words, steps):
        done = python(
            *("-W", "error", "-m", "peerax", "run", "--quiet", "--devices=4", TRANSFORMER),
            *("--every=1", "--write=0", f"--steps={steps}", *words),
            env=QUICKLY_COMPILED,
            timeout_s=LIMIT_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        losses = re.findall(r"^step +(\d+)  loss (\S+)  \S+ s a step$", done.stdout, re.MULTILINE)
        return {int(step): float(loss) for step, loss in losses}, done.stdout

    return run


@missing("optax", "orbax")
def test_the_transformer_learns_the_same_with_a_stop_and_without_a_pipeline(train, tmp_path):
    """The first steps in another schedule than the others, and with another number of microbatches."""
    wanted, text = train("--unpipelined", steps=5)
    assert text.startswith("without a pipeline: ")
    assert list(wanted) == [1, 2, 3, 4, 5] and wanted[5] < wanted[1] - 1

    kept = f"--checkpoint={tmp_path / 'kept'}"
    before, text = train(kept, "--schedule=zbv", steps=3)
    assert text.startswith("4 stages, zbv: ") and list(before) == [1, 2, 3]
    after, text = train(kept, "--microbatches=4", steps=5)
    assert f"\ngoes on after step 3 of {tmp_path / 'kept'}\n" in text and list(after) == [4, 5]
    assert before | after == pytest.approx(wanted, rel=1e-5)


def test_the_transformer_says_how_many_devices_it_needs(python):
    pytest.importorskip("optax")
    done = python(TRANSFORMER, timeout_s=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr.startswith("this needs 4 devices: peerax run ")


@pytest.mark.parametrize("package", [pytest.param(name, marks=missing(name)) for name in ("equinox", "flax")])
def test_modules_of_others_are_stages(python, package):
    name = {"equinox": "equinox_stages", "flax": "nnx_stages"}[package]
    words = ("-W", "error", "-m", "peerax", "run", "--quiet", f"{ROOT}/examples/{name}.py", "--devices=4")
    done = python(*words, env=QUICKLY_COMPILED, timeout_s=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == "the gradients are those without a pipeline"
    losses = [float(line.split()[-1]) for line in lines]
    assert len(losses) == 10 and losses == sorted(losses, reverse=True) and losses[-1] < 0.8 * losses[0]
