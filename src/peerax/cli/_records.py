"""`peerax records build|check|pages|index`: the records as a data set."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from peerax.cli._output import Refused, write

if TYPE_CHECKING:
    from peerax.dataset import Dataset

_EPILOG = """\
exit code:
  0  all is well
  1  records are not valid, their fixes do not run, or their raise sites are gone
  2  something cannot be read or written, or a package is not installed"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `records` command."""
    style = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": _EPILOG, "allow_abbrev": False}
    parser = subparsers.add_parser(
        "records",
        help="build, check and publish the records of known errors",
        description="The records of known errors as a data set: JSON Lines, web pages, an index.",
        **style,
    )
    parser.set_defaults(run=lambda namespace: _help(parser), parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    build = commands.add_parser(
        "build",
        help="write the records as JSON Lines, joined to the installed source",
        description="Find the raise sites of installed packages in their syntax trees, join them to the records, and "
        "write a line of JSON for each record. Says which raise sites no record is about, and which records are about "
        "an error that is raised nowhere any more.",
        **style,
    )
    build.add_argument(
        "--package", action="append", metavar="NAME", help="an installed package; default: jax, jaxlib (XLA) and peerax"
    )
    build.add_argument("--out", metavar="FILE", help="write here instead of the standard output")
    build.add_argument("--uncovered", action="store_true", help="list the raise sites that no record is about")
    build.set_defaults(run=_refusable(_build), parser=build)

    check = commands.add_parser(
        "check",
        help="validate a file of records, and run the fix of each",
        description="Validate a file of records against the schema, and run each fix that it publishes in a process of "
        "its own. Those are programs of the file: check only files that you would run.",
        **style,
    )
    check.add_argument("file", metavar="FILE", help="JSON Lines, as `peerax records build` writes them")
    check.add_argument("--no-run", action="store_true", help="validate only")
    check.add_argument("--limit", type=float, default=60, metavar="S", help="seconds that a fix may take (default 60)")
    check.add_argument("--devices", type=int, default=4, metavar="N", help="CPU devices for a fix (default 4)")
    check.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), metavar="N", help="fixes at a time")
    check.set_defaults(run=_refusable(_check), parser=check)

    pages = commands.add_parser("pages", help="write a web page for each record, and an index", **style)
    pages.add_argument("out", metavar="OUT", help="a directory; it is made if it is not there")
    pages.set_defaults(run=_refusable(_pages), parser=pages)

    index = commands.add_parser("index", help="write the index of all records as Markdown", **style)
    index.add_argument("--out", metavar="FILE", help="write here instead of the standard output")
    index.set_defaults(run=_refusable(_index), parser=index)


def _help(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


def _refusable(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Make what is refused, and what is not installed, a message and an exit code."""

    def run(namespace: argparse.Namespace) -> int:
        from peerax.dataset import Missing

        try:
            return command(namespace)
        except (Refused, Missing, LookupError) as error:
            text = error.args[0] if error.args else error
            print(f"{namespace.parser.prog}: {text}", file=sys.stderr)
            return 2

    return run


def _build(namespace: argparse.Namespace) -> int:
    from peerax.dataset import PACKAGES, build

    names = namespace.package or list(PACKAGES.values())
    dataset = build(names)
    text = "".join(f"{line}\n" for line in dataset.lines)
    if namespace.out is None:
        print(text, end="")
    else:
        write("records build", namespace.out, text)
    _report(dataset, listed=namespace.uncovered)
    return 1 if dataset.gone else 0


def _report(dataset: "Dataset", *, listed: bool) -> None:
    lines = [f"peerax records build: {len(dataset.lines)} records"]
    if dataset.absent:
        lines.append(f"  not in these versions, as they say: {', '.join(dataset.absent)}")
    for slug, elsewhere in dataset.gone.items():
        lines.append(f"  raised no more where its record says: {slug} (now: {elsewhere})")
    for name, sites in dataset.uncovered.items():
        lines.append(f"  raise sites of {name} that no record is about: {len(sites)}")
        if listed:
            lines += [
                f"    {site.file}:{site.line} {site.exception}: {' '.join(site.message.split())}" for site in sites
            ]
    print("\n".join(lines), file=sys.stderr)


def _check(namespace: argparse.Namespace) -> int:
    from peerax.dataset import read, run_fixes

    for name in ("limit", "devices", "jobs"):
        if getattr(namespace, name) <= 0:
            namespace.parser.error(f"--{name} is {getattr(namespace, name)}; it must be more than 0")
    try:
        with open(namespace.file, encoding="utf-8") as file:
            count, problems, fixes = read(file)
    except OSError as error:
        raise Refused(f"cannot read {namespace.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"cannot read {namespace.file}: it is no text") from None
    invalid = len({problem.line for problem in problems})
    for problem in problems:
        print(f"{namespace.file}: {problem}")
    summary = f"{count} records, {invalid} not valid"
    if not namespace.no_run:
        broken = 0
        with _progress(len(fixes)) as done:
            options = {"devices": namespace.devices, "limit_s": namespace.limit, "jobs": namespace.jobs}
            for problem in run_fixes(fixes, **options, done=lambda fix: done()):
                print(f"{namespace.file}: {problem}")
                problems.append(problem)
                broken += 1
        summary += f"; {len(fixes)} fixes executed, {broken} do not run"
    print(summary)
    return 1 if problems or not count else 0


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show on a terminal how many of the fixes have been run."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("running fixes", total=total)
        yield lambda: progress.advance(task)


def _pages(namespace: argparse.Namespace) -> int:
    import json

    from peerax.dataset import build, pages

    out = Path(namespace.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot write {namespace.out}: {error.strerror}") from None
    published = [json.loads(line)["record"] for line in build().lines]
    made = pages({record["slug"]: record["githubUrl"] for record in published if record["githubUrl"]})
    try:
        for name, text in made.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write {namespace.out}: {error.strerror}") from None
    print(f"peerax records pages: wrote {len(made)} pages; begin with {out / 'index.html'}", file=sys.stderr)
    return 0


def _index(namespace: argparse.Namespace) -> int:
    from peerax.dataset import index

    if namespace.out is None:
        print(index(), end="")
    else:
        write("records index", namespace.out, index())
    return 0
