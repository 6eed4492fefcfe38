"""Problems of a settings file: one line each, all of them at once, secrets never shown."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.errors import BridgeError
from bridge.runtime.secret_values import without_secrets
from bridge.settings.paths import KeyPath

#: Longest value that a problem shows, in characters; longer ones are cut off.
MAX_SHOWN_CHARACTERS: Final = 100
#: The text of a problem where a required key is missing.
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is broken somewhere in the file."""

    path: KeyPath
    #: The requirement, starting in lower case.
    rule: str
    #: The key or value that the user probably meant.
    suggestion: str | None = None
    #: The text shown as found where that is not the value at `path`.
    found: str | None = None
    #: Other values that the rule is about: where one of them is wrong itself, this is no finding.
    leans_on: tuple[KeyPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding as the user sees it."""

    #: The file as the user named it.
    file: str
    #: ``bridges[0].retry-interval (orders-to-hub)``, ``line 3, column 9``; empty: the whole file.
    key: str
    rule: str
    #: The value as it is written; `secret_values.HIDDEN` for secrets, `NOTHING` where there is none.
    found: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else self.file
        meant = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{place}: {self.rule}; found {self.found}{meant}"


class SettingsInvalid(BridgeError):
    """The settings break rules; nothing was opened."""

    code, status = "SETTINGS_INVALID", 409

    def __init__(self, problems: Sequence[Problem]) -> None:
        #: In the order of the file.
        self.problems = list(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """The output of `validate` and `run` on stderr: a line a problem, then their number."""
        number = len(self.problems)
        return [*map(str, self.problems), f"{number} problem{'' if number == 1 else 's'}"]


def show(value: Any) -> str:
    """A value as TOML writes it, on one line, at most `MAX_SHOWN_CHARACTERS` long."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "true" if value else "false"
        case str():
            text = json.dumps(without_secrets(value), ensure_ascii=False)
        case list() | tuple():
            text = f"[{', '.join(map(show, value))}]"
        case dict():
            return "a table" if value else "an empty table"
        case _:
            text = str(value)
    return shorten(text)


def shorten(text: str) -> str:
    """The text, cut off after `MAX_SHOWN_CHARACTERS`."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant: another case or separator, or a typing error."""
    words = list(known)
    plain = {_plain(item): item for item in words}
    if _plain(word) in plain:
        return plain[_plain(word)]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else None


def _plain(word: str) -> str:
    return re.sub(r"[-_]", "", word).casefold()
