"""The parts common to all commands: the common options, exit codes, and the format of --help."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, Final

from bridge.client.exit_codes import PROGRAM

SETTINGS_VARIABLE: Final = "CORE_BRIDGE_SETTINGS"
TOKEN_VARIABLE: Final = "CORE_BRIDGE_TOKEN"  # noqa: S105 - the variable's name

DEFAULT_SETTINGS: Final = "settings.toml"
DEFAULT_URL: Final = "http://127.0.0.1:61616"
DEFAULT_OPERATIONS: Final = "http://127.0.0.1:8161"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


#: The common options of each kind of command; it refuses every other one.
FILE_ONLY: Final = frozenset({"--settings"})
FILE: Final = frozenset({"--settings", "--format"})
RESULTS: Final = frozenset({"--format"})
_CALL: Final = FILE | {"--token", "--ca", "--certificate", "--key"}
AS_CLIENT: Final = _CALL | {"--url"}
AS_OPERATOR: Final = _CALL | {"--operations"}
AS_BOTH: Final = AS_CLIENT | AS_OPERATOR


def common_options(takes: Set[str]) -> argparse.ArgumentParser:
    """A parent parser with the options that commands share; those that are not in `takes` are refused."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = common.add_argument_group("common options")
    for option, how in OPTIONS.items():
        if option in takes:
            group.add_argument(option, **how)
        else:
            group.add_argument(option, action=_Refused, nargs="?", help=argparse.SUPPRESS)
    if "--token" in takes:
        group.set_defaults(token=os.environ.get(TOKEN_VARIABLE, ""))
    return common


class _Refused(argparse.Action):
    """An option of other commands, which is refused."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        command = parser.prog.removeprefix(PROGRAM).strip()
        parser.error(f"{self.option_strings[0]} means nothing for '{command}'")


#: Every common option.
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "--settings": {
        "metavar": "FILE",
        "help": f"the node's settings file (default: ${SETTINGS_VARIABLE}, else ./{DEFAULT_SETTINGS})",
    },
    "--url": {
        "help": f"the node's acceptor: http, https, ws or wss (default: the file's, else {DEFAULT_URL})"
    },
    "--operations": {
        "metavar": "URL",
        "help": f"the node's operations (default: the file's, else {DEFAULT_OPERATIONS})",
    },
    "--token": {
        "help": f"bearer token (default: ${TOKEN_VARIABLE}, which keeps it out of the process list, else the "
        "first of the file's tokens)"
    },
    "--ca": {
        "metavar": "PEM",
        "default": "",
        "help": "authorities to trust (default: the file's own certificate where the URL is the file's, else "
        "the system's)",
    },
    "--certificate": {
        "metavar": "PEM",
        "default": "",
        "help": "this client's certificate (default: none)",
    },
    "--key": {"metavar": "PEM", "default": "", "help": "the certificate's key (default: none)"},
    "--format": {
        "choices": ("text", "json"),
        "default": "text",
        "help": "form of the results (default: text)",
    },
}


#: Arguments that name files: their names are bytes to the system, and need not be UTF-8.
PATHS: Final = frozenset(
    {
        *("settings", "file", "ca", "certificate", "key", "plan", "input", "output"),
        *("logs", "report", "state", "verify"),
    }
)


def text_that_is_not_utf8(arguments: argparse.Namespace) -> str | None:
    """The line that refuses a text with bytes that are not UTF-8; None: there is none."""
    for name, value in vars(arguments).items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if (
                name not in PATHS
                and isinstance(text, str)
                and any("\ud800" <= one <= "\udfff" for one in text)
            ):
                shown = "***" if name == "token" else text.encode("utf-8", "backslashreplace").decode()
                return f"{name.replace('_', '-')}: must be UTF-8; found {shown}"
    return None


def named_settings(arguments: argparse.Namespace) -> Path | None:
    """The file that ``--settings`` or the environment names; None: neither does."""
    name = arguments.settings or os.environ.get(SETTINGS_VARIABLE)
    return Path(name) if name else None


def settings_path(arguments: argparse.Namespace) -> Path:
    """The settings file."""
    return named_settings(arguments) or Path(DEFAULT_SETTINGS)


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
