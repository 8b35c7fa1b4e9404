"""Message templates: text with {placeholders}, found in pasted text however that is wrapped."""

import functools
import re
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\{\w*\}")
# A placeholder may stand for a type with thousands of characters, not for the rest of a log.
_LONGEST_VALUE = 4000


@dataclass(frozen=True)
class Template:
    """Hold the literal parts of a message, between which there is any text.

    literals: as written. squeezed: without white space and in lower case, as a Squeezed text is.
    """

    literals: tuple[str, ...]
    squeezed: tuple[str, ...]

    @staticmethod
    @functools.cache
    def of(message: str) -> "Template":
        """Read a template; {{ and }} are braces."""
        guarded = message.replace("{{", "\0").replace("}}", "\1")
        parts = (part.replace("\0", "{").replace("\1", "}") for part in _PLACEHOLDER.split(guarded))
        literals = tuple(part for part in parts if part.strip())
        return Template(literals, tuple(_squeeze(part) for part in literals))

    @property
    def weight(self) -> int:
        """Number of characters that must be there: the more, the more a match says."""
        return sum(map(len, self.squeezed))

    def pattern(self) -> str:
        """Return a regular expression for the message."""
        spaced = (r"\s+".join(map(re.escape, literal.split())) for literal in self.literals)
        return "(?s)" + "(.*?)".join(spaced)

    def find(self, text: "Squeezed") -> list[tuple[int, int]]:
        """Return where the message stands in a text, as positions in the text before it was squeezed."""
        found: list[tuple[int, int]] = []
        start = text.squeezed.find(self.squeezed[0])
        while start >= 0:
            end = self._end(text.squeezed, start)
            if end is not None and text.is_word(start, end):
                found.append((text.positions[start], text.positions[end - 1] + 1))
            start = text.squeezed.find(self.squeezed[0], start + 1)
        return found

    def _end(self, squeezed: str, start: int) -> int | None:
        # The first place of each part is as good as any later one, so nothing is tried twice.
        end = start + len(self.squeezed[0])
        for part in self.squeezed[1:]:
            next_start = squeezed.find(part, end, end + _LONGEST_VALUE + len(part))
            if next_start < 0:
                return None
            end = next_start + len(part)
        return end


class Squeezed:
    """A text without its white space, in lower case: wrapped lines and other spacing make no difference."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.positions = [i for i, character in enumerate(text) if not character.isspace()]
        # One character for one, so that positions agree: some have a longer lower case.
        self.squeezed = "".join(_lower(text[i]) for i in self.positions)

    def is_word(self, start: int, end: int) -> bool:
        """Whether what lies from start to end does not begin or end amid a word."""
        first, last = self.positions[start], self.positions[end - 1]
        before, after = self.text[first - 1 : first], self.text[last + 1 : last + 2]
        return not (_joins(before, self.text[first]) or _joins(self.text[last], after))


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and (left.isalnum() or left == "_") and (right.isalnum() or right == "_")


def _squeeze(text: str) -> str:
    return "".join(_lower(character) for character in text if not character.isspace())


def _lower(character: str) -> str:
    lower = character.lower()
    return lower if len(lower) == 1 else character
