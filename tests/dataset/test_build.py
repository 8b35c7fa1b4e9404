"""The data set that is built from the installed packages."""

import dataclasses
import json
import re

import pytest

from peerax.dataset import PACKAGES, build, is_in
from peerax.dataset._build import identity
from peerax.dataset._join import covers, in_native, line_with, moved_to, site_of
from peerax.dataset._packages import Package, package
from peerax.dataset._sites import Site
from peerax.diagnostics import records
from tests.dataset.built import built
from tests.diagnostics.executed import raised_at

pytest.importorskip("packaging")
RECORDS = records()
MANUAL = RECORDS["jax-psend-manual-sharding"]


@pytest.fixture(scope="module")
def dataset():
    return built()


@pytest.fixture(scope="module")
def published(dataset):
    lines = [json.loads(line) for line in dataset.lines]
    assert len({line["datasetVersion"] for line in lines}) == 1
    return {line["record"]["slug"]: line["record"] for line in lines}


def test_every_record_is_published_once(dataset, published):
    assert len(dataset.lines) == len(published) == len(RECORDS)
    assert published.keys() == RECORDS.keys()


def test_every_raise_site_is_there_in_its_versions(dataset):
    assert dataset.gone == {}
    assert all(not is_in(RECORDS[slug].versions) for slug in dataset.absent)


def test_the_site_is_where_the_error_is_raised(published):
    """The innermost frame of the real traceback is within the lines that are published."""
    wrong, compared = {}, 0
    for slug, (file, line) in raised_at().items():
        record = published[slug]
        source = record["sourceCode"].splitlines()[record["lineNumber"] - record["sourceCodeStart"]]
        if not source.strip().startswith(("raise ", "assert ")) or not file.endswith(record["filePath"]):
            continue  # where the message is made, and not where it is raised, or raised once more
        compared += 1
        if not record["sourceCodeStart"] <= line <= record["sourceCodeEnd"]:
            wrong[slug] = (file, line, record["filePath"], record["lineNumber"])
    assert not wrong
    assert compared >= 40


def test_first_error_is_joined_to_the_line_that_raises_it(published):
    record = published[MANUAL.slug]
    source = package("jax")
    lines = (source.directory.parent / record["filePath"]).read_text().splitlines()
    assert lines[record["lineNumber"] - 1].strip() == f'raise NotImplementedError("{MANUAL.message}")'
    assert record["sourceCode"] == "\n".join(lines[record["sourceCodeStart"] - 1 : record["sourceCodeEnd"]])
    assert (record["repo"], record["analyzedSha"]) == ("jax-ml/jax", source.revision)
    assert re.fullmatch("[0-9a-f]{40}", source.revision)
    path = f"jax/_src/lax/parallel.py#L{record['lineNumber']}"
    assert record["githubUrl"] == f"https://github.com/jax-ml/jax/blob/{source.revision}/{path}"
    assert record["exampleFix"] == MANUAL.fixed.standalone()
    assert (record["errorCode"], record["errorClass"], record["schemaVersion"]) == (None, "NotImplementedError", 2)


def test_codes_are_joined_to_where_they_are_raised(published):
    record = published["PX105"]
    assert record["errorCode"] == "PX105"
    assert "peerax/perm.py" in record["filePath"]
    assert '"PX105"' in record["sourceCode"]
    joined = [slug for slug in published if RECORDS[slug].code and published[slug]["filePath"]]
    assert len(joined) >= 25  # the others are raised by the extension only


def test_uncovered_sites_are_counted_by_package(dataset):
    assert list(dataset.uncovered) == list(PACKAGES.values())
    assert len(dataset.uncovered["jax"]) > 1000
    message = "psend currently only supports manual sharding"
    assert not [site for site in dataset.uncovered["jax"] if site.message == message]


def test_only_the_packages_that_are_asked_for():
    dataset = build(["peerax"])
    slugs = [json.loads(line)["record"]["slug"] for line in dataset.lines]
    assert slugs == [slug for slug, record in RECORDS.items() if record.origin == "peerax"]
    assert list(dataset.uncovered) == ["peerax"]


@pytest.mark.parametrize("name", ["no_such_package", "jax.lax", "a b", "json.decoder"])
def test_package_that_is_not_installed(name):
    with pytest.raises(LookupError, match="is installed here"):
        build([name])


def test_identity_depends_on_class_and_words_only():
    other = dataclasses.replace(
        MANUAL, slug="jax-other", title="Other", raised_in=("jax/moved.py",), severity="fatal", versions=">=9"
    )
    assert identity(other) == identity(MANUAL)
    assert re.fullmatch("[0-9a-f]{16}", identity(MANUAL))
    renamed = dataclasses.replace(MANUAL, message="{what} needs manual axes")
    assert identity(renamed) == identity(dataclasses.replace(MANUAL, message="{thing} needs manual axes"))
    assert identity(renamed) != identity(MANUAL)
    assert identity(dataclasses.replace(MANUAL, exception="ValueError")) != identity(MANUAL)
    assert len({identity(record) for record in RECORDS.values()}) == len(RECORDS)


def site(message, file="jax/_src/lax/parallel.py", exception="NotImplementedError", function="f", line=7):
    return Site(exception, message, file, line, function, "source", line, line)


def test_joined_wherever_the_line_is():
    assert site_of(MANUAL, [site("else"), site(MANUAL.message, line=9000)]).line == 9000


def test_joined_where_either_message_has_the_other():
    assert covers(MANUAL, site("{name} currently only supports manual sharding"))
    assert covers(MANUAL, site("in f: psend currently only supports manual sharding, but {x}"))
    assert not covers(MANUAL, site("{name} sharding"))
    assert not covers(MANUAL, site(MANUAL.message, exception="ValueError"))


def test_joined_where_both_have_placeholders():
    record = dataclasses.replace(MANUAL, message="scan carry input and output must have equal types, so {what}")
    assert site_of(record, [site("{name} carry input and output must have equal types{differences}")])
    assert site_of(record, [site("{name} carry input{differences}")]) is None


def test_gone_if_raised_elsewhere_and_the_place_is_named():
    moved = [site(MANUAL.message, file="jax/_src/collectives.py")]
    assert site_of(MANUAL, moved) is None
    assert moved_to(MANUAL, moved) == ["jax/_src/collectives.py"]


def test_function_chooses_among_equal_messages():
    record = dataclasses.replace(MANUAL, function="g")
    found = [site(MANUAL.message, function="A.f", line=1), site(MANUAL.message, function="A.g", line=2)]
    assert site_of(record, found).line == 2
    assert site_of(record, found[:1]) is None


def test_statement_is_found_as_text(tmp_path):
    source = Package("jax", "1", tmp_path / "jax", "1", "jax-ml/jax")
    (tmp_path / "jax").mkdir()
    file = tmp_path / "jax" / "a.py"
    file.write_text("a\nb\n  full_perm[i] = grp[src]\nc\n")
    found = line_with("full_perm[i] =", "IndexError", [tmp_path / "jax" / "gone.py", file], source)
    assert (found.file, found.line, found.source_start, found.source_end) == ("jax/a.py", 3, 1, 4)
    assert line_with("nowhere", "IndexError", [file], source) is None


def test_native_text(tmp_path):
    library = tmp_path / "library.so"
    library.write_bytes(b"\0\1Expected send to match recv\0\2")
    record = dataclasses.replace(MANUAL, message="{op}: Expected send to match recv")
    assert in_native(record, [str(library)])
    assert not in_native(MANUAL, [str(library)])
    assert not in_native(record, [])
