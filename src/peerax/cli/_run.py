"""`peerax run`: run an unmodified program on CPU devices, with peerax's functions in jax.lax."""

import argparse
import atexit
import sys
from contextlib import nullcontext

from peerax.cli._environment import CannotStart
from peerax.cli._errors import Failures, end_by_interrupt, say, show
from peerax.cli._progress import progress
from peerax.cli._recording import recording
from peerax.cli._start import WHOSE_WORDS, add_command, cannot_start, prepare, run_program
from peerax.cli._summary import print_summary
from peerax.cli._verdicts import Semantics, long_work, semantics, shown
from peerax.diagnostics import PeeraxError

_DESCRIPTION = """\
Run a program as `python script.py` would, with psend, precv and create_token of peerax in jax.lax,
and optimization_barrier where a token is among its operands. The program need not know peerax."""

_EPILOG = f"""\
{WHOSE_WORDS}

At the end one line on stderr says what was sent. The exit code is that of the script; it is 1 if
work failed that the script did not wait for, and 2 if the script could not be started."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `run` command."""
    parser = add_command(
        subparsers,
        "run",
        help="run a program on CPU devices, with peerax's functions in jax.lax",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        send="whether a separate send is buffered, or waits for its receive as on a GPU (PEERAX_SEND)",
    )
    parser.add_argument(
        "--check", action="store_true", help="check each program before it runs, and refuse one that is unsafe"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="record what each rank does, and write it to FILE, for peerax trace"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing besides: no line at the end, no progress")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Run the program, and return its exit code."""
    # Registered before JAX and the program register theirs, it is called after all of them.
    if not namespace.quiet:
        atexit.register(print_summary)
    try:
        prepare(namespace)
        if namespace.check:
            _refuse_what_is_unsafe(semantics(namespace.send))
        return _run_program(namespace)
    except (CannotStart, PeeraxError) as error:
        atexit.unregister(print_summary)
        print(cannot_start("run", error), file=sys.stderr)
        return 2


def _refuse_what_is_unsafe(semantics: Semantics) -> None:
    """Raise PeeraxError at each call that would make JAX compile an unsafe program."""
    from peerax.extract.compiled import CompiledProgram, before_compiling

    def check(program: CompiledProgram) -> None:
        with long_work(f"peerax run: checking {shown(program)}"):
            report = program.check(semantics)
        report.raise_if_unsafe()
        if report.verdict == "undecided":
            say(f"peerax run: {shown(program)}: it cannot be said whether a rank can hang; peerax check says why")

    before_compiling(check)


def _run_program(namespace: argparse.Namespace) -> int:
    failures = Failures("run")
    try:
        with recording(namespace.trace) as recorded, nullcontext() if namespace.quiet else progress():
            exit_code = _exit_code(namespace)
            work_failed = bool(failures.await_work())
        return exit_code or int(work_failed or recorded.failed)
    except KeyboardInterrupt as interrupt:
        end_by_interrupt(interrupt)  # what is under way may never end, so nobody waits for it
        raise


def _exit_code(namespace: argparse.Namespace) -> int:
    """Run the program until it ends, and return the exit code that it asks for."""
    try:
        run_program(namespace)
    except (CannotStart, KeyboardInterrupt):
        raise
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return request.code or 0
        say(request.code)
        return 1
    except BaseException as error:
        show(error)
        return 1
    return 0
