"""`peerax check`: run a program on CPU devices, and check each of its programs that communicates before it runs."""

import argparse
import functools
import sys
from typing import Any, Literal

from peerax.cli._environment import CannotStart
from peerax.cli._errors import Failures, end_by_interrupt, reports_in, say, show
from peerax.cli._start import WHOSE_WORDS, add_command, cannot_start, prepare, run_program
from peerax.cli._verdicts import Stop, Verdicts, semantics
from peerax.diagnostics import PeeraxError

_DESCRIPTION = """\
Run a program as `peerax run` does, and check each program that JAX compiles in it, if it communicates,
before it is compiled: can a rank hang, and does each message meet an end of its shape and dtype?
A safe program then runs, and so does one about which nothing can be said; before an unsafe one the
script is stopped. What is not called is not checked."""

_EPILOG = f"""\
{WHOSE_WORDS}

The report goes to stdout, and what the script prints there goes to stderr. With --json each line of the report
is an object: one of the kind "program" for each program, and one of the kind "summary" at the end.

exit code:
  0  each program is safe, or none communicates
  1  a program is unsafe, failed with a report of peerax, or cannot be compiled for a target
  3  otherwise, if the script failed, ended with an exit code other than 0, or could not be started
  2  otherwise, if it cannot be said of a program whether it is safe"""

_SCRIPT_ERROR = 3
_UNSAFE = ("PX1", "PX2", "PX3")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `check` command."""
    parser = add_command(
        subparsers,
        "check",
        help="check before it runs whether a program can hang",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        send="judge separate sends as buffered; by default a send waits for its receive, as on a GPU, in the check, "
        "and is buffered when the program runs (PEERAX_SEND)",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        action="append",
        default=[],
        help="compile each program for this target as well, such as h100:8 or v5e:2x4; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print JSON Lines instead of text")
    # argparse's own exit code, 2, would say that nothing could be decided.
    parser.error = functools.partial(_usage_error, parser)
    parser.set_defaults(run=run, parser=parser)


def _usage_error(parser: argparse.ArgumentParser, message: str) -> None:
    parser.print_usage(sys.stderr)
    parser.exit(_SCRIPT_ERROR, f"{parser.prog}: error: {message}\n")


def run(namespace: argparse.Namespace) -> int:
    """Check the programs of a script, and return the exit code."""
    try:
        prepare(namespace)
        from peerax.extract.compiled import before_compiling

        verdicts = Verdicts(semantics(namespace.send), _targets(namespace.target), namespace.json)
        before_compiling(verdicts.judge)
        return _judge_script(namespace, verdicts)
    except (CannotStart, PeeraxError) as error:
        print(cannot_start("check", error), file=sys.stderr)
        return _SCRIPT_ERROR


def _targets(names: list[str]) -> list[Any]:
    from peerax.targets import parse_target, require_compiler

    targets = [parse_target(name) for name in names]
    for target in targets:
        require_compiler(target)
    return targets


def _judge_script(namespace: argparse.Namespace, verdicts: Verdicts) -> int:
    failures = Failures("check")
    try:
        ended, error, unsafe = _run_script(namespace, verdicts)
        for failure in failures.await_work():
            ended, error, unsafe = "failed", error or _title(failure), unsafe or _is_unsafe(failure)
    except KeyboardInterrupt as interrupt:
        end_by_interrupt(interrupt)
        raise
    return verdicts.end(ended, error, unsafe)


End = tuple[Literal["finished", "stopped", "failed"], str | None, bool]


def _run_script(namespace: argparse.Namespace, verdicts: Verdicts) -> End:
    """Run the script; return how it ended, why it failed, and whether a program failed as an unsafe one does."""
    try:
        run_program(namespace)
    except (CannotStart, KeyboardInterrupt):
        raise
    except Stop:
        return "stopped", None, False
    except SystemExit as request:
        if not request.code:
            return "finished", None, False
        if not isinstance(request.code, int):
            say(request.code)
        return "failed", f"exit code {request.code if isinstance(request.code, int) else 1}", False
    except PeeraxError as error:
        if error.code[:3] in ("PX1", "PX2"):  # the report names the lines
            verdicts.refuse(error.diagnostic)
            return "stopped", None, False
        show(error)
        return "failed", _title(error), _is_unsafe(error)
    except BaseException as error:
        show(error)
        return "failed", _title(error), _is_unsafe(error)
    return "finished", None, False


def _title(error: BaseException) -> str:
    """Return an error in one line."""
    reports = reports_in(error)
    text = reports[0] if reports else f"{type(error).__name__}: {error}"
    return text.splitlines()[0]


def _is_unsafe(error: BaseException) -> bool:
    """Return whether an error is a report on a program, and not on the machine."""
    return any(report.startswith(_UNSAFE) for report in reports_in(error))
