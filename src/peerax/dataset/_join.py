"""Which raise site a record is about: by class and message, wherever the line has moved."""

import ast
import difflib
import functools
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from peerax.dataset._packages import Package
from peerax.dataset._sites import Site, around, texts
from peerax.diagnostics import Record, Squeezed, Template

# Fewer characters that agree say nothing.
_LEAST = 20
_SHARED = 30


def covers(record: Record, site: Site) -> bool:
    """Whether a record describes what is raised at a site: one of the two messages is within the other."""
    if record.code is not None or site.code is not None:
        return record.code == site.code
    if not record.names(site.exception):
        return False
    made, written = Template.of(site.message), record.template
    within = made.weight >= _LEAST and bool(made.find(_squeezed(record.message)))
    return within or bool(written.find(site.squeezed))


def site_of(record: Record, sites: Iterable[Site]) -> Site | None:
    """Return the raise site of a record: in the files that it names, the one whose message is most like its own."""
    near = [site for site in sites if _may_raise(record, site)]
    if found := [site for site in near if covers(record, site)]:
        return min(found, key=lambda site: abs(len(site.message) - len(record.message)))
    return _most_alike(record, near)


def text_of(record: Record, package: Package) -> Site | None:
    """Return where the message of a record is made, in the files that it names: it may be raised elsewhere."""
    found: list[Site] = []
    for file in record.raised_in:
        path = package.directory.parent / file
        if path.exists():
            text = path.read_text(encoding="utf-8")
            found += texts(ast.parse(text), text.splitlines(), file)
    return _most_alike(record, found)


def _most_alike(record: Record, sites: Iterable[Site]) -> Site | None:
    """Return the site that has the longest text in common; both may have placeholders for what the other spells out."""
    shared, _, site = max(((_shared(record, site), -i, site) for i, site in enumerate(sites)), default=(0, 0, None))
    return site if shared >= min(_SHARED, record.template.weight) else None


@functools.cache
def _squeezed(message: str) -> Squeezed:
    return Squeezed(message)


def _may_raise(record: Record, site: Site) -> bool:
    if record.code is not None:
        return record.code == site.code
    here = not record.raised_in or site.file in record.raised_in
    function = site.function.rpartition(".")[2]
    return here and record.names(site.exception) and record.function in (None, function)


def _shared(record: Record, site: Site) -> int:
    """Return the length of the longest text that both messages have."""
    one, other = _squeezed(record.message).squeezed, site.squeezed.squeezed
    return difflib.SequenceMatcher(None, one, other, autojunk=False).find_longest_match().size


def moved_to(record: Record, sites: Iterable[Site]) -> list[str]:
    """Return the files, other than those that the record names, in which its error is raised."""
    sites = [site for site in sites if record.names(site.exception)]
    found = {site.file for site in sites if covers(record, site)} - set(record.raised_in)
    alike = None if found else _most_alike(record, sites)
    return sorted(found) if alike is None else [alike.file]


def line_with(piece: str, exception: str, files: Iterable[Path], package: Package) -> Site | None:
    """Return the first line with a piece of code as a site: what raises there without a statement that does."""
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            if piece in line:
                file = path.relative_to(package.directory.parent).as_posix()
                return Site(exception, "", file, number, "", *around(lines, number, number), raises=False)
    return None


def native_files(package: Package) -> list[str]:
    """Return the files of a package that hold compiled code."""
    return sorted(str(path) for path in package.directory.rglob("*.so*") if path.is_file())


def in_native(record: Record, files: Iterable[str]) -> bool:
    """Whether compiled code holds the message of a record: the longest piece of text between its placeholders."""
    pieces = sorted(_pieces(record.template), key=len)
    return any(_holds(file, pieces[-1].encode()) for file in files)


def _pieces(template: Template) -> Iterator[str]:
    for literal in template.literals:
        # What kind of status it is stands in another place than the message.
        yield re.sub(r"^\s*[A-Z_]{5,}: ", "", literal).strip(" \n:;,.'\"`()[]")


def _holds(file: str, piece: bytes) -> bool:
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(piece) >= 0
