"""A message of the bridge as conditions see it: its headers are its properties.

A header is bytes that are read as UTF-8: a `HeaderText`. Bytes that are no UTF-8 stay bytes, which compare
with nothing. Of several headers of one name the last counts, as a property in Artemis is there once.
"""

from __future__ import annotations

from bridge.filters.nodes import Properties
from bridge.filters.system import System
from bridge.filters.values import HeaderText, Value
from bridge.messages.block import encode_message
from bridge.messages.message import Message

#: The property in which conditions find the duplicate ID that a producer set.
DUPLICATE_ID: str = "AMQDuplicateId"


def header_value(value: bytes | None) -> Value:
    """A header's value; None where it has none."""
    if value is None:
        return None
    try:
        return HeaderText(value, "utf-8")
    except UnicodeDecodeError:
        return value


def properties_of(message: Message, duplicate_id: bytes | None) -> Properties:
    """All properties of a message."""
    found = {name: header_value(value) for name, value in message.headers}
    if duplicate_id is not None:
        found[DUPLICATE_ID] = header_value(duplicate_id)
    return found


def system_of(message: Message, address: str) -> System:
    """The fields of a message: priority 4, durable, and never expired, as every message is here."""
    return System(timestamp=max(message.timestamp, 0), size=len(encode_message(message)), address=address)
