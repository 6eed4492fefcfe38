"""What a remark shows of a broker.xml: on one line, short, and without secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Final

from bridge.migrate.document import Element
from bridge.runtime.secret_values import HIDDEN, is_secret, without_secrets
from bridge.settings.problems import shorten

#: Longest text that shows an element with everything in it, in characters, but for "and 12 more".
MAX_CONTENT_CHARACTERS: Final = 200
#: A secret within a text, as a URL's parameter or a property of a database's address.
_SECRET: Final = re.compile(
    r"((?:password|passphrase|secret|token|credential)s?\s*[=:]\s*)[^;&,\s]+", re.IGNORECASE
)
#: Attributes that say which element it is.
NAMING: Final = ("name", "match")
_URL: Final = re.compile(r"\s*\(?\s*[a-z]+\s*:\s*/\s*/")
_BLANKS: Final = re.compile(r"\s+")
_PARAMETERS: Final = re.compile("[;&]")


def one_line(text: str) -> str:
    """A text without line breaks and other characters that a terminal acts on."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def shown_text(name: str, text: str) -> str:
    """The text of the element, attribute or parameter `name`; empty where its name is a secret's."""
    if is_secret(name):
        return ""
    return shorten(one_line(_SECRET.sub(rf"\g<1>{HIDDEN}", without_secrets(text))))


def shown_content(element: Element, what: str) -> str:
    """The text, the attributes and the elements in an element; a number stands for those beyond the limit.

    `what` is said before it: the element in words, perhaps with its name, which is not shown once more.
    Whatever is taken out of the element, another text is shown, or another `what` is said.
    """
    said = {name for name in NAMING if (value := element.attributes.get(name)) and value in what}
    parts = [*_parts(element, said)]
    if len(parts) == 1 and not element.text and not element.children:  # one attribute: its value
        return parts[0].partition("=")[2]
    shown: list[str] = []
    length = 0
    for part in parts:
        length += len(part) + len(", ")
        if shown and length > MAX_CONTENT_CHARACTERS:
            break
        shown.append(part)
    more = len(parts) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def shown_uri(uri: str) -> str:
    """A URI with its parameters."""
    return ", ".join(_text_parts("", uri))


def _parts(element: Element, said: Set[str] = frozenset()) -> Iterator[str]:
    """The parts of an element, without the attributes in `said`."""
    yield from _text_parts(element.name, element.text)
    secret = any(is_secret(value) for value in element.attributes.values())
    for name, value in element.attributes.items():
        if secret and name == "value":
            yield f"{name}={HIDDEN}"
        elif name not in said:
            first, *others = [*_text_parts(name, value)] or [HIDDEN if value else ""]
            yield f"{name}={first}"
            yield from others
    for child in element.children:
        first, *others = [*_parts(child)] or [""]
        alone = not child.text or is_secret(child.name)
        yield child.name if alone else f"{child.name}={first}"
        yield from ([first] if alone and first else [])
        yield from others


def _text_parts(name: str, text: str) -> Iterator[str]:
    """A text; of a URL each parameter is a part."""
    if _URL.match(text):
        text = _BLANKS.sub("", text)  # as Artemis reads it
    head, mark, parameters = text.partition("?") if "://" in text else (text, "", "")
    if head and (shown := shown_text(name, head)):
        yield shown
    if mark:
        for parameter in filter(str.strip, _PARAMETERS.split(parameters)):
            key, equals, value = parameter.partition("=")
            hidden = is_secret(key.strip())
            yield f"{key.strip()}{equals}{HIDDEN if hidden else shown_text(key, value)}"
