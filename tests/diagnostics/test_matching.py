"""What is found in text as people paste it."""

import io
import re
import traceback

import pytest

from peerax.diagnostics import Squeezed, Template, find, records
from peerax.diagnostics._pasted import Pasted, plain
from tests.diagnostics.executed import executable, outcomes
from tests.diagnostics.pasted import FORMS

RECORDS = records()
ON_GPUS, MANUAL = "jax-psend-on-gpus-only", "jax-psend-manual-sharding"
FAILING = [slug for slug, record in RECORDS.items() if any(name == "failing" for name, _ in executable(record))]

# The errors that the project began with, from a version of JAX that need not be the one that is installed.
TRACEBACK = """\
jax.errors.SimplifiedTraceback: For simplicity, JAX has removed its internal frames from the traceback.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/train.py", line 41, in <module>
    loss, grads = step(params, batch)
                  ^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/site-packages/jax/_src/lax/parallel.py", line 1171, in _psend_lowering_gpu
    raise NotImplementedError("{message}")
NotImplementedError: {message}
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception. Set \
JAX_TRACEBACK_FILTERING=off to include these."""


def slugs(text):
    return [record.slug for record in find(text).matches]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("slug", [ON_GPUS, MANUAL])
class TestFirstErrors:
    def test_traceback(self, slug, form):
        assert slugs(FORMS[form](TRACEBACK.format(message=RECORDS[slug].message)))[0] == slug

    def test_single_line(self, slug, form):
        assert slugs(FORMS[form](RECORDS[slug].heading))[0] == slug

    def test_message(self, slug, form):
        assert slugs(FORMS[form](RECORDS[slug].message))[0] == slug


@pytest.mark.parametrize("slug", FAILING)
def test_real_text_is_explained_first_by_its_record_in_every_form(slug):
    shown = outcomes()[slug, "failing"].shown.rstrip("\n")
    wrong = {form: found[:3] for form, change in FORMS.items() if (found := slugs(change(shown)))[:1] != [slug]}
    assert not wrong, f"{wrong}\n{shown}"


def test_real_texts_are_many():
    assert len(FAILING) >= 42 + len([slug for slug in FAILING if slug in (ON_GPUS, MANUAL)])


def test_real_output_of_pytest(pytester):
    program = RECORDS[MANUAL].failing.standalone()
    body = "".join(f"    {line}\n" for line in program.splitlines())
    pytester.makepyfile(f"def test_step():\n{body}")
    done = pytester.runpytest_subprocess("-p", "no:peerax", "-p", "no:cacheprovider", "--color=yes")
    assert done.ret == 1
    assert slugs(done.stdout.str())[0] == MANUAL


def test_traceback_of_rich():
    from rich.console import Console
    from rich.traceback import Traceback

    console = Console(record=True, width=70, force_terminal=True, file=io.StringIO())
    try:
        raise NotImplementedError(RECORDS[ON_GPUS].message)
    except NotImplementedError as error:
        console.print(Traceback.from_exception(type(error), error, error.__traceback__))
    assert slugs(console.export_text(styles=True))[0] == ON_GPUS


@pytest.mark.parametrize("text", ["PX203", "px203", "203", " Px203\n"])
def test_code(text):
    assert slugs(text) == ["PX203"]


def test_name_of_a_record():
    assert slugs(MANUAL) == [MANUAL]


def test_a_code_in_the_text_is_first():
    text = TRACEBACK.format(message=RECORDS[MANUAL].message)
    assert slugs(f"PX203: shapes differ\n  help: ...\n  more: peerax explain PX203\n{text}") == ["PX203", MANUAL]


def test_of_several_codes_the_last_is_first():
    assert slugs("  PX203: shapes differ\n  PX204: dtypes differ\n") == ["PX204", "PX203"]


def test_the_later_exception_is_first():
    first, second = (TRACEBACK.format(message=RECORDS[slug].message) for slug in (ON_GPUS, MANUAL))
    assert slugs(f"{first}\n\nDuring handling ..., another exception occurred:\n\n{second}")[:2] == [MANUAL, ON_GPUS]
    assert slugs(f"{second}\n\nDuring handling ..., another exception occurred:\n\n{first}")[:2] == [ON_GPUS, MANUAL]


def test_the_longer_message_is_first():
    on_gpu = "jax-psend-on-cpu-or-tpu"
    assert slugs(RECORDS[ON_GPUS].heading) == [ON_GPUS]  # it does not end amid a word
    assert slugs(RECORDS[on_gpu].heading) == [on_gpu]
    assert slugs(f"{RECORDS[on_gpu].heading}\nsee below") == [on_gpu]


def test_another_class_is_worse():
    message = RECORDS[MANUAL].message
    assert slugs(f"ValueError: {message}") == [MANUAL]  # a wrapper may have changed it
    others = [RECORDS[ON_GPUS].heading, f"ValueError: {message}"]
    assert slugs("\n".join(others)) == [ON_GPUS, MANUAL]


def test_what_python_says_needs_more_than_its_message():
    assert slugs("IndexError: list index out of range") == []
    assert slugs('    y = jax.lax.ppermute(x, "x", perm)\nIndexError: list index out of range') != []


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("psend is curently only implemneted on GPUs", ON_GPUS),
        ("NotImplementedError: psend current only support manual shardings", MANUAL),
        ("FAILED test_train.py::test_step - NotImplementedError: psend currently only suppor...", MANUAL),
    ],
)
def test_near_misses(text, near):
    found = find(text)
    assert found.matches == ()
    assert found.near[0].slug == near


@pytest.mark.parametrize("text", ["", "hello", "KeyError: 'stage'", "PX999", "Traceback (most recent call last):"])
def test_not_known(text):
    found = find(text)
    assert found.matches == ()
    assert all(record.code for record in found.near)  # PX999 is like other codes


@pytest.mark.parametrize(
    "code",
    [
        "{}['stage']",
        "[1, 2, 3][7]",
        "1 / 0",
        "int('seven')",
        "import no_such_module",
        "None.shape",
        "assert 1 == 2, 'ranks differ'",
        "import numpy; numpy.zeros(3) + numpy.zeros(4)",
        "import numpy; numpy.zeros(3).reshape(2, 2)",
        "import jax.numpy as jnp; jnp.zeros(3) + jnp.zeros(4)",
        "import jax.numpy as jnp; jnp.zeros(3).reshape(2, 2)",
        "import jax.numpy as jnp; jnp.dot(jnp.zeros((2, 3)), jnp.zeros((2, 3)))",
        "import jax; jax.jit(lambda x: x)('a text')",
        "import json; json.loads('{')",
        "open('/no/such/file')",
    ],
)
def test_other_errors_are_not_known(code):
    with pytest.raises(Exception) as caught:
        exec(code, {})
    text = "".join(traceback.format_exception(caught.value))
    assert slugs(text) == []


def test_large_log_takes_no_time():
    line = "2026-11-30 21:29:30,123 INFO train.loop: step 17 of 100000, loss 0.1234, axis x, psend is fine\n"
    text = line * 20_000 + TRACEBACK.format(message=RECORDS[MANUAL].message)
    assert slugs(text)[0] == MANUAL


@pytest.mark.parametrize(
    ("text", "plain_text"),
    [
        ("\x1b[1;31mError\x1b[0m: a\x1b]8;;http://x\x07b\x1b]8;;\x07", "Error: ab"),
        ("E   ValueError: a\nE     b", "ValueError: a\n  b"),
        ("[rank0]: ValueError: a", "ValueError: a"),
        ("│ ValueError: a │", "ValueError: a"),
        (
            "x 1: Traceback (most recent call last):\nx 22: ValueError: a",
            "Traceback (most recent call last):\nValueError: a",
        ),
        ("Error 7 in [3] of E1130", "Error 7 in [3] of E1130"),
    ],
)
def test_plain(text, plain_text):
    assert [line.rstrip() for line in plain(text).split("\n")] == plain_text.split("\n")


def test_heads():
    pasted = Pasted("  jax.errors.JaxRuntimeError: INTERNAL: a\nKeyboardInterrupt\nnot an Error: b\nfoo(ValueError: x)")
    assert [head.exception for head in pasted.heads] == ["JaxRuntimeError", "KeyboardInterrupt"]


class TestTemplate:
    def test_parts(self):
        template = Template.of("rank {rank} of {{a}} is {0}out")
        assert template.literals == ("rank ", " of {a} is ", "out")
        assert template.weight == len("rankof{a}isout")

    @pytest.mark.parametrize(
        "text", ["rank 3 of 4 is out", "RANK 3\nof  4 is\nout.", "(rank x of y of 4 is out)", "ra\nnk 3 of 4 is o\nut"]
    )
    def test_finds(self, text):
        ((start, end),) = Template.of("rank {rank} of {size} is out").find(Squeezed(text))
        assert "".join(text[start:end].lower().split()).startswith("rank")
        assert "".join(text[start:end].lower().split()).endswith("isout")

    @pytest.mark.parametrize("text", ["rank 3 of 4 is outer", "crank 3 of 4 is out", "rank 3 is out of 4", ""])
    def test_does_not_find(self, text):
        assert Template.of("rank {rank} of {size} is out").find(Squeezed(text)) == []

    @pytest.mark.parametrize("slug", RECORDS)
    def test_pattern_finds_what_the_template_finds(self, slug):
        message = re.sub(r"(?<!\{)\{\w*\}(?!\})", "some value", RECORDS[slug].message)
        message = message.replace("{{", "{").replace("}}", "}")
        assert re.search(RECORDS[slug].template.pattern(), message)
