"""Comments that suppress findings: `# noqa` and `# noqa: PXL001, PXL002`."""

import io
import re
import tokenize

_COMMENT = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?(?![\w:])", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)


def suppressed(text: str) -> dict[int, frozenset[str] | None]:
    """Return the codes that the comment in each line suppresses; None stands for all."""
    if "noqa" not in text.lower():
        return {}
    found: dict[int, frozenset[str] | None] = {}
    for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
        if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
            codes = match["codes"]
            found[token.start[0]] = None if codes is None else frozenset(c.upper() for c in _CODE.findall(codes))
    return found
