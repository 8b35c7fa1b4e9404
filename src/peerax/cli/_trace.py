"""`peerax trace FILE`: show a timeline that was kept as JSON, compare it with another one, and draw it."""

import argparse
import sys
from typing import TYPE_CHECKING

from peerax.cli._output import Refused, write

if TYPE_CHECKING:
    from peerax.timeline import Timeline

_DESCRIPTION = """\
Show where the time went: of each rank, in each line, and on each channel. FILE is a timeline of a simulation or
of a run, as Timeline.to_json() writes it. With --compare, the tables and pictures show both timelines; --chrome
and --matrix are of FILE."""

_EPILOG = """\
exit code:
  0  all was shown and written
  2  a file cannot be read or written, or is no timeline"""


_KEEP = 'open("run.json", "w").write(timeline.to_json()), and show it with peerax trace run.json'


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `trace` command."""
    parser = subparsers.add_parser(
        "trace",
        help="show, draw and compare timelines of simulations and runs",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a timeline")
    parser.add_argument("--compare", metavar="OTHER", help="another timeline of the same program")
    parser.add_argument("--matrix", action="store_true", help="print who sent how much to whom, and the longest waits")
    parser.add_argument("--html", metavar="OUT", help="write a page with the pictures and the tables")
    parser.add_argument("--svg", metavar="OUT", help="write the picture")
    parser.add_argument("--chrome", metavar="OUT", help="write a trace for ui.perfetto.dev and chrome://tracing")
    parser.set_defaults(run=run, parser=parser)


def run(namespace: argparse.Namespace) -> int:
    """Show the timeline, write what is asked for, and return the exit code."""
    try:
        timeline = _read(namespace.file)
        shown = timeline
        if namespace.compare is not None:
            try:
                shown = timeline.compare(_read(namespace.compare))
            except ValueError as error:
                raise Refused(f"cannot compare {namespace.file} and {namespace.compare}: {error}") from None
        views = {"html": shown.to_html, "svg": shown.to_svg, "chrome": timeline.to_trace_events}
        for option, view in views.items():
            path = getattr(namespace, option)
            if path is not None:
                write("trace", path, view())
    except Refused as error:
        print(f"peerax trace: {error}", file=sys.stderr)
        return 2
    blocks = shown.table().split("\n\n")
    if namespace.compare is None:
        blocks.append(timeline.channel_table())
    if namespace.matrix:
        matrix = timeline.matrix()
        blocks += [*matrix.table("data").split("\n\n"), *matrix.table("waits").split("\n\n")]
    _show([block for block in blocks if block])
    return 0


def _read(path: str) -> "Timeline":
    from peerax.timeline import Timeline

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return Timeline.from_json(text)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        why = "it is no text"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
        if '"traceEvents"' in text[:10_000]:
            why = "it is a trace, for ui.perfetto.dev and chrome://tracing"
    raise Refused(f"{path} is no timeline: {why}\n  help: keep one with {_KEEP}")


def _show(blocks: list[str]) -> None:
    if not sys.stdout.isatty():
        print("\n\n".join(blocks))
        return
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for number, block in enumerate(blocks):
        if number:
            console.print()
        for i, line in enumerate(block.splitlines()):
            console.print(Text(line, style="red" if "stuck" in line else "" if i else "bold"), soft_wrap=True)
