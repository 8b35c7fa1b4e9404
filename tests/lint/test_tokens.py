"""PXL002, PXL012 and PXL003: messages that have one end, and tokens that are used before they exist."""

import pytest

from tests.lint.linted import PRELUDE, found, lint


def inside(body):
    """Return a program whose function f runs inside of shard_map."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"@on_ranks\ndef f(x):\n{lines}\n"


@pytest.mark.parametrize(
    "body",
    [
        'peerax.psend(x, "x", right)',
        '_ = peerax.psend(x, "x", right)',
        'token = peerax.psend(x, "x", right)\nreturn x',
        'token = lax.psend(x, "x", perm=right)',
        'peerax.psend(x, "x", right)\ny = peerax.precv(peerax.create_token(), x, "x", [(1, 0)])',
    ],
)
def test_a_send_that_nothing_receives(body):
    assert found(inside(body), "PXL002") == [("PXL002", 3)]


def test_the_other_perm_is_named():
    body = 'peerax.psend(x, "x", right)\ny = peerax.precv(peerax.create_token(), x, "x", [(1, 0)])'
    (finding,) = lint(inside(body), "PXL002")
    assert finding.related == ((finding.line + 1, "this precv has another perm"),)


@pytest.mark.parametrize(
    "body",
    [
        'return peerax.precv(peerax.psend(x, "x", right), x, "x", right)',
        'token = peerax.psend(x, "x", right)\nreturn token',
        'token = peerax.psend(x, "x", right)\nreturn peerax.order(x, token)',
        'peerax.psend(x, "x", right)\nreturn peerax.precv(peerax.create_token(), x, "x", right)',
        'peerax.psend(x, "x", right)\nreturn peerax.precv(peerax.create_token(), x, "x", [(2, 3), (0, 1), (1, 2)])',
        'peerax.psend(x, "x", right)\nreturn peerax.precv(peerax.create_token(), x, "x", other)',
        'peerax.psend(x, "x", right)\nreturn receive_from(x)',
        'peerax.psend(x, "x", right)\nreturn x.recv()',
        'peerax.psend((), "x", [])',
    ],
)
def test_a_send_that_may_be_received(body):
    assert found("other = make_perm()\n" + inside(body), "PXL002") == []


def test_a_receive_in_another_function_that_belongs_to_it():
    text = """
    def tick(carry, x):
        y = peerax.precv(peerax.create_token(), x, "x", right)
        peerax.psend(y, "x", right)
        return carry, y

    @on_ranks
    def f(x):
        first = peerax.precv(peerax.create_token(), x, "x", [(1, 0)])
        lax.scan(tick, 0, x)
        peerax.psend(first, "x", right)
        return first
    """
    assert found(text, "PXL002") == []


def test_a_receive_in_a_function_that_has_nothing_to_do_with_it():
    text = """
    @on_ranks
    def f(x):
        peerax.psend(x, "x", right)

    @on_ranks
    def g(x):
        return peerax.precv(peerax.create_token(), x, "x", right)
    """
    assert found(text, "PXL002") == [("PXL002", 4)]


def test_functions_that_other_files_may_call_together():
    text = """
    def send(x):
        peerax.psend(x, "x", right)

    def receive(x):
        return peerax.precv(peerax.create_token(), x, "x", right)
    """
    assert found(text, "PXL002") == []


@pytest.mark.parametrize(
    ("receives", "missing"),
    [
        ("[(0, 1)], [(1, 2), (2, 3)]", ""),
        ("[(0, 1), (1, 2), (2, 3), (3, 0)]", ""),
        ("[(0, 1)], [(2, 3)]", "its pair (1, 2)"),
        ("[(0, 1)]", "its pair (1, 2)"),
        ("[(1, 0)], [(3, 2)]", "its perm"),
        ("[(0, 1)], other", ""),
    ],
)
def test_a_send_may_be_received_in_parts(receives, missing):
    perms = receives.split("], ")
    perms = [perm if perm.endswith(("]", "r")) else f"{perm}]" for perm in perms]
    body = 'peerax.psend(x, "x", right)\n' + "\n".join(
        f'y = peerax.precv(peerax.create_token(), x, "x", {perm})' for perm in perms
    )
    messages = [finding.message for finding in lint("other = make_perm()\n" + inside(body), "PXL002")]
    assert messages == ([f"the token of this psend is not used, and no precv here has {missing}"] if missing else [])


@pytest.mark.parametrize(
    "body",
    [
        'return peerax.precv(peerax.create_token(), x, "x", right)',
        'return lax.precv(lax.create_token(), x, axis_name="x", perm=right)',
        'token = peerax.create_token()\nreturn peerax.precv(token=token, out_shape=x, axis_name="x", perm=right)',
        'peerax.psend(x, "x", [(1, 0)])\nreturn peerax.precv(peerax.create_token(), x, "x", right)',
    ],
)
def test_a_receive_that_nothing_sends_to(body):
    (finding,) = lint(inside(body), "PXL012")
    assert finding.line == len((PRELUDE + inside(body)).splitlines())
    assert [what for _, what in finding.related] == ["this psend has another perm"] * body.count("psend")


@pytest.mark.parametrize(
    "body",
    [
        'return peerax.precv(peerax.psend(x, "x", [(1, 0)]), x, "x", right)',  # the verifier knows
        'peerax.psend(x, "x", right)\nreturn peerax.precv(peerax.create_token(), x, "x", right)',
        'peerax.psend(x, "x", other)\nreturn peerax.precv(peerax.create_token(), x, "x", right)',
        'send_to(x)\nreturn peerax.precv(peerax.create_token(), x, "x", right)',
        'return peerax.precv(peerax.create_token(), x, "x", [])',
        'return peerax.precv(made(), x, "x", right)',
        "def g(token):\n    return peerax.precv(token, x, 'x', right)\nreturn g(peerax.create_token())",
    ],
)
def test_a_receive_that_something_may_send_to(body):
    assert found("other = make_perm()\n" + inside(body), "PXL012") == []


def test_a_receive_that_others_may_send_to():
    assert found('def receive(x):\n    return peerax.precv(peerax.create_token(), x, "x", right)\n', "PXL012") == []


@pytest.mark.parametrize(
    "body",
    [
        'y = peerax.precv(token, x, "x", right)\ntoken = peerax.psend(x, "x", right)',
        'token = peerax.precv(token, x, "x", right)',
        'y = peerax.precv(out_shape=x, token=token, axis_name="x", perm=right)\ntoken = peerax.psend(x, "x", right)',
        'y = peerax.psend(x, "x", right, token=token)\ntoken = peerax.create_token()',
        'for i in range(3):\n    y = peerax.precv(token, x, "x", right)\n    token = peerax.psend(x, "x", right)',
        'if x is None:\n    y = peerax.precv(token, x, "x", right)\ntoken = peerax.psend(x, "x", right)',
        'y = peerax.precv(token, x, "x", right)\ntoken, z = lax.optimization_barrier((1, x))',
        'with open("f"):\n    y = peerax.precv(token, x, "x", right)\nfor token in []: pass',
    ],
)
def test_a_token_before_it_exists(body):
    assert [code for code, _ in found(inside(body), "PXL003")] == ["PXL003"]


def test_where_it_is_and_where_the_token_comes_from():
    body = 'y = peerax.precv(token, x, "x", right)\ntoken = peerax.psend(x, "x", right)'
    (finding,) = lint(inside(body), "PXL003")
    assert finding.message == f"precv takes the token token, which gets its value only in line {finding.line + 1}"
    source = (PRELUDE + inside(body)).splitlines()[finding.line - 1]
    assert source[finding.column - 1 : finding.end_column - 1] == "token"


@pytest.mark.parametrize(
    "body",
    [
        'token = peerax.psend(x, "x", right)\ny = peerax.precv(token, x, "x", right)',
        'if (token := peerax.psend(x, "x", right)) is not None:\n    y = peerax.precv(token, x, "x", right)',
        'for i in range(3):\n    if i > 0:\n        y = peerax.precv(token, x, "x", right)\n'
        '    token = peerax.psend(x, "x", right)',
        'try:\n    token = peerax.psend(x, "x", right)\nfinally:\n    y = peerax.precv(token, x, "x", right)',
        'def g():\n    return peerax.precv(token, x, "x", right)\ntoken = peerax.psend(x, "x", right)\nreturn g()',
        'for token in [peerax.create_token()]:\n    y = peerax.precv(token, x, "x", right)\n    token = x',
        'global token\ny = peerax.precv(token, x, "x", right)\ntoken = peerax.psend(x, "x", right)',
        'y = peerax.precv(undefined, x, "x", right)',
        'y = [peerax.precv(token, x, "x", right) for token in [1]]',
    ],
)
def test_a_token_that_exists(body):
    assert found(inside(body), "PXL003") == []


def test_a_parameter_exists():
    text = 'def f(token, x):\n    y = peerax.precv(token, x, "x", right)\n    token = peerax.psend(x, "x", right)\n'
    assert found(text, "PXL003") == []
