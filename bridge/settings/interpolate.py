"""``${VAR}``, ``${VAR:-text}``, ``${file:path}`` and ``$${`` in the text values of parsed settings.

Applied once, after parsing: the text of a variable or a file is never interpolated again, and can neither add
a key nor become a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.settings.paths import KeyPath

#: Largest file that ``${file:}`` reads: it brings a token or a password, not data.
MAX_FILE_BYTES: Final = 64 * 1024

_PLACE: Final = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)\}|\$\{")
_VARIABLE: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Interpolated:
    """Settings with every place filled in."""

    tree: dict[str, Any]
    #: Places that could not be filled in, and the rule; the text stays as it was written.
    broken: list[tuple[KeyPath, str]] = field(default_factory=list)
    #: Values that came from a file: never shown.
    from_files: set[KeyPath] = field(default_factory=set)


def interpolate(tree: Mapping[str, Any], environ: Mapping[str, str], directory: Path) -> Interpolated:
    """A copy of `tree` with its text values filled in; files are relative to `directory`."""
    done = Interpolated({})
    done.tree.update({key: _value(value, (key,), done, environ, directory) for key, value in tree.items()})
    return done


def _value(value: Any, path: KeyPath, done: Interpolated, environ: Mapping[str, str], directory: Path) -> Any:
    match value:
        case dict():
            return {key: _value(item, (*path, key), done, environ, directory) for key, item in value.items()}
        case list():
            return [
                _value(item, (*path, index), done, environ, directory) for index, item in enumerate(value)
            ]
        case str() if "${" in value:
            try:
                text = "".join(_pieces(value, environ, directory))
            except ValueError as error:
                done.broken.append((path, str(error)))
                return value
            if "${file:" in value:
                done.from_files.add(path)
            return text
        case _:
            return value


def _pieces(text: str, environ: Mapping[str, str], directory: Path) -> Iterator[str]:
    end = 0
    for place in _PLACE.finditer(text):
        yield text[end : place.start()]
        end = place.end()
        if place[0] == "$${":
            yield "${"
        elif place["inside"] is None:
            raise ValueError("'${' must be closed by '}'; '$${' stands for '${' itself")
        else:
            yield _filled(place["inside"], environ, directory)
    yield text[end:]


def _filled(inside: str, environ: Mapping[str, str], directory: Path) -> str:
    if inside.startswith("file:"):
        return _file(inside.removeprefix("file:"), directory)
    variable = _VARIABLE.fullmatch(inside)
    if variable is None:
        raise ValueError(
            "must be ${VARIABLE}, ${VARIABLE:-text} or ${file:path}; '$${' stands for '${' itself"
        )
    name, otherwise = variable["name"], variable["otherwise"]
    if otherwise is not None and "${" in otherwise:
        raise ValueError(f"the default of environment variable {name} must be plain text, without '${{'")
    found = environ.get(name)
    if found is not None and any("\ud800" <= letter <= "\udfff" for letter in found):
        raise ValueError(f"environment variable {name} must be UTF-8 text")
    if otherwise is not None:
        return found or otherwise  # as in the shell: unset or empty
    if found is None:
        raise ValueError(f"environment variable {name} must be set; ${{{name}:-text}} gives a default")
    return found


def _file(name: str, directory: Path) -> str:
    """The file's text less one trailing newline."""
    path = directory / name
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"file {name} must hold at most {MAX_FILE_BYTES} bytes")
        text = content.decode()
    except OSError as error:
        raise ValueError(f"file {name} must be readable ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"file {name} must be UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
