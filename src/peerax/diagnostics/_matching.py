"""Find the records that a pasted text is about, best first."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from peerax.diagnostics._pages import near_codes, normalise
from peerax.diagnostics._pasted import Pasted
from peerax.diagnostics._record import Record
from peerax.diagnostics._record_files import records

_NEAR = 0.6
_MOST_NEAR = 3


@dataclass(frozen=True)
class Found:
    """Hold what is known of a text.

    matches: the records whose message is in the text, best first. near: those with a similar message, if none matches.
    """

    matches: tuple[Record, ...]
    near: tuple[Record, ...]


def find(text: str, among: Iterable[Record] | None = None) -> Found:
    """Find the records that a text is about.

    Args:
        text: a code, the name of a record, a message, or any text with tracebacks, as it was pasted.
        among: the records; by default all.

    Returns:
        The matches, best first. A code that is named comes before all, the later exception before the earlier one,
        and the longer message before the shorter one. Without a match, the records whose message is similar.
    """
    known = tuple(records().values() if among is None else among)
    if named := named_by(text, known):
        return Found((named,), ())
    pasted = Pasted(text)
    ranks = {record.slug: rank for record in known if (rank := _rank(record, pasted)) is not None}
    matches = sorted((record for record in known if record.slug in ranks), key=lambda record: ranks[record.slug])
    matches.reverse()
    return Found(tuple(matches), () if matches else _near(text, pasted, known))


def looks_like_code(text: str) -> bool:
    """Whether a text is a code, known or not: one of peerax (PX203, 203) or of its linter (PXL001)."""
    return re.fullmatch(r"(?i)(?:PXL?)?\d{3,4}", text.strip()) is not None


def named_by(text: str, known: Iterable[Record]) -> Record | None:
    """Return the record whose name a text is: PX203, px203 and 203 name the same one."""
    name = text.strip()
    names = {name.casefold(), f"px{name}"} if re.fullmatch(r"\d{3}", name) else {name.casefold()}
    return next((record for record in known if record.slug.casefold() in names), None)


def _rank(record: Record, pasted: Pasted) -> tuple[int, ...] | None:
    """Return how well a record fits, or None; a larger one is better."""
    if record.code is not None and record.code in pasted.codes:
        return (1, pasted.codes[record.code])
    if not record.may_be_about(pasted.text):
        return None
    fits = []
    for start, _ in record.template.find(pasted.squeezed):
        index = pasted.head_of(start)
        agrees = index >= 0 and record.names(pasted.heads[index].exception)
        raised = not pasted.in_source(start)
        fits.append((0, raised, not pasted.heads or agrees, index, record.template.weight))
    return max(fits, default=None)


def _near(text: str, pasted: Pasted, known: Iterable[Record]) -> tuple[Record, ...]:
    if looks_like_code(text):
        codes = near_codes(normalise(text))
        return tuple(record for code in codes for record in known if record.slug == code)
    messages = [_words(message) for message in pasted.messages()[:3]]
    scores: dict[str, float] = {}
    for record in known:
        template = _words(" ".join(record.template.literals))
        scores[record.slug] = max(
            max(_likeness(message, template), _likeness(message, record.slug)) for message in messages
        )
    likely = sorted((record for record in known if scores[record.slug] >= _NEAR), key=lambda r: -scores[r.slug])
    return tuple(likely[:_MOST_NEAR])


def _likeness(message: str, template: str) -> float:
    """Compare a message, which may have been cut or be followed by other text, with a template."""
    cut = message.rstrip(".… ")
    if cut != message and len(cut) > 20 and template.startswith(cut):
        return 1.0
    matcher = difflib.SequenceMatcher(None, message[: len(template) + 20], template, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= _NEAR else 0.0


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
