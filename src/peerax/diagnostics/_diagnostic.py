"""A diagnostic: one mistake, where it was made and how to fix it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from peerax.diagnostics._registry import CODES

Location = tuple[str, int]  # (file, line)
Channel = tuple[int, int, int]  # (source, destination, tag)


@dataclass(frozen=True)
class Diagnostic:
    """Describe one mistake, in a form that can be printed, compared and raised.

    Args:
        code: a key of `CODES`.
        message: what happened, in one or more sentences.
        locations: the user's own lines, one per end that is known.
        ranks: the ranks that are concerned.
        channel: the channel that is concerned.
        evidence: lines that show what the message says, such as a grid of ranks.
        help: the fix; by default that of the code.
        severity: "error", or "warning" for what does not stop the program.
    """

    code: str
    message: str
    locations: tuple[Location, ...] = ()
    ranks: tuple[int, ...] = ()
    channel: Channel | None = None
    evidence: tuple[str, ...] = ()
    help: str | None = None
    severity: Literal["error", "warning"] = "error"

    def __post_init__(self) -> None:
        # Caught here, a wrong code is seen where it was written, and not where the text is printed.
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a diagnostic code")

    @property
    def title(self) -> str:
        """Return the title of the code."""
        return CODES[self.code].title

    @property
    def shown_help(self) -> str:
        """Return the fix that is shown: the diagnostic's own, or else the code's."""
        return self.help or CODES[self.code].help

    def render(self) -> str:
        """Return the diagnostic as plain text, without a newline at its end."""
        # Both ends of an exchange may be on one line; it is then shown once.
        body = [f"--> {file}:{line}" for file, line in dict.fromkeys(self.locations)]
        body += self.message.splitlines()
        if self.ranks:
            body.append(f"ranks: {runs(sorted(self.ranks))}")
        if self.channel is not None:
            source, destination, tag = self.channel
            body.append(f"channel: {source} -> {destination}, tag {tag}")
        for item in self.evidence:
            body += item.splitlines()
        body.append(f"help: {self.shown_help}")
        body.append(f"more: peerax explain {self.code}")
        return "\n".join([f"{self.code}: {self.title}", *(f"  {line}".rstrip() for line in body)])


def runs(numbers: Iterable[int]) -> str:
    """Return numbers with three or more successive ones folded: "0-2, 5"."""
    folded: list[list[int]] = []
    for number in numbers:
        if folded and number == folded[-1][-1] + 1:
            folded[-1].append(number)
        else:
            folded.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in folded)
