"""`peerax schedule`: show what the ranks of a pipeline do, draw it, and compare schedules for given costs."""

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from peerax.cli._output import Refused, write

if TYPE_CHECKING:
    from peerax.pipeline.schedules import Costs, Replay, Schedule

_DESCRIPTION = """\
Show the schedule of a pipeline: what each rank computes when, how long ranks are idle, and what they keep.
NAME is one of those below, or a CSV file with a row for each rank and an action such as 2F0 in each cell, as
torch.distributed.pipelining writes it; such a file is checked. `peerax schedule compare` replays all schedules
with the same costs, and ranks them.

Times are of all stages of a rank, for one microbatch; where a rank has several, they are shared out among them.
"""

_EPILOG = """\
schedules:
{names}

exit code:
  0  all was shown and written
  1  the schedule in the file cannot be run; the report names rank, action and cause
  2  there is no such schedule, or a file cannot be read or written"""

_COLOURS = {"F": "white on blue", "B": "black on dark_orange", "I": "white on magenta", "W": "black on green"}
_COLOURS |= {"OVERLAP_F_B": "black on cyan", "idle": "dim"}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `schedule` command."""
    from peerax.pipeline.schedules import described

    names = "\n".join(f"  {name:17} {what}" for name, what in described())
    parser = subparsers.add_parser(
        "schedule",
        help="show, draw, check and compare schedules of pipelines",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(names=names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="a schedule, a CSV file, or `compare`")
    parser.add_argument("--stages", type=int, metavar="N", help="number of ranks; each has one stage, or --chunks")
    parser.add_argument("--microbatches", type=int, metavar="M", help="number of microbatches")
    parser.add_argument("--chunks", type=int, metavar="V", help="stages of a rank, where they may be chosen")
    parser.add_argument("--group", type=int, metavar="G", help="microbatches of a group, of interleaved schedules")
    costs = parser.add_argument_group("costs")
    costs.add_argument("--forward", type=float, metavar="S", default=1.0, help="seconds of a forward; default 1")
    costs.add_argument("--backward", type=float, metavar="S", help="seconds of a backward; default 2 forwards")
    costs.add_argument("--weight", type=float, metavar="S", help="seconds of it for the weights; default half")
    costs.add_argument("--latency", type=float, metavar="S", default=0.0, help="seconds of each message; default 0")
    costs.add_argument("--message-bytes", type=int, metavar="BYTES", default=0, help="size of a message; default 0")
    costs.add_argument("--bandwidth", type=float, metavar="B/S", help="bytes per second; by default size costs nothing")
    parser.add_argument("--html", metavar="OUT", help="write a page with the picture and the table")
    parser.add_argument("--svg", metavar="OUT", help="write the picture")
    parser.add_argument("--csv", metavar="OUT", help="write the lists of the ranks")
    parser.set_defaults(run=run, parser=parser)


def run(namespace: argparse.Namespace) -> int:
    """Show the schedule or the comparison, write what is asked for, and return the exit code."""
    from peerax.pipeline.schedules import ScheduleError

    try:
        if namespace.name == "compare":
            _compare(namespace)
        else:
            _show(namespace)
    except ScheduleError as error:
        print(f"peerax schedule: {error}", file=sys.stderr)
        return 1
    except (Refused, ValueError) as error:
        print(f"peerax schedule: {error}", file=sys.stderr)
        return 2
    return 0


def _compare(namespace: argparse.Namespace) -> None:
    from peerax.pipeline.schedules import compare

    _require_counts(namespace)
    for option in ("html", "svg", "csv", "group"):
        if getattr(namespace, option) is not None:
            raise Refused(f"compare has no --{option}: it is for one schedule")
    ranking = compare(namespace.stages, namespace.microbatches, _costs(namespace), chunks=namespace.chunks or 2)
    if not sys.stdout.isatty():
        print(ranking)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for number, line in enumerate(str(ranking).splitlines()):
        style = "bold" if number == 0 else "green" if number == 1 else "" if number <= len(ranking.replays) else "dim"
        console.print(Text(line, style=style), soft_wrap=True)


def _show(namespace: argparse.Namespace) -> None:
    made = _schedule(namespace)
    replay = made.replay(_costs(namespace).for_chunks(made.chunks))
    for option, view in (("html", replay.to_html), ("svg", replay.to_svg), ("csv", made.to_csv)):
        path = getattr(namespace, option)
        if path is not None:
            write("schedule", path, view())
    if not sys.stdout.isatty():
        print(f"{replay.to_text()}\n\n{replay.table()}")
        return
    _show_in_colour(replay)


def _show_in_colour(replay: "Replay") -> None:
    # rich is needed for this only, and takes longer to import than all the rest.
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for number, line in enumerate(replay.chart(width=max(40, shutil.get_terminal_size().columns))):
        shown = Text(style="" if number else "bold")
        for words, kind in line:
            shown.append(words, style=_COLOURS.get(kind, ""))
        console.print(shown, soft_wrap=True)
    console.print()
    for number, line in enumerate(replay.table().splitlines()):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)


def _schedule(namespace: argparse.Namespace) -> "Schedule":
    from peerax.pipeline.schedules import Schedule, schedule

    name = namespace.name
    if not name.endswith(".csv"):
        _require_counts(namespace)
        return schedule(name, namespace.stages, namespace.microbatches, namespace.chunks, group=namespace.group)
    if any(getattr(namespace, option) is not None for option in ("stages", "microbatches", "chunks", "group")):
        raise Refused("--stages, --microbatches, --chunks and --group are not for a file, which says them itself")
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Refused(f"cannot read {name}: {error.strerror}") from None
    try:
        return Schedule.from_csv(text, name=name.replace("\\", "/").rpartition("/")[2].removesuffix(".csv") or "custom")
    except ValueError as error:
        raise Refused(f"{name} is no schedule: {error}") from None


def _costs(namespace: argparse.Namespace) -> "Costs":
    from peerax.pipeline.schedules import Costs

    return Costs(
        namespace.forward,
        2 * namespace.forward if namespace.backward is None else namespace.backward,
        weight_s=namespace.weight,
        latency_s=namespace.latency,
        message_bytes=namespace.message_bytes,
        bandwidth_bytes_per_s=float("inf") if namespace.bandwidth is None else namespace.bandwidth,
    )


def _require_counts(namespace: argparse.Namespace) -> None:
    missing = [f"--{option}" for option in ("stages", "microbatches") if getattr(namespace, option) is None]
    if missing:
        raise Refused(f"{namespace.name} needs {' and '.join(missing)}, such as --stages 4 --microbatches 8")
