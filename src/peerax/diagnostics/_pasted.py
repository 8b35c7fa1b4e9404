"""Text as people paste it: a traceback with colours, a logger's prefixes, pytest's marks and wrapped lines."""

import re
from dataclasses import dataclass

from peerax.diagnostics._template import Squeezed

_TERMINAL = re.compile(
    r"""\x1b\[[0-?]*[ -/]*[@-~]             # colours and movements of the cursor
      | \x1b\][^\x07\x1b]*(?:\x07|\x1b\\)   # titles and links
      | \x1b[@-Z\\-_]                       # other sequences
      | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f]    # what is left of them
    """,
    re.VERBOSE,
)
# What loggers, runners and multiplexers put before each line, in the order in which they may follow each other.
_PREFIXES = re.compile(
    r"""^\ *
    (?:[\w.-]+\ *\|\ )?                                       # docker compose: "worker-1  | "
    (?:\[(?:rank|default|proc|host|node)?\ *\d+\]:?\ ?)?      # launchers: "[rank0]: ", "[3] "
    (?:[EWIFD]\d{4}\ [\d:.]+\ +\d+\ [\w./+-]+:\d+\]\ )?       # absl, glog: "E1130 21:29:43.123456  77 x.cc:9] "
    (?:[\[(]?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\])]?\ ?[-:|,]?\ ?)?   # a time
    (?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:)?        # the default of Python's logging: "ERROR:train:"
    (?:\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SEVERE)\b\]?\ ?[-:|]?\ ?)?                    # a level
    (?:\[?[A-Za-z_][\w.]*(?:\.py)?(?::\d+)?\]?\ ?[:|]\ (?=Traceback|\ |\S+Error:))?                     # a logger
    """,
    re.VERBOSE,
)
_PYTEST = re.compile(r"^(?:E  (?: |$)|>  (?=  ))")
_BOX = re.compile(r"^ *[│┃|] | [│┃|] *$")
_BEFORE_TRACEBACK = re.compile(r"^(?P<prefix>.*?\S.*?)(?=Traceback \(most recent call last\):)", re.MULTILINE)
_HEAD = re.compile(
    r"""(?:^|(?<=[\s|:\])]))
    (?:[A-Za-z_]\w*\.)*
    (?P<name>[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Failure|Timeout)|[A-Z]\w*Error\w*)
    (?::(?=\s)|(?=\ *$))
    """,
    re.VERBOSE | re.MULTILINE,
)
_CODE = re.compile(r"\bPX[A-Z]?\d{3}(?=: )|(?<=peerax explain )PX[A-Z]?\d{3}\b")


@dataclass(frozen=True)
class Head:
    """Hold where the text shows an exception: the last name of its class, and where its message starts."""

    exception: str
    start: int
    message_start: int


class Pasted:
    """A text that was pasted, made plain, and the exceptions and codes that are in it."""

    def __init__(self, text: str) -> None:
        self.text = plain(text)
        self.squeezed = Squeezed(self.text)
        self.heads = [Head(match["name"], match.start(), match.end()) for match in _HEAD.finditer(self.text)]
        self.codes = {match[0]: match.start() for match in _CODE.finditer(self.text)}

    def head_of(self, position: int) -> int:
        """Return the index of the exception whose message a position may be in, or -1."""
        return sum(head.message_start <= position for head in self.heads) - 1

    def in_source(self, position: int) -> bool:
        """Whether a position is in a line of Python that raises, and not in what was raised."""
        line_start = self.text.rfind("\n", 0, position) + 1
        return re.search(r"""\w\(\s*\w?["']$|^\s*\w?["']$""", self.text[line_start:position]) is not None

    def messages(self) -> list[str]:
        """Return what may be a message, the last one first: what follows each exception, or else the text itself."""
        messages = [self.text[head.message_start :].strip() for head in reversed(self.heads)]
        return [message for message in messages if message] or [self.text.strip()]


def plain(text: str) -> str:
    """Return a text without the marks of terminals, loggers and pytest."""
    text = _TERMINAL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    # Whatever stands before "Traceback" stands before the lines that follow it, but for its numbers.
    shapes = {_shape(match["prefix"]) for match in _BEFORE_TRACEBACK.finditer(text)}
    for shape in sorted(shapes, key=len, reverse=True):
        text = re.sub(shape, "", text, flags=re.MULTILINE)
    return "\n".join(_without_marks(line) for line in text.split("\n"))


def _shape(prefix: str) -> str:
    pieces = (r"\d+" if piece.isdecimal() else re.escape(piece) for piece in re.split(r"(\d+)", prefix))
    return "^" + "".join(pieces)


def _without_marks(line: str) -> str:
    line = _PREFIXES.sub(lambda match: "" if match[0].strip() else match[0], line, count=1)
    return _BOX.sub("", _PYTEST.sub("", line))
