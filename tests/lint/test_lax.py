"""PXL008 and PXL009: jax.lax.psend and precv without a guard, and that they are deprecated."""

import pytest

from tests.lint.linted import found, lint

HEAD = "import jax\nfrom jax import lax\n"
STEP = """
def step(x):
    token = lax.psend(x, "x", [(0, 1)])
    return lax.precv(token, x, "x", [(0, 1)])
"""


def guards(text):
    return found(text, "PXL008", prelude="")


def test_once_in_a_file():
    (finding,) = lint(HEAD + STEP + "lax.psend(1, 'x', [])\n", "PXL008", prelude="")
    assert finding.line == 5
    assert finding.message == ("jax.lax.psend runs on GPUs only, and nothing asks for one (3 such calls in this file)")


@pytest.mark.parametrize(
    "text",
    [
        'if jax.default_backend() != "gpu":\n    raise SystemExit\n' + STEP,
        'assert jax.devices()[0].platform == "gpu"\n' + STEP,
        'import peerax\npeerax.require_backend("gpu")\n' + STEP,
        'jax.devices("gpu")\n' + STEP,
        "import peerax\npeerax.install()\n" + STEP,
        'import pytest\n@pytest.mark.backend("gpu")' + STEP,
        "from jax._src import test_util as jtu\n@jtu.run_on_devices('gpu')" + STEP,
        'def step(x):\n    if jax.default_backend() == "gpu":\n        return lax.psend(x, "x", [])\n    return x\n',
        STEP + '\ndef main(x):\n    if jax.default_backend() == "gpu":\n        return step(x)\n',
        "class TestStep:\n    def setUp(self):\n        if jax.default_backend() != 'gpu':\n            self.skip()\n\n"
        "    def test(self):\n        lax.psend(1, 'x', [])\n",
    ],
)
def test_guarded(text):
    assert guards(HEAD + text) == []


@pytest.mark.parametrize(
    "text",
    [
        STEP + "\ndef unrelated():\n    return jax.default_backend()\n",
        'print("platform")\n' + STEP,
        "import peerax\npeerax.check(1)\n" + STEP,
        "jax.devices()\njax.devices('cpu')\n" + STEP,
    ],
)
def test_not_guarded(text):
    assert [code for code, _ in guards(HEAD + text)] == ["PXL008"]


def test_peerax_needs_no_guard():
    assert found(STEP.replace("lax.", "peerax."), "PXL008", "PXL009") == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (HEAD + STEP, [5, 6]),
        (HEAD + "send = lax.psend\nsend(1, 'x', [])\n", [3]),
        ("from jax.lax import psend, axis_index, precv\npsend(1, 'x', [])\n", [1, 1]),
        ("from jax.lax import (\n    psend as send,\n    axis_index,\n    precv,\n)\n", [2, 4]),
        ("from jax.lax import *\npsend(1, 'x', [])\npsend(2, 'x', [])\nprecv(1, 2, 'x', [])\n", [2, 4]),
        ("import jax.lax as jl\nimport functools\nfunctools.partial(jl.precv, axis_name='x')\n", [3]),
        ("def f():\n    from jax.lax import psend\n    return psend\n", [2]),
        ("try:\n    from jax.lax import psend\nexcept ImportError:\n    if True:\n        psend = None\n", [2]),
        ("import jax\nif hasattr(jax.lax, 'psend'):\n    jax.lax.psend(1)\n", [3]),
        ("import peerax\nfrom jax import lax\npeerax.install()\nlax.psend(1, 'x', [])\n", []),
        ("from jax.lax import axis_index, ppermute\nfrom .lax import psend\n", []),
        ("from jax import lax\nlax.create_token()\n", []),
    ],
)
def test_deprecated(text, lines):
    assert found(text, "PXL009", prelude="") == [("PXL009", line) for line in lines]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("peerax = 1\n", "the name peerax means something else in line 3"),
        ("def f(peerax): ...\n", "the name peerax means something else in line 3"),
        ("lax.infeed(1)\n", "the tokens of JAX are needed by lax.infeed in line 3"),
        (
            "a, b = lax.psend(1, 'x', [])\n",
            "the psend in line 3 returns several tokens, and that of peerax returns one",
        ),
        (
            "class A:\n    lax = lax\n    def f(self): self.lax.precv\n",
            "self.lax.precv in line 5 may be JAX's as well, and its tokens would not fit",
        ),
        (
            "a = lax.psend(1, 'x', [])[0]\n",
            "the psend in line 3 returns several tokens, and that of peerax returns one",
        ),
    ],
)
def test_what_cannot_be_fixed(text, why):
    findings = lint(HEAD + text + "lax.precv\n", "PXL009", prelude="")
    assert findings and all(why in finding.message and not finding.fixable for finding in findings)
    assert all(finding.fixable for finding in lint(HEAD + "lax.precv\n", "PXL009", prelude=""))
