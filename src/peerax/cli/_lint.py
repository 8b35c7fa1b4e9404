"""`peerax lint`: find mistakes in the text of programs, and fix some of them."""

import argparse
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from peerax.cli._output import Refused

if TYPE_CHECKING:
    from peerax.lint import Result, Settings

_DESCRIPTION = """\
Find mistakes with psend, precv, ppermute and other collectives in the text of programs. Nothing is run or
imported, so only what the text shows is found; `peerax check` knows more, and runs the program.
PATHS are Python files, and directories of which all are taken. [tool.peerax.lint] in pyproject.toml and comments
such as `# noqa: PXL001` say what is left out."""

_EPILOG = """\
rules:
{rules}

exit code:
  0  nothing was found, or all of it was fixed
  1  something was found
  2  a path, a file or a setting cannot be read"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `lint` command."""
    from peerax.lint import RULES

    rules = "\n".join(
        f"  {rule.code}  {rule.title}{'' if rule.default else ' (has to be selected)'}" for rule in RULES.values()
    )
    parser = subparsers.add_parser(
        "lint",
        help="find mistakes in the text of programs, and fix some of them",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(rules=rules),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", metavar="PATHS", nargs="+", help="files and directories")
    parser.add_argument("--fix", action="store_true", help="replace what PXL009 finds; needs peerax[lint]")
    parser.add_argument("--format", choices=("text", "json", "sarif", "github"), default="text", help="default: text")
    parser.add_argument("--select", metavar="CODES", help="apply these rules only, such as PXL001,PXL007 or ALL")
    parser.add_argument("--ignore", metavar="CODES", help="leave these rules out")
    parser.set_defaults(run=run, parser=parser)


def run(namespace: argparse.Namespace) -> int:
    """Lint the paths, show what was found, and return the exit code."""
    from peerax.lint import FixerMissing, SettingsError, lint_paths, read_settings, require_fixer

    try:
        settings = read_settings(namespace.paths, select=_codes(namespace.select), ignore=_codes(namespace.ignore))
        if namespace.fix:
            require_fixer()
            _fix(namespace.paths, settings)
    except (FixerMissing, Refused, SettingsError) as error:
        print(f"peerax lint: {error}", file=sys.stderr)
        return 2
    result = lint_paths(namespace.paths, settings, processes=None)
    for one in result.unreadable:
        place = f"{one.path}:{one.line}" if os.path.isfile(one.path) else one.path
        print(f"peerax lint: {place}: {one.message}", file=sys.stderr)
    _show(result, namespace.format)
    return 2 if result.unreadable else 1 if result.findings else 0


def _codes(words: str | None) -> list[str]:
    from peerax.lint import SettingsError

    if words is None:
        return []
    found = [word for word in words.split(",") if word.strip()]
    if not found:
        raise SettingsError("--select and --ignore take codes such as PXL001,PXL005, or ALL")
    return found


def _fix(paths: list[str], settings: "Settings") -> None:
    from peerax.lint import CannotRead, fix_source, python_files

    for path in python_files(paths, settings):
        if "PXL009" not in settings.codes_for(path):
            continue
        try:
            with open(path, "rb") as file:
                fixed = fix_source(file.read())
            if fixed is not None:
                _replace(path, fixed)
        except CannotRead:
            continue  # it is reported when it is linted
        except OSError as error:
            raise Refused(f"cannot fix {path}: {error.strerror}") from None
        if fixed is not None:
            print(f"peerax lint: fixed {path}", file=sys.stderr)


def _replace(path: str, data: bytes) -> None:
    """Write a file as a whole or not at all: it may be all that there is of a program."""
    path = os.path.realpath(path)
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".peerax-lint-")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        shutil.copymode(path, beside)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _show(result: "Result", form: str) -> None:
    from peerax.lint import to_github, to_json, to_sarif, to_text

    if form == "json":
        print(to_json(result))
    elif form == "sarif":
        from peerax.cli import version

        print(to_sarif(result, version()))
    elif form == "github":
        if shown := to_github(result):
            print(shown)
    elif sys.stdout.isatty():
        _show_in_colour(to_text(result))
    else:
        print(to_text(result))


def _show_in_colour(text: str) -> None:
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in text.splitlines():
        shown = Text(line, style="dim" if line.startswith("  ") else "")
        shown.highlight_regex(r"^[^ ].*?:\d+:\d+:", "bold")
        shown.highlight_regex(r"\bPXL\d+\b", "red")
        console.print(shown, soft_wrap=True)
