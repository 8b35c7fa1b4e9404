"""`peerax run`: run an unmodified program on CPU devices, with peerax's functions in jax.lax."""

import argparse
import atexit
import os
import sys

from peerax.cli._environment import (
    CannotStart,
    check_devices_of_early_jax,
    check_environment,
    set_environment,
)
from peerax.cli._errors import Failures, say, show
from peerax.cli._script import run_module, run_path
from peerax.cli._summary import print_summary
from peerax.diagnostics import PeeraxError
from peerax.runtime import read_settings

_TAKE_A_VALUE = ("--devices", "--timeout", "--send")
_TAKE_NONE = ("--quiet",)

_USAGE = """\
peerax run [options] script.py [options] [--] [arguments of the script]
       peerax run [options] -m module [options] [--] [arguments of the module]"""

_DESCRIPTION = """\
Run a program as `python script.py` would, with psend, precv and create_token of peerax in jax.lax,
and optimization_barrier where a token is among its operands. The program need not know peerax."""

_EPILOG = """\
The options may stand before the script or directly behind it. From the first word behind the script that
is none of them, or from `--`, everything belongs to the script, also what looks like an option of ours.

At the end one line on stderr says what was sent. The exit code is that of the script; it is 1 if
work failed that the script did not wait for, and 2 if the script could not be started."""


def separate(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line into what argparse is to read, and the script's own words."""
    if words[:1] != ["run"]:
        return words, []
    end = _skip_options(words, 1)
    if words[end : end + 1] == ["-m"]:
        end += 2
    elif end < len(words) and not words[end].startswith("-"):
        end += 1
    else:
        return words, []  # --help, or a mistake
    end = _skip_options(words, end)
    ours, rest = words[:end], words[end:]
    return ours, rest[1:] if rest[:1] == ["--"] else rest


def _skip_options(words: list[str], start: int) -> int:
    """Return the position of the first word from start on that does not belong to an option of ours."""
    while start < len(words):
        name, has_value, _ = words[start].partition("=")
        if name in _TAKE_A_VALUE:
            start += 1 if has_value else 2
        elif words[start] in _TAKE_NONE:
            start += 1
        else:
            break
    return min(start, len(words))


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the `run` command."""
    parser = subparsers.add_parser(
        "run",
        help="run a program on CPU devices, with peerax's functions in jax.lax",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--devices", metavar="N", type=_device_count, help="run on N devices of the CPU")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_timeout_s,
        help="limit of every wait in seconds, or inf (PEERAX_TIMEOUT_S; default 60)",
    )
    parser.add_argument(
        "--send",
        choices=("buffered", "rendezvous"),
        help="whether a separate send is buffered, or waits for its receive as on a GPU (PEERAX_SEND)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the line at the end")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("-m", dest="module", metavar="module", help="run a module instead of a script")
    target.add_argument(
        "script",
        metavar="script.py",
        nargs="?",
        help="the program; also a directory or zip file with __main__.py",
    )
    parser.set_defaults(run=run)


def _device_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices, 1 or more")
    return int(text)


def _timeout_s(text: str) -> str:
    try:
        read_settings({"PEERAX_TIMEOUT_S": text})
    except PeeraxError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, or inf") from None
    return text


def run(namespace: argparse.Namespace) -> int:
    """Run the program, and return its exit code."""
    jax_is_early = "jax" in sys.modules
    set_environment(os.environ, devices=namespace.devices, timeout_s=namespace.timeout, send=namespace.send)
    # Registered before JAX and the program register theirs, it is called after all of them.
    if not namespace.quiet:
        atexit.register(print_summary)
    try:
        if namespace.script is not None and not os.path.exists(namespace.script):
            raise CannotStart(f"peerax run: there is no file {namespace.script!r}")
        check_environment(namespace.devices)
        from peerax.install import install  # imports JAX

        install()
        if jax_is_early and namespace.devices is not None:
            check_devices_of_early_jax(namespace.devices)
        return _run_program(namespace)
    except CannotStart as error:
        atexit.unregister(print_summary)
        print(error, file=sys.stderr)
        return 2


def _run_program(namespace: argparse.Namespace) -> int:
    failures = Failures()
    try:
        exit_code = _exit_code(namespace)
        work_failed = failures.await_work()
        return exit_code or int(work_failed)
    except KeyboardInterrupt as interrupt:
        # What is under way may never end, so nobody waits for it. The interrupt is shown here, without our
        # own frames, and raised again, so that Python ends as it does when any script is interrupted.
        show(interrupt)
        sys.excepthook = lambda *_: None
        raise


def _exit_code(namespace: argparse.Namespace) -> int:
    """Run the program until it ends, and return the exit code that it asks for."""
    try:
        if namespace.module is not None:
            run_module(namespace.module, namespace.args)
        else:
            run_path(namespace.script, namespace.args)
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
