"""Values that are never shown, in logs and in problems of a settings file."""

from __future__ import annotations

import re
from typing import Final

#: Shown instead of a secret.
HIDDEN: Final = "***"

#: Endings of the names of keys that hold secrets, in small letters, with hyphens for underscores.
_KEY: Final = re.compile(r"((token|password|passphrase|secret|credential)s?|authorization)$")
#: The user part of a URL, up to its last @; the text after ``Bearer``.
_IN_TEXT: Final = re.compile(r"(?<=//)[^/\s]*(?=@)|(?<=Bearer )\S+")


def is_secret(key: str) -> bool:
    """Whether values under a key of this name are never shown."""
    return _KEY.search(key.lower().replace("_", "-")) is not None


def holds_secret(key: str, text: str) -> bool:
    """Whether the text under a key of this name is never shown: a proxy's URL with a password is not."""
    return is_secret(key) or (key.lower().endswith("proxy") and "@" in text)


def without_secrets(text: str) -> str:
    """The text with `HIDDEN` for every secret in it, whatever its key is called."""
    return _IN_TEXT.sub(HIDDEN, text)
