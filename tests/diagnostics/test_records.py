"""The records: each program that fails does so with the error that its record is about, and each fixed one runs."""

import pytest
from packaging.specifiers import SpecifierSet

from peerax.diagnostics import Record, Squeezed, find, read_record, records
from tests.diagnostics.executed import executable, outcomes

RECORDS = records()
KEYS = [(record.slug, name) for record in RECORDS.values() for name, _ in executable(record)]
FAILING = [slug for slug, name in KEYS if name == "failing"]
FIXED = [slug for slug, name in KEYS if name == "fixed"]
# A report of peerax arrives in one of these, or is printed by the program itself.
CLASSES_OF_PEERAX = {"PeeraxError", "JaxRuntimeError", "XlaRuntimeError", "SystemExit"}


@pytest.fixture(scope="module", autouse=True)
def executed(request):
    """Execute all programs before the first test, and print how many."""
    done = outcomes()
    failing = sum(name == "failing" for _, name in done)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nrecords: {len(RECORDS)}; executed: {failing} programs that fail and {len(done) - failing} fixed ones")
    assert set(done) == set(KEYS)


@pytest.mark.parametrize("slug", FAILING)
def test_failing_program_fails_with_its_error(slug):
    record, outcome = RECORDS[slug], outcomes()[slug, "failing"]
    assert outcome.exception in (CLASSES_OF_PEERAX if record.code else {record.exception}), outcome.shown
    assert record.template.find(Squeezed(outcome.message)), f"{record.message!r} is not in\n{outcome.message}"


@pytest.mark.parametrize("slug", FAILING)
def test_what_it_shows_is_explained_first_by_its_record(slug):
    shown = outcomes()[slug, "failing"].shown
    assert [record.slug for record in find(shown).matches][:1] == [slug], shown


@pytest.mark.parametrize("slug", FIXED)
def test_fixed_program_runs(slug):
    outcome = outcomes()[slug, "fixed"]
    assert outcome.exception is None, outcome.shown


@pytest.mark.parametrize("record", [record for record in RECORDS.values() if record.code is None], ids=lambda r: r.slug)
class TestRecord:
    def test_text_is_complete(self, record):
        assert record.meaning and record.when and record.why and record.handling and record.tags
        assert record.prevention and record.versions
        assert record.raised_in == () or record.origin != "xla"

    def test_name_begins_with_who_raises_it(self, record):
        assert record.slug.startswith(f"{record.origin}-")

    def test_fixed_program_checks_its_result(self, record):
        assert "assert" in record.fixed.code

    def test_versions_can_be_read(self, record):
        assert SpecifierSet(record.versions) and SpecifierSet(record.fixed_versions) is not None

    def test_code_is_python(self, record):
        for code in (record.failing.code, record.fixed.code, record.validation, record.try_catch):
            compile(code or "", record.slug, "exec")
        compile(record.type_guard or "True", record.slug, "eval")


def test_messages_differ():
    messages = [(record.exception, record.template.squeezed) for record in RECORDS.values()]
    assert len(set(messages)) == len(messages)


def test_few_need_a_process_of_their_own():
    alone = [slug for slug, record in RECORDS.items() for example in (record.failing, record.fixed) if example.alone]
    assert len(alone) <= 20, "each takes seconds"


GOOD = """\
+++
origin = "jax"
class = "ValueError"
message = "{count} shards are too many"
raised_in = ["jax/_src/api.py"]
versions = ">=0.10.1"
severity = "error"
tags = ["shards"]
handling = "fail fast: use fewer"
prevention = ["count them"]
+++
# Too many shards

There are more shards
than devices.

## When it happens
- In the first
  case.
- In the second.

Mostly on laptops.

## Fails
```python fails devices=4 env=A=b=c
raise ValueError("9 shards are too many")
```
## Why
Because.

## Fixed
Take one.

```python devices=2 alone processes=3 platform=tpu needs=libtpu
assert sum([1, 1]) == 2
```
"""


def test_parts_of_a_record():
    record = read_record("too-many", GOOD)
    assert isinstance(record, Record)
    assert (record.slug, record.origin, record.exception, record.code) == ("too-many", "jax", "ValueError", None)
    assert record.heading == "ValueError: {count} shards are too many"
    assert (record.title, record.meaning) == ("Too many shards", "There are more shards\nthan devices.")
    assert record.when == ("In the first case.", "In the second.")
    assert (record.situations, record.why, record.fix) == (("Mostly on laptops.",), "Because.", "Take one.")
    failing, fixed = record.failing, record.fixed
    assert (failing.devices, failing.env, failing.alone) == (4, (("A", "b=c"),), False)
    assert failing.code == 'raise ValueError("9 shards are too many")\n'
    assert (fixed.devices, fixed.alone, fixed.processes, fixed.platform) == (2, True, 3, "tpu")
    assert (fixed.needs, fixed.code) == ("libtpu", "assert sum([1, 1]) == 2\n")
    assert record.body == GOOD.partition("\n+++\n")[2]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("+++\norigin", "origin", "does not begin with front matter"),
        ('"jax"', "jax", "its front matter is not TOML"),
        ('origin = "jax"\n', "", "its front matter lacks origin"),
        ("severity", "severe", "its front matter lacks severity"),
        ("versions =", 'more = "x"\nversions =', "its front matter has more; valid are background, class,"),
        ('["shards"]', '"shards"', "tags is not a list of texts"),
        ('["shards"]', "[1]", "tags is not a list of texts"),
        ('"fail fast: use fewer"', "7", "handling is not a text"),
        ('"jax"', '"numpy"', "origin is 'numpy'; valid are jax, xla, peerax"),
        ('"error"', '"bad"', "severity is 'bad'; valid are error, warning, fatal"),
        ("{count} shards are too many", "{count} shards {of}", "its message has fewer than 10 characters"),
        ("# Too many shards", "Too many shards", "its first line is not a title"),
        ("```python fails", "```python", "it has 0 programs that fail and 2 that are fixed"),
        ("devices=4", "device=4", "its code block has the word 'device=4'; valid are fails, devices=4"),
        ("## Why", "## How", "it has no section ## Why"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(old, new, what):
    assert old in GOOD
    with pytest.raises(ValueError, match="record too-many: ") as caught:
        read_record("too-many", GOOD.replace(old, new, 1))
    assert what in str(caught.value)


def test_a_fixed_program_brings_its_environment():
    code = RECORDS["PX302"].fixed.standalone()
    assert code.startswith('import os\n\nos.environ["JAX_PLATFORMS"] = "cpu"\n')
    assert 'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"\n' in code
    assert 'os.environ["PEERAX_SEND"] = "rendezvous"\n' in code
    assert code.endswith(RECORDS["PX302"].fixed.code)
