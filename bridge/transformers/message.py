"""The message as a transformer sees it, and what a transformer raises to have it later. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bridge.messages import hops
from bridge.messages.message import Header
from bridge.messages.message import Message as StoredMessage
from dedup.ids import HORNETQ_ID_HEADER, ID_HEADER

#: Headers that say who a message is and where it has been. A transformer does not see them, and what it sets
#: under these names is left out.
RESERVED: Final = frozenset((ID_HEADER, HORNETQ_ID_HEADER, hops.HEADER))


class NotNow(Exception):
    """Raised by a transformer that cannot work now, as what it needs is down: the message is not refused, and
    comes again.
    """


class Message:
    """A message that a transformer may change: its body, its key and its headers. Made anew for each try."""

    __slots__ = ("_address", "_id", "_timestamp", "body", "headers", "key")

    def __init__(
        self,
        body: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        *,
        address: str = "",
        timestamp: int = -1,
        duplicate_id: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        #: Bytes as they came; None is a tombstone.
        self.body = body
        #: Partitioning key; None where there is none.
        self.key = key
        #: Names and values, in their order; a name may come more than once.
        self.headers = list(headers)
        self._address = address
        self._timestamp = timestamp
        self._id = duplicate_id

    @property
    def address(self) -> str:
        """The address or topic that it came from."""
        return self._address

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch; -1 where the producer gave none."""
        return self._timestamp

    @property
    def duplicate_id(self) -> bytes | None:
        """The ID that its producer set, or that the bridge stamps; None: it has none
        (`use-duplicate-detection` is false).
        """
        return self._id()

    def header(self, name: str) -> bytes | None:
        """The value of the last header called `name`, or None."""
        return next((value for found, value in reversed(self.headers) if found == name), None)

    def set_header(self, name: str, value: bytes | None) -> None:
        """Give it this header, in place of all of the name."""
        self.remove_header(name)
        self.headers.append((name, value))

    def remove_header(self, name: str) -> None:
        """Take out all headers of the name."""
        self.headers = [header for header in self.headers if header[0] != name]


def shown(message: StoredMessage, address: str, duplicate_id: Callable[[], bytes | None]) -> Message:
    """The message as a transformer sees it: without `RESERVED` headers."""
    return Message(
        message.whole,
        message.key,
        [header for header in message.headers if header[0] not in RESERVED],
        address=address,
        timestamp=message.timestamp,
        duplicate_id=duplicate_id,
    )


def taken(before: StoredMessage, made: Message) -> StoredMessage:
    """The message `before` as a transformer has made it: `before` itself where nothing has changed.

    Raises: TypeError, ValueError: a body, key or header is none that a message can have.
    """
    own = [header for header in before.headers if header[0] not in RESERVED]
    unchanged = made.headers == own
    if unchanged and made.body is before.body and made.key is before.key:
        return before
    for what, value in (("body", made.body), ("key", made.key)):
        if value is not None and type(value) is not bytes:
            raise TypeError(f"{what} must be bytes or None; found {type(value).__name__}")
    headers = before.headers  # in their order
    if not unchanged:
        given = tuple(header for header in map(_header, made.headers) if header[0] not in RESERVED)
        headers = (*given, *(header for header in before.headers if header[0] in RESERVED))
    return StoredMessage(made.body, made.key, headers, before.timestamp)


def _header(header: object) -> Header:
    """A header that a message can have. Raises: TypeError, ValueError."""
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise TypeError(f"a header must be a name and a value; found {header!r:.100}")
    name, value = header
    if type(name) is not str or (value is not None and type(value) is not bytes):
        found = f"{type(name).__name__} and {type(value).__name__}"
        raise TypeError(f"a header must be text and bytes or None; found {found}")
    name.encode()  # raises UnicodeEncodeError, a ValueError: halves of surrogate pairs
    return name, value
