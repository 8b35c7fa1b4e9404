"""The pages: one Markdown file per code, which says what the code means and shows the fix."""

import difflib
import os
from importlib import resources

from peerax.diagnostics._registry import CODES


def explain(code: str) -> str:
    """Return the Markdown page of a code.

    Args:
        code: such as "PX203"; "px203" and "203" mean the same.

    Returns:
        The text of the page.

    Raises:
        LookupError: if there is no such code. The text names the codes that look like it, and all codes.
    """
    name = normalise(code)
    if name not in CODES:
        raise LookupError(_unknown(code, name))
    return resources.files("peerax.diagnostics").joinpath("pages", f"{name}.md").read_text(encoding="utf-8")


def normalise(code: str) -> str:
    """Return a code as it is written, from how people type it."""
    name = code.strip().upper()
    return name if name.startswith("PX") else f"PX{name}"


def _unknown(code: str, name: str) -> str:
    lines = [f"there is no diagnostic code {code!r}"]
    if near := near_codes(name):
        lines.append(f"did you mean {' or '.join(near)}?")
    lines.append("the codes are:")
    lines += [f"  {entry.code}  {entry.title}" for entry in CODES.values()]
    return "\n".join(lines)


def near_codes(name: str) -> list[str]:
    """Return the codes that look like an unknown one, the most alike first."""
    # Many codes are equally alike; of these, the ones that begin in the same way come first.
    scores = {
        code: (difflib.SequenceMatcher(None, name, code).ratio(), len(os.path.commonprefix([name, code])))
        for code in CODES
    }
    near = [code for code, (ratio, _) in scores.items() if ratio > 0.7]
    return sorted(near, key=scores.__getitem__, reverse=True)[:3]
