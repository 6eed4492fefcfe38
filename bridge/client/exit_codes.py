"""The program's name, and the exit codes of its commands."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PROGRAM: Final = "core-bridge"


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
