"""A line on a terminal's stderr that shows a command's progress; silent where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

#: Shortest time between two drawings of the line, in seconds.
REDRAW_S: Final = 0.1
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """One line that is drawn over itself, and notes that stay."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        #: Whether anything is shown at all.
        self.shown = self._stream.isatty()
        self._drawn_at = 0.0
        self._line = ""

    def update(self, line: str) -> None:
        """Show `line` in place of the last one, unless that was only just drawn."""
        self._line = line
        now = time.monotonic()
        if self.shown and now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            self._write(_CLEAR + line)

    def note(self, text: str) -> None:
        """Show `text` on a line of its own, above the moving one."""
        if self.shown:
            self._write(f"{_CLEAR}{text}\n{self._line}")

    def clear(self) -> None:
        """Remove the moving line, so that further output starts on a clean line."""
        self._line = ""
        if self.shown:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def warn(text: str, progress: Progress | None = None) -> None:
    """Write `text` to stderr, terminal or not, without breaking the moving line."""
    if progress is not None:
        progress.clear()
    print(text, file=sys.stderr, flush=True)
