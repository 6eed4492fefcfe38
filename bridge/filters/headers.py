"""A message of the bridge as conditions see it: its headers are its properties.

A header is bytes that are read as UTF-8: a `HeaderText`. Bytes that are no UTF-8 stay bytes, which compare
with nothing. Of several headers of one name the last counts, as a property in Artemis is there once.

Case counts in names, with one exception. HTTP's names have no case, and are stored in lower case: where no
header has a name exactly, the header with that name in lower case counts.
"""

from __future__ import annotations

from typing import Final

from bridge.filters.nodes import Properties
from bridge.filters.system import ALWAYS_THERE, FIELDS, System
from bridge.filters.values import HeaderText, Value
from bridge.messages.block import encoded_size
from bridge.messages.message import Message

#: The property in which conditions find the duplicate ID that a producer set.
DUPLICATE_ID: Final = "AMQDuplicateId"


def header_value(value: bytes | None) -> Value:
    """A header's value; None where it has none."""
    if value is None:
        return None
    try:
        return HeaderText(value, "utf-8")
    except UnicodeDecodeError:
        return value


class MessageReader:
    """Takes from messages what one condition asks for, and nothing else."""

    def __init__(self, names: frozenset[str]) -> None:
        #: Names with capital letters, each with itself in lower case.
        self._cased = tuple((name, name.lower()) for name in sorted(names) if name != name.lower())
        self._names = names | {lower for _, lower in self._cased}
        #: Whether the condition reads fields: else no message's `system` is needed.
        self.has_fields = not names.isdisjoint(FIELDS)
        #: Names that no message has had until now. Filters of one bridge may share the set.
        self.missing = set(names - ALWAYS_THERE)
        self._has_size = "AMQSize" in names
        self._has_id = DUPLICATE_ID in names

    def properties(self, message: Message, duplicate_id: bytes | None) -> Properties:
        """The headers that the condition names."""
        names = self._names
        try:  # the usual case, without a call for each header; one without a value raises TypeError
            found: dict[str, Value] = {
                name: HeaderText(value, "utf-8")  # type: ignore[arg-type]
                for name, value in message.headers
                if name in names
            }
        except (TypeError, UnicodeDecodeError):
            found = {name: header_value(value) for name, value in message.headers if name in names}
        if self._has_id and duplicate_id is not None:
            found[DUPLICATE_ID] = header_value(duplicate_id)
        for name, lower in self._cased:
            if name not in found and lower in found:
                found[name] = found[lower]
        if self.missing:
            self.missing.difference_update(found)
        return found

    def lowered(self, properties: Properties) -> Properties:
        """Typed properties, with the headers among them that count for names with capital letters."""
        headers = {
            name: properties[lower]
            for name, lower in self._cased
            if name not in properties and type(properties.get(lower)) is HeaderText
        }
        return {**properties, **headers} if headers else properties

    def system(self, message: Message, address: str) -> System:
        """The fields of the message: priority 4, durable and never expired, as every message is here."""
        return System(
            timestamp=max(message.timestamp, 0),
            size=encoded_size(message) if self._has_size else 0,
            address=address,
        )
