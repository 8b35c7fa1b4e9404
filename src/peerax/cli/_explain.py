"""`peerax explain CODE`: print the page of a diagnostic code."""

import argparse
import sys

from peerax.diagnostics import explain


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `explain` command."""
    parser = subparsers.add_parser(
        "explain",
        help="print what a diagnostic code means and how to fix it",
        description="Print what a diagnostic code means, with a program that fails and the fixed one.",
    )
    parser.add_argument("codes", nargs="+", metavar="CODE", help="such as PX203; px203 and 203 mean the same")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the page of each code, and return 2 if one of them does not exist, else 0."""
    exit_code = 0
    printed = False
    for code in namespace.codes:
        try:
            page = explain(code)
        except LookupError as error:
            print(f"peerax explain: {error}", file=sys.stderr)
            exit_code = 2
            continue
        if printed:
            print()
        _show(page)
        printed = True
    return exit_code


def _show(page: str) -> None:
    if not sys.stdout.isatty():
        print(page, end="")
        return
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(page))
