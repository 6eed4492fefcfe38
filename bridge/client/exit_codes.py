"""The program's name, and the exit codes of its commands."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PROGRAM: Final = "core-bridge"


class Exit(IntEnum):
    """Exit codes of the commands."""

    OK = 0
    FAILED = 1
    #: Wrong usage, or invalid settings.
    USAGE = 2
    #: Done, and something is left to a person.
    LEFT = 3
    #: The journal is damaged, or lacks what it had: starting again does not help, a person has to act.
    DAMAGED = 5
    #: Ctrl-C: 128 + SIGINT, as in shells.
    INTERRUPTED = 130
    #: The output's reader is gone: 128 + SIGPIPE.
    BROKEN_PIPE = 141


EXIT_CODES_HELP: Final = "exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 Ctrl-C"
