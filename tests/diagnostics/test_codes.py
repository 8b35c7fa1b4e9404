"""The codes and titles are a promise to other programs, so they are written down here once more."""

import re

from peerax.diagnostics import CODES

TITLES = {
    "PX101": "axis name unknown here",
    "PX102": "rank outside 0..size-1",
    "PX103": "source or destination twice",
    "PX104": "not inside manual axes",
    "PX105": "perm is not pairs of ints",
    "PX106": "dtype cannot be sent there",
    "PX107": "transformation not supported",
    "PX108": "token or tag is not valid",
    "PX109": "dimension cannot be split",
    "PX201": "send without receive",
    "PX202": "receive without send",
    "PX203": "shapes differ",
    "PX204": "dtypes differ",
    "PX205": "tags crossed",
    "PX206": "order is not fixed",
    "PX207": "cycle: hangs always",
    "PX208": "cycle: hangs without buffers",
    "PX209": "collective not joined by all, or other kind",
    "PX210": "ranks may take different branches",
    "PX211": "cannot decide",
    "PX212": "axis tuple not in mesh order",
    "PX213": "separate operation on a backend that has pairs only",
    "PX214": "receive not linked to what is differentiated",
    "PX301": "wait limit reached",
    "PX302": "deadlock",
    "PX303": "message left over",
    "PX304": "shape or dtype differ at run time",
    "PX307": "buffered bytes over the limit",
    "PX308": "program started inside a callback",
    "PX401": "extension cannot load",
    "PX402": "transport not available",
    "PX403": "target not available",
    "PX404": "environment variable is not valid",
}


def test_codes_and_titles():
    assert {code: entry.title for code, entry in CODES.items()} == TITLES


def test_codes_are_in_order_and_know_their_name():
    assert list(CODES) == sorted(CODES)
    assert all(entry.code == code and re.fullmatch(r"PX[1-4]\d\d", code) for code, entry in CODES.items())


def test_help_is_one_line_in_the_imperative():
    for entry in CODES.values():
        assert re.fullmatch(r"[a-z][^\n]*[^\n.]", entry.help), entry
