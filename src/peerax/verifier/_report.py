"""The outcome of a check."""

import json
from dataclasses import dataclass, field
from typing import Literal

from peerax.diagnostics import Diagnostic, PeeraxError
from peerax.verifier._ir import Program

_SENTENCES = {
    "safe": "no rank can hang, and each message meets an end of its shape and dtype",
    "unsafe": "the program can hang, or has messages that do not fit",
    "undecided": "it cannot be said whether a rank can hang",
}
_ASSUMED = {
    "rendezvous": "a send completes when it is received",
    "buffered": "a send completes at once, whatever its size",
}
MOST_SHOWN = 20


@dataclass(frozen=True)
class Report:
    """Say whether a program is safe, and why it is not.

    Args:
        verdict: "safe", "unsafe" or "undecided".
        diagnostics: one for each cause. Warnings do not make a program unsafe.
        semantics: "rendezvous" or "buffered"; how sends were judged.
        size: number of ranks; 0 if the program cannot be traced.
        assumptions: what the verdict relies on, in sentences.
        program: what was checked, if there is one program.
    """

    verdict: Literal["safe", "unsafe", "undecided"]
    diagnostics: tuple[Diagnostic, ...]
    semantics: Literal["rendezvous", "buffered"]
    size: int
    assumptions: tuple[str, ...] = ()
    program: Program | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Return whether the program is proved to be safe."""
        return self.verdict == "safe"

    @property
    def codes(self) -> frozenset[str]:
        """Return the codes of the errors."""
        return frozenset(found.code for found in self.diagnostics if found.severity == "error")

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return all that the verdict relies on, also how sends complete; nothing, if the program cannot be traced."""
        return (_ASSUMED[self.semantics], *self.assumptions) if self.size else ()

    def raise_if_unsafe(self) -> None:
        """Raise PeeraxError with the first error, if the verdict is "unsafe"."""
        if self.verdict == "unsafe":
            raise PeeraxError(next(found for found in self.diagnostics if found.severity == "error"))

    def summary(self) -> str:
        """Return the verdict in one line."""
        if not self.size:
            return f"{self.verdict}: it cannot be traced"
        ranks = "1 rank" if self.size == 1 else f"{self.size} ranks"
        return f"{self.verdict}: {_SENTENCES[self.verdict]} ({ranks}, {self.semantics} sends)"

    def render(self, most: int = MOST_SHOWN) -> str:
        """Return the report as plain text, with at most so many diagnostics, without a newline at its end."""
        parts = [self.summary()]
        for found in self.diagnostics[:most]:
            parts.append(f"{'' if found.severity == 'error' else 'warning: '}{found.render()}")
        if len(self.diagnostics) > most:
            parts.append(f"and {len(self.diagnostics) - most} more")
        if self.assumed:
            parts.append("\n".join(["assumed:", *(f"  {sentence}" for sentence in self.assumed)]))
        return "\n\n".join(parts)

    def to_html(self, most: int = MOST_SHOWN) -> str:
        """Return the report as an HTML page that needs nothing else, with a table of what each rank does."""
        from peerax.verifier._html import to_html

        return to_html(self, most)

    def to_json(self) -> str:
        """Return the report as a JSON object, with all diagnostics."""
        return json.dumps(
            {
                "verdict": self.verdict,
                "semantics": self.semantics,
                "ranks": self.size,
                "assumptions": list(self.assumed),
                "diagnostics": [
                    {
                        "code": found.code,
                        "title": found.title,
                        "severity": found.severity,
                        "message": found.message,
                        "locations": [{"file": file, "line": line} for file, line in found.locations],
                        "ranks": list(found.ranks),
                        "channel": None
                        if found.channel is None
                        else dict(zip(("source", "destination", "tag"), found.channel, strict=True)),
                        "evidence": list(found.evidence),
                        "help": found.shown_help,
                    }
                    for found in self.diagnostics
                ],
            }
        )

    def __str__(self) -> str:
        return self.render()
