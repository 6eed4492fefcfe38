"""The version of the program."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Final

#: The distribution's name.
NAME: Final = "core-bridge"


@cache
def version() -> str:
    """The installed version; ``unknown`` where the program runs without being installed."""
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "unknown"
