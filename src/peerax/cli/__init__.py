"""The command line: `peerax run`, `check`, `lint`, `trace`, `schedule`, `doctor`, `explain` and `records`.

Nothing here imports JAX before a command needs it: `peerax run` must set the environment first.
"""

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from peerax.cli import _check, _doctor, _explain, _lint, _records, _run, _schedule, _start, _trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words of the command line without the program's name; by default those of this process.

    Returns:
        The exit code.
    """
    words, words_of_script = _start.separate(list(sys.argv[1:] if argv is None else argv))
    parser = _parser()
    namespace, unknown = parser.parse_known_args(words)
    if unknown:
        getattr(namespace, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    namespace.args = words_of_script
    if namespace.version:
        print(f"peerax {version()}")
        return 0
    if namespace.command is None:
        parser.print_help(sys.stderr)
        return 2
    return namespace.run(namespace)


def version() -> str:
    """Return the version of the installed package; a source tree that was never installed has none."""
    try:
        return importlib.metadata.version("peerax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerax", description="Point-to-point communication for JAX: run, check and explain programs."
    )
    parser.add_argument("--version", action="store_true", help="print the version of peerax")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (_run, _check, _lint, _trace, _schedule, _doctor, _explain, _records):
        command.add_parser(subparsers)
    return parser
