"""The types that settings are made of, each with its rule; and their common pydantic model.

A rule is a function that returns the value or raises ValueError with the requirement; `load` adds the key and
the value found.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo

from bridge.errors import FilterRefused
from bridge.filters import parse
from bridge.messages.hops import HOPS_MOST
from bridge.messages.message import WHOLE_BODY_BYTES
from bridge.runtime.schedule import WINDOWS_MOST, window
from bridge.settings import names, selectors, units
from bridge.transformers.loading import check_path

#: Longest message and batch: SQLite holds at most 1,000,000,000 bytes in a row, block and IDs together.
LARGEST_BLOCK_BYTES: Final = 512 * 1024 * 1024
#: The largest body of a message.
LARGEST_BODY_BYTES: Final = 1024 * 1024 * 1024
#: Most replicas of a Kafka topic.
MOST_REPLICAS: Final = 2**15 - 1
#: The key under which `load` passes the directory that relative paths start from.
DIRECTORY: Final = "directory"


def key_of(attribute: str) -> str:
    """The key in the file of an attribute: ``retry_interval_ms`` is written ``retry-interval``."""
    return attribute.removesuffix("_ms").removesuffix("_bytes").replace("_", "-")


class Table(BaseModel):
    """A table of the file: unknown keys are refused, values frozen, defaults held to the same rules."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, alias_generator=key_of, defer_build=True
    )


def setting(description: str, default: Any = ..., **more: Any) -> Any:
    """A key of a table: its description, and its default as a file would write it; required without one."""
    return Field(default=default, description=description, **more)


def _time(least: int = 0, *, never: bool = False) -> BeforeValidator:
    return BeforeValidator(partial(units.time_ms, least=least, never=never))


def _size(least: int = 1, most: int = units.LARGEST_SIZE_BYTES) -> BeforeValidator:
    return BeforeValidator(partial(units.size_bytes, least=least, most=most))


#: Most worker processes of a node: each takes some 55 MiB idle, and a machine has a limited number of cores.
MOST_WORKERS: Final = 64


#: Most calls of a bridge's transformer at a time: each has a thread.
MOST_CALLERS: Final = 256


def _whole(least: int, most: int = units.LARGEST_NUMBER) -> BeforeValidator:
    return BeforeValidator(partial(units.whole_number, least=least, most=most))


def _replicas(value: object) -> int:
    if units.is_whole(value) and value == 0:
        raise ValueError("must be -1 (the default), or at least 1")
    return units.whole_number(value, least=-1, most=MOST_REPLICAS)


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def _token(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be visible ASCII characters without spaces")
    return value


def _path(value: str | Path, info: ValidationInfo) -> Path | None:
    if not value:
        return None
    if "\0" in str(value):  # open() would raise a ValueError of its own
        raise ValueError("must not hold NUL characters")
    directory: Path = (info.context or {}).get(DIRECTORY, Path())
    return directory / value


def _readable(path: Path | None) -> Path | None:
    """Check that the file can be read, so that a missing certificate is reported before anything is
    opened.
    """
    if path is None:
        return None
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"must name a file that can be read ({error.strerror})") from None


def _condition(value: str) -> str:
    """A filter's condition as it is written; a blank one is none."""
    try:
        return value if parse(value) is not None else ""
    except FilterRefused as error:
        raise ValueError(f"must be a condition ({error})") from None


def _text(value: object) -> object:
    if not isinstance(value, str | Path):
        raise ValueError("must be text in quotes")
    return value


def _as_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise ValueError("must be text in quotes, or a list of texts")
    return [value] if isinstance(value, str) else value


def _window(value: str) -> str:
    window(value)
    return value


Flag = Annotated[bool, Strict()]

#: Milliseconds from 0, from 1; -1 for never where the type says so.
TimeMs = Annotated[int, _time()]
PositiveTimeMs = Annotated[int, _time(1)]
TimeOrNeverMs = Annotated[int, _time(never=True)]
PositiveTimeOrNeverMs = Annotated[int, _time(1, never=True)]

#: Bytes from 1.
SizeBytes = Annotated[int, _size()]
#: Bytes of values that travel or are stored as a whole.
BlockSizeBytes = Annotated[int, _size(most=LARGEST_BLOCK_BYTES)]
#: Bytes of a message's body, from 1.
BodySizeBytes = Annotated[int, _size(most=LARGEST_BODY_BYTES)]
#: Bytes from which on a body is stored in chunks, from 1.
WholeSizeBytes = Annotated[int, _size(most=WHOLE_BODY_BYTES)]

#: Bytes a second; 0: no limit.
RateBytes = Annotated[int, BeforeValidator(units.rate_bytes)]

#: Whole numbers from 1, from 0, and from -1, which means without end (or the default, for Kafka).
Count = Annotated[int, _whole(1)]
#: Worker processes of one node.
Workers = Annotated[int, _whole(1, MOST_WORKERS)]
#: Bridges that a message may have come through.
HopCount = Annotated[int, _whole(1, HOPS_MOST)]
#: As of a message in JMS.
Priority = Annotated[int, _whole(0, 9)]
CountOrNone = Annotated[int, _whole(0)]
Attempts = Annotated[int, _whole(-1)]
CountOrAny = Annotated[int, _whole(-1)]
#: Kafka replicas; -1: a default. Kafka's own limit is that of an int16.
Replicas = Annotated[int, BeforeValidator(_replicas)]
Multiplier = Annotated[float, BeforeValidator(partial(units.number, least=1.0))]

#: A name that the user gives to an address, a queue, a bridge or a cluster; empty: none.
UserName = Annotated[str, AfterValidator(names.check_user_name)]
OptionalUserName = Annotated[
    str, AfterValidator(lambda value: names.check_user_name(value) if value else value)
]
#: Any name: of a node, which may be the host's; of a Kafka topic or group, the bridge's own included.
Name = Annotated[str, AfterValidator(names.check_name)]
OptionalName = Annotated[str, AfterValidator(lambda value: names.check_name(value) if value else value)]
#: A filter's condition; empty: none.
Condition = Annotated[str, AfterValidator(_condition)]
#: A transformer's dotted path; empty: none.
TransformerPath = Annotated[str, AfterValidator(lambda value: check_path(value) if value else value)]
AddressPattern = Annotated[str, AfterValidator(names.check_pattern)]
Selectors = Annotated[
    tuple[Annotated[str, AfterValidator(selectors.check_selector)], ...], BeforeValidator(_as_list)
]
#: Windows of a schedule, as they are written; none: always.
Windows = Annotated[
    tuple[Annotated[str, AfterValidator(_window)], ...],
    Field(max_length=WINDOWS_MOST),
    BeforeValidator(_as_list),
]
ForwardingAddress = Annotated[str, AfterValidator(selectors.check_forwarding_address)]
NotEmpty = Annotated[str, AfterValidator(_not_empty)]

#: A bearer token; empty where none is needed.
Token = Annotated[str, AfterValidator(_token)]
OptionalToken = Annotated[str, AfterValidator(lambda value: _token(value) if value else value)]

#: Paths, absolute if the settings file's directory is; None for "".
OptionalPath = Annotated[Path | None, BeforeValidator(_path), BeforeValidator(_text)]
DirectoryPath = Annotated[Path, BeforeValidator(_path), BeforeValidator(_not_empty), BeforeValidator(_text)]
PemFile = Annotated[Path | None, AfterValidator(_readable), BeforeValidator(_path), BeforeValidator(_text)]


def _scalar(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise ValueError("must be text, a number, true or false")
    return value


#: A value that is passed to a transformer or a client library unchanged.
Scalar = Annotated[Any, AfterValidator(_scalar)]


def _auto_or_flag(value: object) -> Any:
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError('must be "auto", true or false')


AutoOrFlag = Annotated[Literal["auto"] | bool, BeforeValidator(_auto_or_flag)]
