"""The index of all records as a Markdown document: docs/errors.md."""

from collections.abc import Sequence

from peerax.dataset._extra import need
from peerax.diagnostics import Record, records

TESTED = ("0.10.2", "0.12.0.1")
_ROOM = "../src/peerax/diagnostics"
_HEADINGS = {"peerax": "Errors of peerax", "jax": "Errors of JAX", "xla": "Errors of XLA and its run time"}

_INTRODUCTION = """\
# Known errors

<!-- Generated: peerax records index --out docs/errors.md -->

`peerax explain` takes a code, a message, or whatever was printed, as a file or on its standard input, with colours,
prefixes and all: `pytest 2>&1 | peerax explain -`. It shows the page of the error that it finds: what it means, when
it happens, a program that fails like that and the fixed one. What it does not know, it says.

{count} errors have such a page, which is a *record*. Each has a program that fails and one that is fixed, and the tests
execute them: the first must end with exactly that error, and what it prints must be explained by its own record first;
the second must run, and checks its result. The validation that a record names is executed behind it.

| JAX | programs that fail as they should | fixed programs that run |
|---|---|---|
{executed}

{needing} records are about the compiler for GPUs; their programs compile ahead of time, and are executed where its
package is installed (`pip install "peerax[cuda13]"`), which the table does not count.

Some errors are not in all versions; the tables say in which their program produces them. The records are also a data
set, JSON Lines joined to the line of the installed source that raises the error (`peerax records build`), which can be
checked with `peerax records check`, and pages (`peerax records pages`).
"""


def index(tested: Sequence[str] = TESTED) -> str:
    """Return the document.

    Args:
        tested: the versions of JAX that the tests run with.

    Raises:
        Missing: if the package that reads versions is not installed.
    """
    executed = []
    for version in tested:
        failing, fixed = executed_with(version)
        executed.append(f"| {version} | {failing} | {fixed} |")
    needing = sum(record.failing.needs is not None for record in records().values())
    parts = [_INTRODUCTION.format(count=len(records()), needing=needing, executed="\n".join(executed))]
    for origin, heading in _HEADINGS.items():
        rows = [_row(record) for record in records().values() if record.origin == origin]
        if rows:
            head = "| code | title |\n|---|---|" if origin == "peerax" else "| error | page | JAX |\n|---|---|---|"
            parts.append(f"## {heading}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def executed_with(version: str) -> tuple[int, int]:
    """Return how many programs that fail, and how many fixed ones, the tests execute with a version of JAX."""
    specifiers = need("packaging.specifiers").SpecifierSet

    def count(programs) -> int:
        return sum(
            example.needs is None and specifiers(versions, prereleases=True).contains(version)
            for example, versions in programs
        )

    known = records().values()
    failing = count((record.failing, record.versions) for record in known)
    return failing, count((record.fixed, record.fixed_versions) for record in known)


def _row(record: Record) -> str:
    if record.code is not None:
        return f"| [{record.code}]({_ROOM}/pages/{record.code}.md) | {_cell(record.title.partition(': ')[2])} |"
    message = _cell(record.heading)
    return f"| `{message}` | [{_cell(record.title)}]({_ROOM}/records/{record.slug}.md) | {_cell(record.versions)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("`", "'").split())
