"""What the commands that run a program have in common: which words are theirs, their options, and the start."""

import argparse
import os
import sys

from peerax.cli._environment import (
    CannotStart,
    check_devices_of_early_jax,
    check_environment,
    set_environment,
)
from peerax.cli._script import run_module, run_path
from peerax.diagnostics import PeeraxError
from peerax.runtime import read_settings

_TAKE_A_VALUE = ("--devices", "--timeout", "--send")
_TAKE_NONE: dict[str, tuple[str, ...]] = {"run": ("--quiet", "--check"), "check": ("--json",)}
_TAKE_A_VALUE_TOO: dict[str, tuple[str, ...]] = {"run": ("--trace",), "check": ("--target",)}

WHOSE_WORDS = """\
The options may stand before the script or directly behind it. From the first word behind the script that
is none of them, or from `--`, everything belongs to the script, also what looks like an option of ours."""


def separate(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line into what argparse is to read, and the script's own words."""
    if not words or words[0] not in _TAKE_NONE:
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
    take_a_value = (*_TAKE_A_VALUE, *_TAKE_A_VALUE_TOO[words[0]])
    while start < len(words):
        name, has_value, _ = words[start].partition("=")
        if name in take_a_value:
            start += 1 if has_value else 2
        elif words[start] in _TAKE_NONE[words[0]]:
            start += 1
        else:
            break
    return min(start, len(words))


_USAGE = """\
peerax {name} [options] script.py [options] [--] [arguments of the script]
       peerax {name} [options] -m module [options] [--] [arguments of the module]"""


def add_command(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    *,
    help: str,
    description: str,
    epilog: str,
    send: str,
) -> argparse.ArgumentParser:
    """Add a command that runs a program, with the options that all of these have; send is the help for --send."""
    parser = subparsers.add_parser(
        name,
        help=help,
        usage=_USAGE.format(name=name),
        description=description,
        epilog=epilog,
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
    parser.add_argument("--send", choices=("buffered", "rendezvous"), help=send)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("-m", dest="module", metavar="module", help="run a module instead of a script")
    target.add_argument(
        "script",
        metavar="script.py",
        nargs="?",
        help="the program; also a directory or zip file with __main__.py",
    )
    return parser


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


def prepare(namespace: argparse.Namespace) -> None:
    """Set the environment, import JAX, and put peerax's functions in jax.lax.

    Raises:
        CannotStart: if the program cannot be run.
        PeeraxError: PX404.
    """
    jax_is_early = "jax" in sys.modules
    set_environment(os.environ, devices=namespace.devices, timeout_s=namespace.timeout, send=namespace.send)
    if namespace.script is not None and not os.path.exists(namespace.script):
        raise CannotStart(f"there is no file {namespace.script!r}")
    check_environment(namespace.devices)
    from peerax.install import install  # imports JAX

    install()
    if jax_is_early and namespace.devices is not None:
        check_devices_of_early_jax(namespace.devices)


def cannot_start(command: str, error: CannotStart | PeeraxError) -> str:
    """Return what to say of a program that cannot be started."""
    return f"peerax {command}: {error}" if isinstance(error, CannotStart) else str(error)


def run_program(namespace: argparse.Namespace) -> None:
    """Run the script or module.

    Raises:
        CannotStart: if there is none.
        BaseException: whatever the program raises.
    """
    if namespace.module is not None:
        run_module(namespace.module, namespace.args)
    else:
        run_path(namespace.script, namespace.args)
