"""A record: one error that people meet, what it means, a program that produces it and the fixed one."""

from dataclasses import dataclass

from peerax.diagnostics._template import Template


@dataclass(frozen=True)
class Example:
    """Hold a program of a record, and what it needs to run.

    code: the text of the program. devices: of the CPU. env: variables of the environment. platform: what the program
    lowers or compiles for, if not the CPU. needs: a package that must be installed. alone: it must have a process of
    its own, which it may end. processes: how many processes of JAX run it together.
    """

    code: str
    devices: int = 1
    env: tuple[tuple[str, str], ...] = ()
    platform: str | None = None
    needs: str | None = None
    alone: bool = False
    processes: int = 1

    def standalone(self) -> str:
        """Return the program with the environment that it needs set in its first lines."""
        environment = {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={self.devices}",
            **dict(self.env),
        }
        lines = [f'os.environ["{name}"] = "{value}"' for name, value in environment.items()]
        return "\n".join(["import os", "", *lines, "", self.code])


@dataclass(frozen=True)
class Record:
    """Describe one error: how it is recognised, what it means, and how it is fixed.

    slug: its name, which is that of its file. origin: who raises it, "jax", "xla" or "peerax". code: of peerax, or
    None. exception: the last name of the class. message: the template, with {placeholders}. raised_in: files of the
    raise statement below site-packages, none where it is native code. function: the one that raises it, where several
    in a file do. statement: a piece of the line that makes the error, where no raise statement has the message.
    versions: those of jax in which the failing program fails so; fixed_versions: those in which the fixed program runs.
    body: the whole page as Markdown; meaning, when, situations, why and fix are parts of it.
    """

    slug: str
    origin: str
    exception: str
    message: str
    title: str
    body: str
    meaning: str
    when: tuple[str, ...]
    situations: tuple[str, ...]
    why: str
    fix: str
    failing: Example
    fixed: Example
    handling: str
    prevention: tuple[str, ...]
    raised_in: tuple[str, ...] = ()
    function: str | None = None
    statement: str | None = None
    versions: str = ""
    fixed_versions: str = ""
    severity: str = "error"
    tags: tuple[str, ...] = ()
    code: str | None = None
    background: str | None = None
    validation: str | None = None
    type_guard: str | None = None
    try_catch: str | None = None

    @property
    def template(self) -> Template:
        """Return the message in the form that finds it in a text."""
        return Template.of(self.message)

    @property
    def heading(self) -> str:
        """Return the error as the last line of a traceback shows it."""
        return f"{self.exception}: {self.message}"

    def page(self) -> str:
        """Return all that is known of the error as Markdown."""
        head, _, rest = self.body.partition("\n\n")
        prevention = [
            "## Prevention",
            f"Where it is raised: {self.handling}.",
            "\n".join(f"- {item}" for item in self.prevention),
        ]
        return "\n\n".join([head, *filter(None, [self.facts()]), rest.rstrip("\n"), *prevention]) + "\n"

    def facts(self) -> str:
        """Return how the error looks and who raises it, as Markdown; a code says it in its title."""
        return "" if self.code else f"    {self.heading}\n\nRaised by {_WHO[self.origin]}{self._where()}."

    def _where(self) -> str:
        files = f" in {', '.join(f'`{file}`' for file in self.raised_in)}" if self.raised_in else ""
        return f"{files}, seen with JAX {self.versions}" if self.versions else files

    def may_be_about(self, text: str) -> bool:
        """Whether a text that has the message may be about this error.

        What Python itself says, such as "list index out of range", says too little alone: the text must name something
        that the error is about, too.
        """
        return self.statement is None or any(tag in text for tag in (*self.tags, *self.raised_in))

    def names(self, exception: str) -> bool:
        """Whether a class, by its last name, is that of the record."""
        if self.code is not None and exception in ("PeeraxError", *_OF_RUN_TIME):
            return True  # what is found on a rank while it runs arrives in an error of JAX's run time
        return exception == self.exception or {exception, self.exception} <= _OF_RUN_TIME


_WHO = {"jax": "JAX", "xla": "XLA", "peerax": "peerax"}
# XlaRuntimeError is the name that JaxRuntimeError has in older versions and in some tracebacks.
_OF_RUN_TIME = {"JaxRuntimeError", "XlaRuntimeError"}
