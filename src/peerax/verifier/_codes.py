"""Findings: diagnostics of a program, also under codes that have no page yet.

A page shows a program that fails with its code, so these codes move to `peerax.diagnostics` with the function that
checks JAX programs. Until then they are here, with the titles that they keep.
"""

from dataclasses import dataclass, replace

from peerax.diagnostics import CODES, Code, Diagnostic
from peerax.verifier._print import runs

_MOST_RANKS = 8

_ALL = (
    Code(
        "PX207",
        "cycle: hangs always",
        "let one rank of the cycle send before it receives, or make each exchange a pair",
    ),
    Code(
        "PX208",
        "cycle: hangs without buffers",
        "make each exchange a pair by giving precv the token of its psend, or let one rank of the cycle receive first",
    ),
    Code(
        "PX210",
        "ranks may take different branches",
        "make the predicate the same on all ranks, for example with psum, or communicate outside of the branch",
    ),
    Code(
        "PX211",
        "cannot decide",
        "communicate the same in each branch, and in each iteration as many sends as receives on every channel",
    ),
)

PROGRAM_CODES: dict[str, Code] = {entry.code: entry for entry in _ALL if entry.code not in CODES}


@dataclass(frozen=True)
class Finding(Diagnostic):
    """A diagnostic whose code may also be one of PROGRAM_CODES."""

    def __post_init__(self) -> None:
        if self.code not in PROGRAM_CODES:
            super().__post_init__()

    @property
    def title(self) -> str:
        return (PROGRAM_CODES.get(self.code) or CODES[self.code]).title

    @property
    def shown_help(self) -> str:
        return self.help or (PROGRAM_CODES.get(self.code) or CODES[self.code]).help

    def render(self) -> str:
        """Return the diagnostic as plain text, with many ranks folded."""
        if len(self.ranks) <= _MOST_RANKS:
            return super().render()
        lines = replace(self, ranks=()).render().splitlines()
        lines.insert(
            1 + len(set(self.locations)) + len(self.message.splitlines()), f"  ranks: {runs(sorted(self.ranks))}"
        )
        return "\n".join(lines)
