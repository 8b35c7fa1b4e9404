"""The exception that carries a diagnostic."""

from collections.abc import Iterable
from typing import Self

from peerax.diagnostics._diagnostic import Channel, Diagnostic, Location


class PeeraxError(Exception):
    """Report a mistake that peerax found; its text is the rendered diagnostic."""

    # A traceback shows this name, so it is the one under which users import the class.
    __module__ = "peerax.diagnostics"

    def __init__(self, diagnostic: Diagnostic) -> None:
        # The diagnostic is the only argument, so that pickle and copy can make the exception again.
        super().__init__(diagnostic)
        self.diagnostic = diagnostic

    @classmethod
    def of(
        cls,
        code: str,
        message: str,
        *,
        locations: Iterable[Location] = (),
        evidence: Iterable[str] = (),
        help: str | None = None,
        ranks: Iterable[int] = (),
        channel: Channel | None = None,
    ) -> Self:
        """Build the diagnostic and the exception in one step."""
        return cls(
            Diagnostic(
                code,
                message,
                locations=tuple(locations),
                ranks=tuple(ranks),
                channel=channel,
                evidence=tuple(evidence),
                help=help,
            )
        )

    def __str__(self) -> str:
        return self.diagnostic.render()

    @property
    def code(self) -> str:
        """Return the code, such as "PX203"."""
        return self.diagnostic.code

    @property
    def title(self) -> str:
        """Return the title of the code."""
        return self.diagnostic.title

    @property
    def locations(self) -> tuple[Location, ...]:
        """Return the user's own lines as (file, line)."""
        return self.diagnostic.locations

    @property
    def help(self) -> str:
        """Return the fix that the text of the exception shows."""
        return self.diagnostic.shown_help
