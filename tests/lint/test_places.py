"""PXL001: what is seen to be inside of shard_map, what is seen to be outside, and what is left alone."""

import textwrap

import pytest

from tests.lint.linted import found

BODY = """
def step(x):
    token = peerax.psend(x, "x", right)
    return peerax.precv(token, x, "x", right)
"""
OUTSIDE = [("PXL001", 3), ("PXL001", 4)]


@pytest.mark.parametrize(
    "use",
    [
        "step(jnp.ones(4))",
        "jax.jit(step)(jnp.ones(4))",
        "run = jax.jit(step)\nrun(jnp.ones(4))",
        "run = jax.jit(functools.partial(step))\nrun.lower(jnp.ones(4))",
        "jax.vmap(step)(jnp.ones(4))",
        "lax.scan(lambda c, x: (c, step(x)), 0, jnp.ones(4))",
        "def main():\n    step(jnp.ones(4))\n\nif __name__ == '__main__':\n    main()",
        "def test_step():\n    assert step(jnp.ones(4)).sum() == 3",
        "class TestStep:\n    def test_step(self):\n        step(jnp.ones(4))",
        "def other(x):\n    return step(x)\n\nprint(jax.grad(other)(1.0))",
        "def apply(f, x):\n    return f(x)\n\napply(step, jnp.ones(4))",
        "with jax.set_mesh(mesh):\n    step(jnp.ones(4))",
        "class Run:\n    def apply(self, f, x):\n        return f(x)\nRun().apply(step, 1)",
        "def nobody_calls_this():\n    jax.set_mesh(jax.make_mesh((4,), 'x'))\n    step(jnp.ones(4))",
    ],
)
def test_outside(use):
    assert found(f"{BODY}\n{use}\n", "PXL001") == OUTSIDE


@pytest.mark.parametrize(
    "use",
    [
        'jax.shard_map(step, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.ones(4))',
        'jax.jit(jax.shard_map(f=step, mesh=mesh, in_specs=P("x"), out_specs=P("x")))',
        "on_ranks(step)(jnp.ones(4))",
        'functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(step)(jnp.ones(4))',
        "jax.shard_map(lambda x: step(x), mesh=mesh)(jnp.ones(4))",
        "jax.shard_map(jax.checkpoint(step), mesh=mesh)(jnp.ones(4))",
        "inner = functools.partial(step)\njax.shard_map(inner, mesh=mesh)(jnp.ones(4))",
        "body = lambda c, x: (c, step(x))\n\n@on_ranks\ndef loop(x):\n    return lax.scan(body, 0, x)[1]\nloop(1)",
        "run = lambda f: jax.jit(jax.shard_map(f, mesh=mesh))\nrun(step)(jnp.ones(4))",
        "def run(f):\n    return jax.shard_map(f, mesh=mesh)\n\nrun(step)(jnp.ones(4))",
        "def run(*, f):\n    return jax.shard_map(f, mesh=mesh)\n\nrun(f=step)(jnp.ones(4))",
        "from jax.experimental.shard_map import shard_map as smap\nsmap(step, mesh=mesh)(jnp.ones(4))",
        "try:\n    from jax import shard_map\nexcept ImportError:\n"
        "    from jax.experimental.shard_map import shard_map\n"
        "shard_map(step, mesh=mesh)(jnp.ones(4))",
        'jax.vmap(step, axis_name="x")(jnp.ones(4))',
        'jax.pmap(step, "x")(jnp.ones(4))',
        "def f(x):\n    def g(x):\n        return step(x)\n    return g(x)\njax.shard_map(f, mesh=mesh)",
        "lax.cond(True, step, step, 1)\njax.shard_map(step, mesh=mesh)",
        "class Run:\n    def apply(self, f, x):\n        return on_ranks(f)(x)\nRun().apply(step, 1)",
    ],
)
def test_inside(use):
    assert found(f"{BODY}\n{use}\n", "PXL001") == []


@pytest.mark.parametrize(
    "use",
    [
        "",
        "import elsewhere\nelsewhere.run(step)",
        "STEPS = {'step': step}",
        "STEPS = [step]\nstep(1)",
        "def make():\n    return step",
        "def helper(x):\n    return step(x)",
        "class Model:\n    def __call__(self, x):\n        return step(x)",
        "import pytest\n\n@pytest.fixture\ndef run():\n    return step(1)",
        "def user(f):\n    return f(step)",
    ],
)
def test_nobody_here_can_say(use):
    assert found(f"{BODY}\n{use}\n", "PXL001") == []


@pytest.mark.parametrize(
    "decorator",
    [
        "@on_ranks",
        "@jax.jit\n@on_ranks",
        '@jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))',
        '@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))',
        "@functools.partial(jax.jit, static_argnums=0)\n@functools.partial(jax.shard_map, mesh=mesh)",
        '@functools.partial(jax.pmap, axis_name="x")',
    ],
)
def test_decorated(decorator):
    assert found(f"{decorator}{BODY}\nstep(jnp.ones(4))\n", "PXL001") == []


@pytest.mark.parametrize("decorator", ["@jax.jit", "@functools.partial(jax.jit, donate_argnums=0)", "@jax.jit()"])
def test_jitted_only(decorator):
    assert [code for code, _ in found(f"{decorator}{BODY}", "PXL001")] == ["PXL001"] * 2


def test_decorator_of_this_file():
    made = "def ranked(f):\n    return jax.jit(jax.shard_map(f, mesh=mesh))\n\n@ranked"
    assert found(made + BODY + "step(1)\n", "PXL001") == []
    plain = "def logged(f):\n    return lambda x: f(x)\n\n@logged"
    assert found(plain + BODY + "step(1)\n", "PXL001") == []  # where the lambda goes is not followed


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import jax.lax as jl", "jl.psend"),
        ("import jax.lax", "jax.lax.psend"),
        ("import jax as J", "J.lax.psend"),
        ("from jax import lax as L", "L.psend"),
        ("from jax.lax import psend as send", "send"),
        ("from jax.lax import *", "psend"),
        ("import jax\nlax = jax.lax\nsend = lax.psend", "send"),
        ("from jax._src.lax.parallel import psend", "psend"),
        ("import peerax as px", "px.psend"),
        (
            "from jax.lax import psend\nclass A:\n    psend = None\n    def test(self):\n        psend(1, 'x', [])\n",
            "A",
        ),
        (
            "from jax import lax\ndef a():\n    send = 1\n    def test():\n"
            "        global send\n        send = lax.psend\n        send(1, 'x', [])\n",
            "a",
        ),
        ("from peerax import psend", "psend"),
        ("try:\n    from peerax import psend\nexcept ImportError:\n    from jax.lax import psend", "psend"),
        ("if True:\n    import peerax\nelse:\n    peerax = None", "peerax.psend"),
    ],
)
def test_names(imports, call):
    text = f'{imports}\n\n{call}(1, "x", [(0, 1)])\n'
    assert [code for code, _ in found(text, "PXL001", prelude="")] == ["PXL001"]


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import psend\npsend(1, 'x', [])\n",
        "def psend(x, axis, perm): ...\npsend(1, 'x', [])\n",
        "import socket as lax\nlax.psend(1, 'x', [])\n",
        "from jax import lax\nclass Pipe:\n    def psend(self): ...\nPipe().psend()\n",
        "from jax import lax\ndef f(lax):\n    lax.psend(1)\nf(1)\n",
        "from jax import lax\nprint('lax.psend(1)')\n# lax.psend(1)\n",
    ],
)
def test_other_things_of_that_name(text):
    assert found(text, "PXL001", prelude="") == []


def test_methods():
    text = """
    class Stage:
        def send(self, x):
            peerax.psend(x, "x", right)

        def step(self, x):
            self.send(x)
            return peerax.precv(peerax.create_token(), x, "x", right)

        def run(self, x):
            return {how}(self.step)(x)
    Stage().run(1)
    """
    outside = text.format(how="jax.jit")
    assert found(outside, "PXL001") == [("PXL001", 4), ("PXL001", 8)]
    assert found(text.format(how="on_ranks"), "PXL001") == []


def test_methods_of_two_classes():
    text = """
    class Right:
        def step(self, x):
            peerax.psend(x, "x", right)

        def run(self, x):
            return on_ranks(self.step)(x)

    class Wrong:
        def step(self, x):
            peerax.psend(x, "x", right)

        def run(self, x):
            return jax.jit(self.step)(x)

    Right().run(1)
    Wrong().run(1)
    """
    assert found(text, "PXL001") == [("PXL001", 11)]
    inherited = text.replace("class Wrong:\n        def step", "class Wrong(Right):\n        def other")
    assert found(inherited, "PXL001") == []  # step runs inside as well


def test_at_the_level_of_the_module():
    text = 'token = peerax.psend(1, "x", right)\nclass A:\n    y = peerax.precv(token, 1, "x", right)\n'
    assert found(text, "PXL001") == [("PXL001", 1), ("PXL001", 3)]


def test_a_lambda_and_a_comprehension():
    text = '[peerax.psend(x, "x", right) for x in (lambda x: peerax.psend(x, "x", right))(1)]\n'
    assert found(text, "PXL001") == [("PXL001", 1), ("PXL001", 1)]


def test_rules_of_custom_derivatives_run_where_the_function_does():
    text = """
    @jax.custom_vjp
    def f(x):
        return x
    def forward(x):
        return x, None
    def backward(_, g):
        peerax.psend(g, "x", right)
        return (g,)
    f.defvjp(forward, backward)
    """
    assert found(textwrap.dedent(text) + "on_ranks(f)(1)\n", "PXL001") == []
    assert found(textwrap.dedent(text) + "jax.grad(f)(1.0)\n", "PXL001") == [("PXL001", 8)]
