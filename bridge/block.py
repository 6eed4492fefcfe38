"""The block: messages encoded once, where they enter, and carried whole from then on.

A block is what the journal stores as one row and what the link sends as one frame. Its body
is opened again only where a filter, a transformer, an ID check or a cut asks for it
(design rule 5): one row a message would cost 9-12 µs each.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from bridge.message import Message
from bridge.runs import Run

#: Origin of a stamped run of messages: (entry stream identity, first position, last position).
Origin = tuple[str, int, int]
#: (index in the block, the duplicate ID that the producer set).
IndexedId = tuple[int, bytes]

_HEADER_BYTES = 5  # msgpack array32: 0xdd and a big-endian count, always, so that bodies can be joined
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Message])
_element_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_message(message: Message) -> bytes:
    """A message as the element of a block's body."""
    return _encoder.encode(message)


def _array(elements: int) -> bytes:
    return b"\xdd" + elements.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded messages of one address, in order. Never empty."""

    #: How many messages.
    count: int
    #: msgpack array32 of `count` messages.
    body: bytes
    #: Size in bytes of the largest encoded message.
    largest: int
    #: CRC-32 of the last message's encoding: what a position is compared by (design section 3).
    checksum: int
    #: IDs set by producers, ascending by index.
    ids: tuple[IndexedId, ...] = ()
    #: Where each message was first stored, in order, as runs; empty: here (not stamped yet).
    origins: tuple[Origin, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of body and producers' IDs: what limits and windows count."""
        return len(self.body) + sum(len(value) for _, value in self.ids)

    def messages(self) -> list[Message]:
        """The messages, decoded (some 0.4 µs each).

        Raises:
            msgspec.DecodeError: the body is not what was stored; storage or wire is damaged.
        """
        return _decoder.decode(self.body)

    def encoded(self) -> list[bytes]:
        """The messages as they came, byte for byte, whoever encoded them. Raises: as `messages`."""
        return [bytes(element) for element in _element_decoder.decode(self.body)]

    def stamped(self, stream: str, runs: Iterable[Run]) -> Block:
        """This block with its origin named: `runs` of `stream`, unless it has one already."""
        if self.origins:
            return self
        origins = tuple((stream, first, last) for first, last in runs)
        return Block(self.count, self.body, self.largest, self.checksum, self.ids, origins)

    def part(self, start: int, stop: int) -> Block:
        """The messages with index in ``[start, stop)``, which must not be empty."""
        if start == 0 and stop == self.count:
            return self
        encoded = self.encoded()[start:stop]
        ids = tuple((index - start, value) for index, value in self.ids if start <= index < stop)
        return pack(encoded, ids, _cut_origins(self.origins, start, stop))

    def without(self, indices: Iterable[int]) -> Block | None:
        """This block less the messages at `indices`; None where nothing is left."""
        dropped = set(indices)
        kept = [index for index in range(self.count) if index not in dropped]
        if not kept:
            return None
        encoded = self.encoded()
        origin_of = [
            (stream, position) for stream, first, last in self.origins for position in range(first, last + 1)
        ]
        origins = tuple((*origin_of[index], origin_of[index][1]) for index in kept) if origin_of else ()
        new_index = {old: new for new, old in enumerate(kept)}
        ids = tuple((new_index[index], value) for index, value in self.ids if index in new_index)
        return pack([encoded[index] for index in kept], ids, join_origins(origins))


def pack(
    encoded: Sequence[bytes], ids: tuple[IndexedId, ...] = (), origins: tuple[Origin, ...] = ()
) -> Block:
    """A block of messages that `encode_message` made; at least one."""
    return Block(
        count=len(encoded),
        body=b"".join((_array(len(encoded)), *encoded)),
        largest=max(map(len, encoded)),
        checksum=zlib.crc32(encoded[-1]),
        ids=ids,
        origins=origins,
    )


def merge(blocks: Sequence[Block]) -> Block:
    """Blocks of one address as one, in order, without opening them; either all stamped or none."""
    if len(blocks) == 1:
        return blocks[0]
    total = sum(block.count for block in blocks)
    ids: list[IndexedId] = []
    start = 0
    for block in blocks:
        ids.extend((start + index, value) for index, value in block.ids)
        start += block.count
    return Block(
        count=total,
        body=b"".join((_array(total), *(memoryview(block.body)[_HEADER_BYTES:] for block in blocks))),
        largest=max(block.largest for block in blocks),
        checksum=blocks[-1].checksum,
        ids=tuple(ids),
        origins=join_origins(origin for block in blocks for origin in block.origins),
    )


def join_origins(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """The same origins in as few runs as there can be."""
    joined: list[Origin] = []
    for stream, first, last in origins:
        if joined and joined[-1][0] == stream and joined[-1][2] + 1 == first:
            joined[-1] = (stream, joined[-1][1], last)
        else:
            joined.append((stream, first, last))
    return tuple(joined)


def _cut_origins(origins: Iterable[Origin], start: int, stop: int) -> tuple[Origin, ...]:
    kept: list[Origin] = []
    index = 0
    for stream, first, last in origins:
        length = last - first + 1
        low, high = max(start, index), min(stop, index + length)
        if low < high:
            kept.append((stream, first + low - index, first + high - index - 1))
        index += length
    return tuple(kept)
