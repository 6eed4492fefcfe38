"""Standard streams that are closed when the program starts (``core-bridge receive >&-``).

Python has None in their place. Files and sockets would get their descriptors, and prints would go there.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = (0, 1, 2)


class _ClosedOutput(io.RawIOBase):
    """Refuses every write, by a sentence."""

    def writable(self) -> bool:
        return True

    def write(self, _: object) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


def open_closed() -> None:
    """Give each closed descriptor to the null device, and each missing stream an object.

    Results that are written to a closed standard output are an error; what goes to stderr is dropped.
    """
    for descriptor in _DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest descriptor that is free
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_ClosedOutput(), encoding="utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
