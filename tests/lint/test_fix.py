"""--fix: what it changes and what it leaves alone, that it changes nothing twice, and that its results run."""

import pytest

from peerax.lint import RULES, fix_source, lint_source
from tests.lint.written_for_gpus import PROGRAMS

HEAD = "import jax\nfrom jax import lax\n"


def fixed(text):
    """Return the fixed text; a second fix changes nothing."""
    data = fix_source(text.encode())
    if data is None:
        return text
    assert fix_source(data) is None
    return data.decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    text = fixed(PROGRAMS[name])
    assert lint_source(PROGRAMS[name].encode(), "a.py", {"PXL009"})
    assert lint_source(text.encode(), "a.py", set(RULES) - {"PXL002"}) == []


RUN = """
import pathlib, re, sys, traceback, warnings
warnings.simplefilter("ignore", DeprecationWarning)
outcomes = {}
for path in sorted(pathlib.Path(sys.path[0]).glob("*_prog.py")):
    try:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        print(path.stem, "ran")
    except Exception as error:
        print(path.stem, "failed", re.search("currently only implemented on GPU", str(error)) is not None)
        if "fixed" in path.stem:
            traceback.print_exc()
"""


def test_fixed_programs_run_and_the_others_do_not(run_python, tmp_path):
    for name, text in PROGRAMS.items():
        (tmp_path / f"fixed_{name}_prog.py").write_text(fixed(text))
    (tmp_path / "plain_by_module_prog.py").write_text(PROGRAMS["by_module"])
    done = run_python(RUN, devices=4)
    assert done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if "_prog " in line]
    assert [line for line in lines if line.startswith("fixed")] == [
        f"fixed_{name}_prog ran" for name in sorted(PROGRAMS)
    ]
    assert "plain_by_module_prog failed True" in lines


def test_only_what_is_replaced_changes():
    before, after = PROGRAMS["pipeline"].splitlines(), fixed(PROGRAMS["pipeline"]).splitlines()
    assert after.pop(
        before.index('mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))') - 1
    ) == ("import peerax")
    assert [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new] == [
        ('sent = lax.psend( carry, "x", PERM )', 'sent = peerax.psend( carry, "x", PERM )'),
        ("y, _ = lax.optimization_barrier((x + t, sent))", "y, _ = peerax.order((x + t, sent))"),
        (
            "token, _ = (lax.optimization_barrier)((lax.create_token(), y))",
            "token, _ = (peerax.order)((peerax.create_token(), y))",
        ),
        ('return lax . precv(token, y, "x", PERM), y', 'return peerax . precv(token, y, "x", PERM), y'),
        ("first = lax.precv(", "first = peerax.precv("),
        (
            "lax.create_token(),  # a receive without a send of its own",
            "peerax.create_token(),  # a receive without a send of its own",
        ),
        ('lax.psend(last, "x", PERM)', 'peerax.psend(last, "x", PERM)'),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from jax.lax import psend\n", "from peerax import psend\n"),
        ("from jax.lax import psend as s, precv\n", "from peerax import psend as s, precv\n"),
        ("from jax.lax import psend, scan  # a\n", "from jax.lax import scan  # a\nfrom peerax import psend\n"),
        ("from jax.lax import scan, psend\n", "from jax.lax import scan\nfrom peerax import psend\n"),
        ("from jax.lax import (psend, scan,)\n", "from jax.lax import (scan,)\nfrom peerax import psend\n"),
        (
            "from jax.lax import psend, optimization_barrier\n",
            "from peerax import psend, order as optimization_barrier\n",
        ),
        (
            "if 1:\n\tfrom jax.lax import psend, scan\n",
            "if 1:\n\tfrom jax.lax import scan\n\tfrom peerax import psend\n",
        ),
        (
            "import a; from jax.lax import psend, b; c\n",
            "import a; from jax.lax import b; from peerax import psend; c\n",
        ),
        ("from jax.lax import *\npsend(1)\n", "from jax.lax import *\nfrom peerax import psend\npsend(1)\n"),
        (
            "#!/bin/python\n# a\n\nimport jax\njax.lax.psend\n",
            "#!/bin/python\n# a\n\nimport jax\nimport peerax\npeerax.psend\n",
        ),
        (
            "'Doc.'\ndef f():\n    import jax\n    jax.lax.psend\n",
            "'Doc.'\nimport peerax\ndef f():\n    import jax\n    peerax.psend\n",
        ),
        (
            "# a\ndef f():\n    import jax\n    jax.lax.psend\n",
            "# a\nimport peerax\ndef f():\n    import jax\n    peerax.psend\n",
        ),
        (
            "import os\n\nos.environ['A'] = 'b'\n\nimport jax\nimport numpy\n\njax.lax.psend\n",
            "import os\n\nos.environ['A'] = 'b'\n\nimport jax\nimport numpy\nimport peerax\n\npeerax.psend\n",
        ),
        ("import peerax\nfrom jax import lax\nlax.psend\n", "import peerax\nfrom jax import lax\npeerax.psend\n"),
        ("import peerax as p\nfrom jax import lax\nlax.psend\n", "import peerax as p\nfrom jax import lax\np.psend\n"),
        ("from jax import lax\r\nlax.psend\r\n", "from jax import lax\r\nimport peerax\r\npeerax.psend\r\n"),
        ("from jax import lax\nx = lax.psend", "from jax import lax\nimport peerax\nx = peerax.psend"),
        ("import jax\nf'{jax.lax.psend}'\n", "import jax\nimport peerax\nf'{peerax.psend}'\n"),
    ],
)
def test_forms(before, after):
    assert fixed(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import peerax\npeerax.psend\n",
        HEAD + "lax.create_token()\nlax.optimization_barrier(1)\n",
        HEAD + "lax.psend  # noqa: PXL009\n",
        HEAD + "lax.psend  # noqa\nlax.precv\n",  # the tokens of the one would reach the other
        HEAD + "peerax = 1\nlax.psend\n",
        HEAD + "lax.infeed(1)\nlax.psend\n",
        HEAD + "a, b = lax.psend(1, 'x', [])\n",
        HEAD + "def f(lax):\n    lax.psend\n",
        HEAD + "print('lax.psend')  # lax.psend\n",
        "import peerax\npeerax.install()\nfrom jax.lax import psend\n",
    ],
)
def test_left_alone(text):
    assert fixed(text) == text


def test_deep_programs():
    assert fixed(f"{HEAD}lax.psend({'x' + ' + x' * 100})\n").endswith("peerax.psend(" + "x" + " + x" * 100 + ")\n")
    fix_source(f"{HEAD}lax.psend({'x' + ' + x' * 900})\n".encode())  # fixed or not, it ends without an exception


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_encodings_are_kept(encoding):
    cookie = "# coding: latin-1\n" if encoding == "latin-1" else ""
    text = f"{cookie}from jax import lax\nx = 'é', lax.psend, 'ü'\n"
    data = fix_source(text.encode(encoding))
    assert data.decode(encoding) == f"{cookie}from jax import lax\nimport peerax\nx = 'é', peerax.psend, 'ü'\n"
