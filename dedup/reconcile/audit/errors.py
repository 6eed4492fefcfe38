"""The errors that end an audit without a verdict."""

from __future__ import annotations

import re
from typing import Final

#: The end of a task's traceback, which is part of Spark's text.
_READ_FAILED: Final = re.compile(r"ReadFailed: (.+)")


class ReadFailed(Exception):
    """An end could not be read to where the plan says. One line; names the end and the place."""


def said(text: str) -> str | None:
    """A task's error, extracted from Spark's text; None: no task of an audit raised one."""
    found = _READ_FAILED.search(text)
    return found[1] if found else None
