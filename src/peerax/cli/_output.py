"""Files that a command writes because it was asked to, and what it says when it cannot."""

import sys


class Refused(Exception):
    """What is asked for cannot be done; the message says why, and what to do."""


def write(command: str, path: str, text: str) -> None:
    """Write a text to a file and say so. Raises Refused if it cannot be written."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from None
    print(f"peerax {command}: wrote {path}", file=sys.stderr)
