"""What ends an audit without a verdict."""

from __future__ import annotations

import re
from typing import Final

#: How a task's traceback, which is part of Spark's text, ends.
_READ_FAILED: Final = re.compile(r"ReadFailed: (.+)")


class ReadFailed(Exception):
    """An end could not be read to where the plan says. One line; names the end and the place."""


def said(text: str) -> str | None:
    """What a task said, out of the pages that Spark makes of it; None: no task of an audit said anything."""
    found = _READ_FAILED.search(text)
    return found[1] if found else None
