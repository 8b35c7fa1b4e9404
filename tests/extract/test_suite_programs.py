"""The programs that other tests run and transform are safe, whatever JAX makes of them."""

import jax
import pytest

import peerax
from tests.transformations import transforms
from tests.transformations.programs import STEPS, loss, on_ranks, rows, weights

TRANSFORMS = ["value", "grad", "jvp", "vmap_of_grad", "outer_checkpoint", "hessian_reverse_over_forward"]


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("step", STEPS)
def test_a_program_that_runs(step, transform, check_vma):
    program = on_ranks(loss(STEPS[step][0]), 4, check_vma)

    def transformed(w, x):
        return getattr(transforms, transform)(program, w, x)

    w, x = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (weights(), rows(4)))
    # Messages with two tags are received in another order than they are sent, which takes buffers.
    report = peerax.check(transformed, w, x, semantics="buffered" if step == "two-tags" else "rendezvous")
    assert report.ok, str(report)
