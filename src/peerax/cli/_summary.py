"""The line that `peerax run` prints at the end."""

from typing import Any

from peerax.cli._errors import say
from peerax.diagnostics import PeeraxError
from peerax.runtime import statistics


def print_summary() -> None:
    """Print what the programs of this process have sent, on stderr."""
    try:
        totals = statistics()
    except PeeraxError:  # the extension cannot be loaded; a program that sends has said so
        totals = {"messages": 0, "failed_runs": 0}
    say(f"peerax: {summary(totals)}")


def summary(totals: dict[str, Any]) -> str:
    """Return the line for these totals."""
    parts = ["no messages"]
    if totals["messages"]:
        site = totals["longest_wait_site"]
        wait = f"longest wait {_duration(totals['longest_wait_s'])} at {site}" if site else "nobody waited"
        parts = [
            count(totals["ranks"], "rank"),
            count(totals["messages"], "message"),
            size(totals["bytes"]),
            wait,
        ]
    if totals["failed_runs"]:
        parts.append(f"{count(totals['failed_runs'], 'run')} failed")
    return ", ".join(parts)


def count(number: int, thing: str) -> str:
    """Return a number of things, such as "2 ranks"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def size(size_bytes: int) -> str:
    """Return a number of bytes, in the unit that suits it."""
    if size_bytes < 1024:
        return count(size_bytes, "byte")
    number, units = size_bytes / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return f"{number:.1f} {units[0]}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
