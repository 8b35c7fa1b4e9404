"""Forms in which people paste what was printed: with colours, prefixes on each line, pytest's marks, wrapped lines."""

import re
import textwrap

_HEAD = re.compile(r"^(?P<name>(?:\w+\.)*[A-Z]\w+)(?P<rest>: .*|)$", re.MULTILINE)


def prefixed(prefix):
    """Return a form that puts a prefix before each line; {n} in it is a number that changes."""
    return lambda text: "\n".join(
        prefix.format(n=10 + number % 50) + line for number, line in enumerate(text.split("\n"))
    )


def coloured(text):
    """Colour a text as Python does on a terminal."""
    text = re.sub(r'File (".*?"), line (\d+)', "File \x1b[35m\\1\x1b[0m, line \x1b[35m\\2\x1b[0m", text)
    return _HEAD.sub("\x1b[1;35m\\g<name>\x1b[0m\x1b[35m\\g<rest>\x1b[0m", text)


def logged(text):
    """Log a text in one call: only its first line has a prefix."""
    prefix = "2026-11-30 21:29:30,123 ERROR train.loop:"
    return f"{prefix} step 17 failed\n{text}\n{prefix} bye"


def wrapped(text):
    """Wrap the lines of a text at 72 columns, amid words, as a narrow terminal does."""
    return "\n".join("\n".join(textwrap.wrap(line, 72, break_long_words=True) or [""]) for line in text.split("\n"))


def cut_in_words(text):
    """Cut the lines of a text at 60 columns, wherever that is."""
    return "\n".join(line[i : i + 60] for line in text.split("\n") for i in range(0, max(1, len(line)), 60))


def of_pytest(text):
    """Show a text as pytest shows a failure: the source with >, the message with E."""
    lines = [f"E       {line}" for line in text.split("\n")]
    head = ["=" * 30 + " FAILURES " + "=" * 30, "    def test_step():", ">       step(x)", ""]
    return "\n".join([*head, *lines, "", "test_train.py:12: Error", "=" * 20 + " 1 failed in 2.10s " + "=" * 20])


FORMS = {
    "whole": lambda text: text,
    "coloured": coloured,
    "logged": logged,
    "wrapped": wrapped,
    "cut in words": cut_in_words,
    "pytest": of_pytest,
    "logger": prefixed("2026-11-30 21:29:{n},123 ERROR train.loop: "),
    "logger in brackets": prefixed("[2026-11-30 21:29:{n},123][root][ERROR] - "),
    "absl": prefixed("E1130 21:29:{n}.123456  4711 train.py:88] "),
    "rank": prefixed("[rank3]: "),
    "docker": prefixed("worker-1  | "),
    "runner": prefixed("2026-11-30T21:29:{n}.1234567Z "),
    "runner and colours": lambda text: prefixed("2026-11-30T21:29:{n}.1234567Z ")(coloured(text)),
    "logger and wrapped": lambda text: prefixed("ERROR:train:")(wrapped(text)),
    "windows": lambda text: text.replace("\n", "\r\n"),
}
