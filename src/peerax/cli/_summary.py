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
            _count(totals["ranks"], "rank"),
            _count(totals["messages"], "message"),
            _size(totals["bytes"]),
            wait,
        ]
    if totals["failed_runs"]:
        parts.append(f"{_count(totals['failed_runs'], 'run')} failed")
    return ", ".join(parts)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _size(size_bytes: int) -> str:
    if size_bytes < 1024:
        return _count(size_bytes, "byte")
    size, units = size_bytes / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
