"""`--trace FILE`: the timeline of a run, written when it ends."""

import contextlib
from collections.abc import Iterator

from peerax.cli._environment import CannotStart
from peerax.cli._errors import say
from peerax.cli._summary import count
from peerax.timeline import Timeline


class Recording:
    """What became of the file.

    Args:
        failed: whether it could not be written.
    """

    def __init__(self) -> None:
        self.failed = False


@contextlib.contextmanager
def recording(path: str | None) -> Iterator[Recording]:
    """Record what the programs of the script do, and write it to a file at the end, however that comes.

    Raises:
        CannotStart: if the file cannot be opened. That is found out before the script runs.
    """
    result = Recording()
    if path is None:
        yield result
        return
    from peerax.runtime import Trace, trace

    try:
        open(path, "w", encoding="utf-8").close()
    except OSError as error:
        raise CannotStart(f"cannot write the trace to {path!r}: {error.strerror}") from None
    recorded = Trace()
    try:
        with trace() as recorded:
            yield result
    finally:
        if recorded.timeline is not None:
            result.failed = not _write(path, recorded.timeline)


def _write(path: str, timeline: Timeline) -> bool:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(timeline.to_json())
    except OSError as error:
        say(f"peerax: cannot write the trace to {path!r}: {error.strerror}")
        return False
    say(f"peerax: {count(len(timeline.spans), 'operation')} in {path}; peerax trace {path} shows them")
    return True
