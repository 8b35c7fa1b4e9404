"""`--trace FILE`: the timeline of a run, written when it ends."""

import contextlib
from collections.abc import Iterator

from peerax.cli._environment import CannotStart
from peerax.cli._errors import say
from peerax.cli._summary import count


@contextlib.contextmanager
def recording(path: str | None) -> Iterator[None]:
    """Record what the programs of the script do, and write it to a file at the end, however that comes.

    Raises:
        CannotStart: if the file cannot be written. That is found out before the script runs.
    """
    if path is None:
        yield
        return
    from peerax.runtime import Trace, trace

    try:
        file = open(path, "w", encoding="utf-8")
    except OSError as error:
        raise CannotStart(f"cannot write the trace to {path!r}: {error.strerror}") from None
    recorded = Trace()
    with file:
        try:
            with trace() as recorded:
                yield
        finally:
            if recorded.timeline is not None:
                file.write(recorded.timeline.to_json())
                spans = count(len(recorded.timeline.spans), "operation")
                say(f"peerax: {spans} in {path}; peerax trace {path} shows them")
