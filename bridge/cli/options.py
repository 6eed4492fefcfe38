"""What every command shares: the common options, exit codes, and the look of --help."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from enum import IntEnum
from typing import Final

PROGRAM: Final = "core-bridge"

SETTINGS_VARIABLE: Final = "CORE_BRIDGE_SETTINGS"
TOKEN_VARIABLE: Final = "CORE_BRIDGE_TOKEN"  # noqa: S105 - the variable's name

DEFAULT_SETTINGS: Final = "settings.toml"
DEFAULT_URL: Final = "http://127.0.0.1:61616"
DEFAULT_OPERATIONS: Final = "http://127.0.0.1:8161"


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    FAILED = 1
    #: Wrong usage, or settings that do not hold.
    USAGE = 2
    #: Ctrl-C: 128 + SIGINT, as shells say it.
    INTERRUPTED = 130
    #: Nobody reads the output any more: 128 + SIGPIPE.
    BROKEN_PIPE = 141


EXIT_CODES_HELP: Final = "exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 Ctrl-C"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


def common_options() -> argparse.ArgumentParser:
    """A parent parser with the options that every command takes."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = common.add_argument_group("common options")
    group.add_argument(
        "--settings",
        metavar="FILE",
        default=os.environ.get(SETTINGS_VARIABLE) or DEFAULT_SETTINGS,
        help=f"settings file (default: ${SETTINGS_VARIABLE}, else ./{DEFAULT_SETTINGS})",
    )
    group.add_argument(
        "--url",
        default=DEFAULT_URL,
        help=f"the node's acceptor: http, https, ws or wss (default: {DEFAULT_URL})",
    )
    group.add_argument(
        "--operations",
        metavar="URL",
        default=DEFAULT_OPERATIONS,
        help=f"the node's operations (default: {DEFAULT_OPERATIONS})",
    )
    group.add_argument(
        "--token",
        default=os.environ.get(TOKEN_VARIABLE, ""),
        help=f"bearer token (default: ${TOKEN_VARIABLE}, which keeps it out of the process list)",
    )
    group.add_argument("--ca", metavar="PEM", default="", help="authorities to trust (default: the system's)")
    group.add_argument(
        "--certificate", metavar="PEM", default="", help="this client's certificate (default: none)"
    )
    group.add_argument("--key", metavar="PEM", default="", help="the certificate's key (default: none)")
    group.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the results (default: text)"
    )
    return common


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type: an integer within limits, which the error names."""

    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number; found {text}") from None
        if value < least or (most is not None and value > most):
            limits = f"at least {least}" if most is None else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"must be {limits}; found {value}")
        return value

    return whole_number


def seconds(text: str) -> float:
    """An argparse type: seconds, zero or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be seconds; found {text}") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or more seconds; found {text}")
    return value
