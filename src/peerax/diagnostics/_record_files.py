"""Read the records: Markdown files with front matter, and the pages of the codes, which need none."""

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from peerax.diagnostics._record import Example, Record
from peerax.diagnostics._registry import CODES
from peerax.diagnostics._template import Template

_LISTS_OF_TEXT = {"raised_in", "tags", "prevention"}
_NEEDED = {"origin", "class", "message", "raised_in", "versions", "severity", "tags", "handling", "prevention"}
_OPTIONAL = {"fixed_versions", "background", "function", "statement", "validation", "type_guard", "try_catch"}
_ORIGINS = ("jax", "xla", "peerax")
_SEVERITIES = ("error", "warning", "fatal")
# A shorter message would be found in texts that are about something else.
_LEAST_WEIGHT = 10

_FRONT = re.compile(r"\+\+\+\n(?P<front>.*?)^\+\+\+\n(?P<body>.*)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```python *(?P<words>[^\n]*)\n(?P<code>.*?)^```$\n?", re.DOTALL | re.MULTILINE)

# What is said of a code in addition to its page, by its group.
_GROUPS = {
    "1": (
        "argument",
        "trace the program once in a test: this is found before anything runs, with any number of devices",
    ),
    "2": ("program", "check the program before it runs, with peerax.check, `peerax check` or the fixture peerax_check"),
    "3": ("run-time", "run the program with CPU devices in CI, where a wait that cannot end is found at once"),
    "4": ("environment", "see with `peerax doctor` what is available on the machine"),
}


@functools.cache
def records() -> Mapping[str, Record]:
    """Return all records by their slug: those of the codes first, in order, then the others by name."""
    room = resources.files("peerax.diagnostics")
    found: dict[str, Record] = {}
    for code in CODES:
        found[code] = record_of_code(code, room.joinpath("pages", f"{code}.md").read_text(encoding="utf-8"))
    for file in sorted(room.joinpath("records").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".md"):
            slug = file.name.removesuffix(".md")
            found[slug] = read_record(slug, file.read_text(encoding="utf-8"))
    return found


def read_record(slug: str, text: str) -> Record:
    """Read the file of a record.

    Raises:
        ValueError: if it is not written as records are. The text names the slug, what is wrong and what is valid.
    """
    try:
        front, body = _split(text)
        return Record(
            slug=slug,
            origin=front.pop("origin"),
            exception=front.pop("class"),
            **{name: tuple(value) if isinstance(value, list) else value for name, value in front.items()},
            **_parts(body),
        )
    except ValueError as error:
        raise ValueError(f"record {slug}: {error}") from None


def record_of_code(code: str, page: str) -> Record:
    """Make the record of a code from its page and its entry in the registry."""
    entry = CODES[code]
    group, prevention = _GROUPS[code[2]]
    return Record(
        slug=code,
        code=code,
        origin="peerax",
        exception="PeeraxError",
        message=f"{code}: {entry.title}",
        tags=("peerax", group),
        handling=entry.help,
        prevention=(prevention,),
        **_parts(page),
    )


def _split(text: str) -> tuple[dict[str, Any], str]:
    match = _FRONT.fullmatch(text)
    if match is None:
        raise ValueError("it does not begin with front matter between two lines +++")
    try:
        front = tomllib.loads(match["front"])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"its front matter is not TOML: {error}") from None
    if missing := _NEEDED - front.keys():
        raise ValueError(f"its front matter lacks {', '.join(sorted(missing))}")
    if unknown := front.keys() - _NEEDED - _OPTIONAL:
        valid = ", ".join(sorted(_NEEDED | _OPTIONAL))
        raise ValueError(f"its front matter has {', '.join(sorted(unknown))}; valid are {valid}")
    for name, value in front.items():
        texts = value if name in _LISTS_OF_TEXT and isinstance(value, list) else [value]
        if isinstance(value, list) != (name in _LISTS_OF_TEXT) or not all(isinstance(each, str) for each in texts):
            raise ValueError(f"{name} is not {'a list of texts' if name in _LISTS_OF_TEXT else 'a text'}")
    for name, valid in (("origin", _ORIGINS), ("severity", _SEVERITIES)):
        if front[name] not in valid:
            raise ValueError(f"{name} is {front[name]!r}; valid are {', '.join(valid)}")
    if Template.of(front["message"]).weight < _LEAST_WEIGHT:
        raise ValueError(f"its message has fewer than {_LEAST_WEIGHT} characters beside placeholders")
    return front, match["body"]


def _parts(body: str) -> dict[str, Any]:
    """Return the parts of a page: title, meaning, when, why, fix and the two programs."""
    title, _, rest = body.lstrip("\n").partition("\n")
    if not title.startswith("# "):
        raise ValueError("its first line is not a title")
    programs = list(_examples(rest))
    failing = [example for words, example in programs if "fails" in words]
    fixed = [example for words, example in programs if "fails" not in words]
    if (len(failing), len(fixed)) != (1, 1):
        raise ValueError(
            f"it has {len(failing)} programs that fail and {len(fixed)} that are fixed; one of each is needed"
        )
    sections = dict(_sections(_FENCE.sub("", rest)))
    for name in ("Why", "Fixed"):
        if name not in sections:
            raise ValueError(f"it has no section ## {name}")
    bullets, others = _bullets(sections.get("When it happens", ""))
    return {
        "title": title.removeprefix("# "),
        "body": body.lstrip("\n"),
        "meaning": sections[""],
        "when": bullets,
        "situations": others,
        "why": sections["Why"],
        "fix": sections["Fixed"],
        "failing": failing[0],
        "fixed": fixed[0],
    }


def _examples(text: str) -> Iterator[tuple[set[str], Example]]:
    for match in _FENCE.finditer(text):
        words: set[str] = set()
        options: dict[str, Any] = {"env": ()}
        for word in match["words"].split():
            key, _, value = word.partition("=")
            if key in ("devices", "processes") and value.isdecimal():
                options[key] = int(value)
            elif key == "env" and "=" in value:
                name, _, setting = value.partition("=")
                options["env"] += ((name, setting),)
            elif key == "platform" and value in ("cuda", "rocm", "tpu"):
                options["platform"] = value
            elif key == "needs" and value.isidentifier():
                options["needs"] = value
            elif word == "alone":
                options["alone"] = True
            elif key == "fails":
                words.add("fails")
            else:
                valid = "fails, devices=4, processes=2, env=NAME=VALUE, platform=cuda|rocm|tpu, needs=PACKAGE, alone"
                raise ValueError(f"its code block has the word {word!r}; valid are {valid}")
        yield words, Example(code=match["code"], **options)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    name, lines = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            yield name, "\n".join(lines).strip()
            name, lines = line.removeprefix("## ").strip(), []
        else:
            lines.append(line)
    yield name, "\n".join(lines).strip()


def _bullets(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the items of a list and the paragraphs beside it, each in one line."""
    bullets: list[str] = []
    others: list[str] = []
    current: list[str] | None = None
    for line in text.splitlines():
        if line.startswith(("- ", "* ")):
            current = bullets
            bullets.append(line[2:].strip())
        elif not line.strip():
            current = None
        elif current is None:
            current = others
            others.append(line.strip())
        else:
            current[-1] += " " + line.strip()
    return tuple(bullets), tuple(others)
