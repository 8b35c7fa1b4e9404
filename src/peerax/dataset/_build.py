"""The data set: a line of JSON for each record, with the place in the installed source where its error is raised."""

import datetime
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from peerax.dataset._extra import need
from peerax.dataset._join import covers, in_native, line_with, moved_to, native_files, site_of, text_of
from peerax.dataset._packages import Package, package
from peerax.dataset._sites import Site, harvest
from peerax.diagnostics import Record, records

SCHEMA_VERSION = 2
# The package whose source raises the errors of each origin.
PACKAGES = {"jax": "jax", "xla": "jaxlib", "peerax": "peerax"}


@dataclass(frozen=True)
class Dataset:
    """Hold what was built.

    lines: of JSON. uncovered: raise sites that no record is about, by package. gone: for each record whose error the
    installed source should raise and does not, where it may have moved. absent: records of errors that, as their
    versions say, are not in what is installed.
    """

    lines: tuple[str, ...]
    uncovered: dict[str, tuple[Site, ...]]
    gone: dict[str, str]
    absent: tuple[str, ...]


def build(names: Sequence[str] = tuple(PACKAGES.values())) -> Dataset:
    """Harvest the raise sites of installed packages, and join them to the records.

    Args:
        names: the packages: jax, jaxlib (whose compiled code is XLA's), peerax, or any other, which has no records yet.

    Raises:
        LookupError: if one of them is not installed.
        Missing: if the package that reads versions is not installed.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    lines: list[str] = []
    uncovered: dict[str, tuple[Site, ...]] = {}
    gone: dict[str, str] = {}
    absent: list[str] = []
    for name in names:
        source = package(name)
        sites = list(harvest(source.directory))
        placed: list[Site | None] = []
        chosen = [record for record in records().values() if PACKAGES[record.origin] == name]
        natives = native_files(source) if any(not record.raised_in for record in chosen) else []
        for record in chosen:
            site = _place(record, sites, source)
            placed.append(site)
            if site is None and _should_be_there(record) and not in_native(record, natives):
                if is_in(record.versions):
                    gone[record.slug] = ", ".join(moved_to(record, sites)) or "nowhere"
                else:
                    absent.append(record.slug)
            lines.append(json.dumps({"record": publish(record, source, site, now), "datasetVersion": now}))
        uncovered[name] = tuple(
            site for site in sites if site not in placed and not any(covers(record, site) for record in chosen)
        )
    return Dataset(tuple(lines), uncovered, gone, tuple(absent))


def _should_be_there(record: Record) -> bool:
    """Whether the error is made by the package itself, and not by Python, numpy or a compiler that is not here."""
    return bool(record.raised_in) or (record.origin == "xla" and record.failing.needs is None)


def _place(record: Record, sites: Iterable[Site], source: Package) -> Site | None:
    if record.statement is not None:
        files = (source.directory.parent / file for file in record.raised_in)
        return line_with(record.statement, record.exception, files, source)
    if (record.raised_in or record.code is not None) and (site := site_of(record, sites)):
        return site
    if record.code is not None:
        room = source.directory / "diagnostics"  # which names every code
        files = (path for path in sorted(source.directory.rglob("*.py")) if room not in path.parents)
        return line_with(f'"{record.code}"', record.exception, files, source)
    return text_of(record, source)


def is_in(versions: str) -> bool:
    """Whether the installed JAX is one of the versions."""
    specifiers = need("packaging.specifiers").SpecifierSet(versions, prereleases=True)
    return importlib.metadata.version("jax") in specifiers


def publish(record: Record, source: Package | None, site: Site | None, at: str) -> dict[str, Any]:
    """Return a record as it is published; without a source, what only that knows is None."""
    repo = "openxla/xla" if record.origin == "xla" else source.repo if source else record.origin
    fixed = record.fixed.standalone() if record.fixed.processes == 1 else None
    return {
        "id": identity(record),
        "repo": repo,
        "slug": record.slug,
        "errorCode": record.code,
        "errorMessage": record.message,
        "messagePattern": record.template.pattern(),
        "errorType": "abort" if record.severity == "fatal" else "status" if record.origin == "xla" else "exception",
        "errorClass": record.exception,
        "httpStatus": None,
        "severity": record.severity,
        "filePath": site.file if site else None,
        "lineNumber": site.line if site else None,
        "sourceCode": site.source if site else None,
        "sourceCodeStart": site.source_start if site else None,
        "sourceCodeEnd": site.source_end if site else None,
        "githubUrl": source.url(site.file, site.line) if source and site else None,
        "documentation": record.page(),
        "triggerScenarios": "\n".join(f"- {item}" for item in record.when) or record.meaning,
        "commonSituations": "\n".join(record.situations) or None,
        "solutions": [part.replace("\n", " ") for part in record.fix.split("\n\n") if part] or [record.handling],
        "exampleFix": fixed,
        "handlingStrategy": record.handling,
        "validationCode": record.validation,
        "typeGuard": record.type_guard,
        "tryCatchPattern": record.try_catch,
        "preventionTips": list(record.prevention),
        "tags": list(record.tags),
        "backgroundTag": record.background,
        "analyzedSha": source.revision if source else None,
        "analyzedAt": at,
        "schemaVersion": SCHEMA_VERSION,
    }


def identity(record: Record) -> str:
    """Return 16 hexadecimal digits that stay as long as the class and the words of the message do."""
    words = "\0".join([record.origin, record.exception, record.code or "{}".join(record.template.squeezed)])
    return hashlib.sha256(words.encode()).hexdigest()[:16]
