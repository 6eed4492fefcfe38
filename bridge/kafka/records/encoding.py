"""Encodes a message's duplicate ID and its hops as headers of a Kafka record. Pure.

A message's own headers stay as they are, in order, repeated ones too; added ones follow them, as the last of
a name counts. A message with an `ID_HEADER` of its own gets no other: its producer named the message.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.messages import hops
from bridge.messages.block import Block
from bridge.messages.message import Header, Message
from dedup.ids import ID_HEADER


def hop_headers(block: Block) -> list[Header | None]:
    """The header with the hops of each message; None: it has no hops."""
    found: list[Header | None] = []
    for count, value in block.hops:
        found += [(hops.HEADER, value) if value else None] * count
    return found or [None] * block.count


def headers_of(
    messages: Sequence[Message], ids: Sequence[bytes | None], passed: Sequence[Header | None]
) -> list[list[Header]]:
    """The headers of each record: the message's own, its hops, and its ID where they have none."""
    found: list[list[Header]] = []
    for message, duplicate_id, hop_header in zip(messages, ids, passed, strict=True):
        own = message.headers
        headers = [*own] if hop_header is None else [*own, hop_header]
        if duplicate_id is not None:
            for name, _ in own:
                if name == ID_HEADER:
                    break
            else:
                headers.append((ID_HEADER, duplicate_id))
        found.append(headers)
    return found


def timed(messages: Sequence[Message], stored_ms: int) -> list[Message]:
    """The messages, those without a timestamp with `stored_ms`: for sources where a timestamp is optional.

    Consumers such as Kafka Streams fail on a record without one. The time at which the message was stored at
    its source is the same at every attempt, which the time now is not.
    """
    return [
        message if message.timestamp >= 0 else Message(message.body, message.key, message.headers, stored_ms)
        for message in messages
    ]
