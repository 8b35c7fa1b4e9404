"""PXL004 to PXL007: constant perms, and perms that are wrong for every number of ranks."""

import random

import pytest

from peerax.diagnostics import PeeraxError
from peerax.perm import check_perm
from tests.lint.linted import found, lint

NO_MESH = "import jax\nimport numpy as np\nimport peerax\nfrom jax import lax\nfrom jax.sharding import Mesh\n"


def codes_of(perm, before="", axis='"x"', prelude=None):
    text = f"{before}\ndef f(x, n, k, axis):\n    return lax.ppermute(x, {axis}, {perm})\n"
    rules = ("PXL004", "PXL005", "PXL006")
    return [code for code, _ in found(text, *rules, **({} if prelude is None else {"prelude": prelude}))]


def constant_perms():
    """Yield perms of every kind for an axis of 4 ranks."""
    draw = random.Random(0)
    for _ in range(300):
        yield [(draw.randint(-1, 4), draw.randint(-1, 4)) for _ in range(draw.randint(0, 4))]


@pytest.mark.parametrize("perms", [list(constant_perms())], ids=["300"])
def test_constants_are_judged_as_they_are_at_run_time(perms):
    codes = {"PX102": "PXL005", "PX103": "PXL004"}
    judged = set()
    for perm in perms:
        try:
            check_perm(perm, 4, ("f", 1))
            expected = []
        except PeeraxError as error:
            expected = [codes[error.code]]
            twice = len({s for s, _ in perm}) < len(perm) or len({d for _, d in perm}) < len(perm)
            expected = ["PXL004"] if twice else expected  # of two faults the linter names this one
        assert codes_of(perm) == expected, perm
        judged.add(tuple(expected))
    assert judged == {(), ("PXL004",), ("PXL005",)}


@pytest.mark.parametrize(
    ("perm", "expected"),
    [
        ("[(i, (i + 1) % n) for i in range(n)]", []),
        ("[(i, i + 1) for i in range(n - 1)]", []),
        ("[(i, i - 1) for i in range(n)]", ["PXL005"]),
        ("[(i, i - 1) for i in range(1, n)]", []),
        ("[(i, i - 1) for i in range(n) if i]", []),
        ("[(i, i - k) for i in range(n)]", []),
        ("[(i, (i + k) % n) for i in range(n)]", []),
        ("[(i, 0) for i in range(n)]", ["PXL004"]),
        ("[(0, i) for i in range(1, n)]", ["PXL004"]),
        ("[(i, i % 4) for i in range(n)]", []),  # right for 4 and less
        ("[(0, k)]", []),
        ("[(k, k)]", []),
        ("perm_of(n)", []),
        ("n", []),
        ("[(0, 1), *more]", []),
        ("zip(range(n), range(1, n + 1))", []),  # the size of the axis is not n
        ("list(zip(range(3), range(1, 4)))", []),
        ("tuple((i, (i + 1) % 4) for i in range(4))", []),
        ("[(i, (i + 1) % 4) for i in range(5)]", ["PXL004"]),
        ("[(i, i + 1) for i in range(4)]", ["PXL005"]),
        ("[(i, i) for i in range(10 ** 9)]", []),  # not looked at
        ("[(0, 1)] * 2", ["PXL004"]),
        ("right + [(3, 0)]", []),
        ("right + [(3, 1)]", ["PXL004"]),
        ("right[:2]", []),
        ("[(1, 2), (2.0, 3)]", []),
        ("[(i, i + 1) for i in range(lax.axis_size('x'))]", ["PXL005"]),
        ("[(i, i + 1) for i in range(lax.axis_size('x') - 1)]", []),
        ("[(i, (i + 1) % lax.psum(1, 'x')) for i in range(lax.psum(1, 'x'))]", []),
        ("[(i, i + 1) for i in range(mesh.shape['x'])]", ["PXL005"]),
        ("[(i, (i + 1) % len(jax.devices())) for i in range(jax.device_count())]", ["PXL006"]),
    ],
)
def test_on_an_axis_of_four(perm, expected):
    assert codes_of(perm) == expected


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize(
    "mesh",
    [
        'Mesh(np.array(jax.devices()[:{n}]), ("x",))',
        "Mesh(np.array(jax.devices()[:{n}]), 'x')",
        'Mesh(jax.devices()[0:{n}], axis_names=("x",))',
        'Mesh(np.array(jax.devices()[: 2 * {n}]).reshape(2, {n}), ("y", "x"))',
        'Mesh(np.array(jax.devices()[: 2 * {n}]).reshape((-1, {n})), ("y", "x"))',
        'jax.make_mesh(({n},), ("x",))',
        'jax.make_mesh((2, {n}), ("y", "x"))',
        'jax.sharding.AbstractMesh(({n},), ("x",))',
        'Mesh(mesh_utils.create_device_mesh(({n},)), ("x",))',
        'Mesh(mesh_utils.create_device_mesh([{n}]), axis_names=["x"])',
    ],
)
def test_sizes_of_meshes(mesh, size):
    before = f"from jax.experimental import mesh_utils\nSIZE = {size}\nmesh = {mesh.format(n='SIZE')}"
    assert codes_of(f"[(0, {size - 1})]", before, prelude=NO_MESH) == []
    assert codes_of(f"[(0, {size})]", before, prelude=NO_MESH) == ["PXL005"]


@pytest.mark.parametrize(
    "before",
    [
        'mesh = Mesh(np.array(jax.devices()), ("x",))',
        'def f(devices):\n    return Mesh(devices, ("x",))',
        'a = jax.make_mesh((4,), ("x",))\nb = jax.make_mesh((8,), ("x",))',
        'a = jax.make_mesh((4,), ("x",))\nb = jax.make_mesh((8,), names)',
        'a = jax.make_mesh((4,), ("x",))\ndef run(mesh):\n    jax.shard_map(f, mesh=mesh)',
        'a = jax.make_mesh((4,), ("x",))\njax.vmap(f, axis_name="x")',
        'a = jax.make_mesh((4,), ("y",))',
    ],
)
def test_a_size_that_is_not_known(before):
    assert codes_of("[(0, 9)]", before, prelude=NO_MESH) == []


def test_the_mesh_of_the_same_function_counts():
    text = """
    def test_four():
        mesh = jax.make_mesh((4,), ("x",))
        on_four = jax.shard_map(lambda x: lax.ppermute(x, "x", [(0, 5)]), mesh=mesh)

    def test_eight():
        mesh = jax.make_mesh((8,), ("x",))
        on_eight = jax.shard_map(lambda x: lax.ppermute(x, "x", [(0, 5)]), mesh=mesh)
    """
    assert found(text, "PXL005") == [("PXL005", 4)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ('mesh = jax.make_mesh((4,), ("x",))', ["PXL006"]),
        ('mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("y", "x"))', ["PXL006"]),
        ('n = jax.device_count()\nmesh = jax.make_mesh((2, n // 2), ("y", "x"))', ["PXL006"]),
        ('mesh = Mesh(np.array(jax.devices()), ("x",))', []),
        ('mesh = jax.make_mesh((jax.device_count(),), ("x",))', []),
        ('mesh = jax.make_mesh((len(jax.devices()),), ("x",))', []),
        ('assert jax.device_count() == 4\nmesh = jax.make_mesh((4,), ("x",))', []),
        ('if len(jax.devices()) != 4:\n    raise SystemExit\nmesh = jax.make_mesh((4,), ("x",))', []),
        ('jax.config.update("jax_num_cpu_devices", 4)\nmesh = jax.make_mesh((4,), ("x",))', []),
        ('FLAGS = "--xla_force_host_platform_device_count=4"\nmesh = jax.make_mesh((4,), ("x",))', []),
        ('FLAGS = "--xla_force_host_platform_device_count=8"\nmesh = jax.make_mesh((4,), ("x",))', ["PXL005"]),
    ],
)
def test_a_perm_for_all_devices(before, expected):
    ring = "[(i, (i + 1) % size) for i in range(size)]"
    assert codes_of(ring, f"{before}\nsize = jax.device_count()", prelude=NO_MESH) == expected
    chain = "[(i, i + 1) for i in range(size)]"
    wrong_anyway = expected or (["PXL005"] if "mesh" in before else [])
    assert codes_of(chain, f"{before}\nsize = jax.device_count()", prelude=NO_MESH) == wrong_anyway


def test_a_perm_is_reported_once_where_it_is_written():
    text = """
    ring = [(0, 1), (1, 2), (2, 4)]

    def f(x):
        token = peerax.psend(x, "x", ring)
        return peerax.precv(token, x, "x", ring)
    """
    (finding,) = lint(text, "PXL005")
    assert finding.message == "the perm ring names rank 4, and the axis has 0..3"
    assert [line - finding.line for line, _ in finding.related] == [3]  # the first of those that take it


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_perm_that_is_right_for_some_numbers_is_left_alone(size):
    before = f"mesh = jax.make_mesh(({size},), ('x',))"
    for perm in ("[(i, (i + 1) % n) for i in range(n)]", "[(i, i + 1) for i in range(k)]", "[(0, n), (n, 0)]"):
        assert codes_of(perm, before, prelude=NO_MESH) == ([] if size > 1 or "i + 1) for" not in perm else ["PXL005"])


def test_a_list_that_is_changed_is_not_judged():
    assert codes_of("perm", "perm = [(0, 1), (0, 2)]\nperm.pop()") == []
    assert codes_of("perm", "perm = [(0, 1), (0, 2)]\nperm[1] = (1, 2)") == []
    assert codes_of("perm", "perm = [(0, 1), (0, 2)]\nperm += [(1, 2)]") == []
    assert codes_of("perm", "perm = [(0, 1), (0, 2)]\nif x:\n    perm = [(0, 1)]") == []
    assert codes_of("perm", "perm = [(0, 1), (0, 2)]") == ["PXL004"]


def test_functions_of_one_expression_are_called():
    before = "def ring(n):\n    'A ring.'\n    return [(i, (i + 1) % n) for i in range(n)]"
    assert codes_of("ring(4)", before) == []
    assert codes_of("ring(5)", before) == ["PXL005"]
    assert codes_of("chain(5)", "chain = lambda n: [(i, i + 1) for i in range(n - 1)]") == ["PXL005"]
    assert codes_of("endless(5)", "def endless(n):\n    return endless(n + 1)") == []


def test_axes_by_another_name():
    assert codes_of("[(0, 4)]", "AXIS = 'x'", axis="AXIS") == ["PXL005"]
    assert codes_of("[(0, 4)]", axis='("x",)') == ["PXL005"]
    assert codes_of("[(0, 4)]", axis="axis") == []
    assert codes_of("[(i, i + 1) for i in range(lax.axis_size(axis))]", axis="axis") == ["PXL005"]
    assert codes_of("[(i, i + 1) for i in range(lax.axis_size('y'))]", axis="axis") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('y = lax.ppermute(x, "x", ring)\ny = jnp.where(lax.axis_index("x") == 0, 0, y)', ["PXL007"]),
        (
            'rank = lax.axis_index("x")\nfirst = rank == 0\nreturn jnp.where(first, 0, lax.ppermute(x, "x", ring))',
            ["PXL007"],
        ),
        ('y = lax.ppermute(x, "x", ring)\ny = jnp.where(lax.axis_index("x") == n - 1, 0, y)', ["PXL007"]),
        (
            'y = peerax.precv(peerax.psend(x, "x", ring), x, "x", ring)\ny = jnp.where(lax.axis_index("x") == 0, 0, y)',
            ["PXL007"],
        ),
        ('y = lax.ppermute(x, "x", ring)\nz = jnp.where(lax.axis_index("x") == 0, 0, x)', []),
        ('y = lax.ppermute(x, "x", right)\ny = jnp.where(lax.axis_index("x") == 0, 0, y)', []),
        ('y = lax.ppermute(x, "x", ring)\ny = jnp.where(x == 0, 0, y)', []),
        ('y = lax.ppermute(x, "x", ring)\nreturn y', []),
    ],
)
def test_a_ring_for_a_chain(body, expected):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = f"def f(x, n):\n    ring = [(i, (i + 1) % n) for i in range(n)]\n{lines}\n"
    assert [code for code, _ in found(text, "PXL007")] == expected
