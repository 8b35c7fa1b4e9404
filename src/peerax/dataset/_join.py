"""Which raise site a record is about: by class and message, wherever the line has moved."""

from collections.abc import Iterable, Iterator

from peerax.dataset._packages import Package
from peerax.dataset._sites import Site
from peerax.diagnostics import Record, Squeezed, Template

# Fewer characters that agree say nothing.
_LEAST = 10


def covers(record: Record, site: Site) -> bool:
    """Whether a record describes what is raised at a site: one of the two messages is within the other."""
    if record.code is not None or site.code is not None:
        return record.code == site.code
    if not record.names(site.exception):
        return False
    made, written = Template.of(site.message), record.template
    within = made.weight >= _LEAST and bool(made.find(Squeezed(record.message)))
    return within or bool(written.find(Squeezed(site.message)))


def site_of(record: Record, sites: Iterable[Site]) -> Site | None:
    """Return the raise site of a record: in the files that it names, the one whose message is most like its own."""
    found = [site for site in sites if covers(record, site)]
    if record.raised_in:
        found = [site for site in found if site.file in record.raised_in]
    return min(found, key=lambda site: abs(len(site.message) - len(record.message)), default=None)


def moved_to(record: Record, sites: Iterable[Site]) -> list[str]:
    """Return the files, other than those that the record names, in which its error is raised."""
    return sorted({site.file for site in sites if covers(record, site)} - set(record.raised_in))


def mention_of(code: str, package: Package) -> tuple[str, int] | None:
    """Return where the source of peerax names one of its codes, where the syntax does not show that it raises it."""
    for path in sorted(package.directory.rglob("*.py")):
        if "diagnostics" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if f'"{code}"' in line:
                return path.relative_to(package.directory.parent).as_posix(), number
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
        yield literal.strip()


def _holds(file: str, piece: bytes) -> bool:
    import mmap

    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(piece) >= 0
