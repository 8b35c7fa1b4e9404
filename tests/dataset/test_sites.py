"""Raise sites in source: what raises, and with which message."""

import ast
import textwrap

import pytest

from peerax.dataset._messages import template
from peerax.dataset._sites import harvest, sites


def of(source):
    source = textwrap.dedent(source)
    return list(sites(ast.parse(source), source.splitlines(), "a/b.py"))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'plain'", "plain"),
        ("'two ' 'pieces'", "two pieces"),
        ("'braces {}'", "braces {{}}"),
        ("f'{axis} of {mesh.size} and {f(x)} and {a + b} and {{}}'", "{axis} of {size} and {x} and {value} and {{}}"),
        ("f'{axis!r:>10}'", "{axis}"),
        ("'a' + name + f'{b}'", "a{name}{b}"),
        ("'%s of %d, %5.2f%%' % (x, mesh.size, f())", "{x} of {size}, {value}%"),
        ("'%(x)s and %(y)r' % values", "{x} and {y}"),
        ("'one %s' % x", "one {x}"),
        ("'{} and {}'.format(a, b.c)", "{a} and {c}"),
        ("'{1} and {0}'.format(a, b)", "{b} and {a}"),
        ("'{x} and {y[0]} and {{}}'.format(x=a, y=b)", "{a} and {b} and {{}}"),
        ("'{} {'.format(a)", "{{}} {{"),
        ("textwrap.dedent('''  a ''')", "  a "),
        ("' a '.strip()", "a"),
        ("known", "what is known"),
        ("f'{known}: {x}'", "what is known: {x}"),
        ("unknown", "{unknown}"),
        ("f()", "{value}"),
        ("_private", "{private}"),
        ("a if b else c", "{value}"),
    ],
)
def test_message(expression, message):
    assert template(ast.parse(expression, mode="eval").body, {"known": "what is known"}) == message


def test_where_it_is():
    (site,) = of("""
        class A:
            def f(self, x):
                if x:
                    raise ValueError(
                        f"{x} is wrong"
                    ) from None
                return x
    """)
    assert (site.exception, site.message, site.file, site.line, site.function) == (
        "ValueError",
        "{x} is wrong",
        "a/b.py",
        5,
        "A.f",
    )
    assert (site.source_start, site.source_end) == (2, 8)
    assert site.source.splitlines()[3] == "            raise ValueError("


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise errors.Error('a')", ("Error", "a")),
        ("raise Error", None),
        ("raise", None),
        ("raise error", None),
        ("raise make('a')", None),
        ("raise Deadlock('a')", ("Deadlock", "a")),  # known by being raised
        ("x = Deadlock('a')", None),
        ("return_ = ValueError('a')", ("ValueError", "a")),  # raised later
        ("assert x, f'{x} is wrong'", ("AssertionError", "{x} is wrong")),
        ("assert x", None),
        ("raise ValueError()", ("ValueError", "")),
        ("raise ValueError(*args)", ("ValueError", "{value}")),
        (
            "class MyError(ValueError):\n  def __init__(self, x):\n    super().__init__(f'{x} is')",
            ("MyError", "{x} is"),
        ),
        ("class A(B):\n  def __init__(self, x):\n    super().__init__(f'{x} is')", None),
        ("isinstance(x, ValueError)", None),
    ],
)
def test_what_raises(source, found):
    assert [(site.exception, site.message) for site in of(source)] == ([found] if found else [])


def test_text_in_variables():
    messages = [
        site.message
        for site in of("""
        msg = "outer {}"
        def f(x):
            msg = f"{x} is"
            msg += " wrong"
            raise ValueError(msg)
        def g(x):
            raise ValueError(msg.format(x))
        def h(msg):
            msg = compute()
            raise ValueError(msg)
    """)
    ]
    assert messages == ["{x} is wrong", "outer {x}", "{msg}"]


def test_codes_of_peerax():
    found = of("""
        raise PeeraxError.of("PX101", f"{axis} is unknown")
        Diagnostic("PX203" if a else "PX204", "they differ")
    """)
    assert [(site.code, site.exception, site.message) for site in found] == [
        ("PX101", "PeeraxError", "{axis} is unknown"),
        ("PX203", "PeeraxError", "they differ"),
        ("PX204", "PeeraxError", "they differ"),
    ]


def test_harvest_of_a_package(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "b.py").write_text("raise ValueError('b')\nraise TypeError('b2')\n")
    (package / "inner" / "a.py").write_bytes(b"# \xff\nraise ValueError('a')\n")
    (package / "old.py").write_text("print 'Python 2'\n")
    assert [(site.file, site.line, site.message) for site in harvest(package)] == [
        ("package/b.py", 1, "b"),
        ("package/b.py", 2, "b2"),
        ("package/inner/a.py", 2, "a"),
    ]


def test_a_parameter_hides_a_known_text():
    (site,) = of("""
        msg = "outer"
        def f(msg):
            raise ValueError(msg)
    """)
    assert site.message == "{msg}"
