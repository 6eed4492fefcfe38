"""The block: messages encoded once, where they enter, and carried whole from then on.

The journal stores a block as one row, and the link sends it as one frame. Its body is opened again only where
a filter, a transformer, an ID check or a cut asks for it (design rule 5): one row a message would cost 9-12
µs each.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from bridge.messages import value_runs
from bridge.messages.hops import Hops
from bridge.messages.message import LargeBody, Message
from bridge.messages.positions import Run

#: Origin of a stamped run of messages: (entry stream identity, first position, last position).
Origin = tuple[str, int, int]
#: (index in the block, the duplicate ID that the producer set).
IndexedId = tuple[int, bytes]
#: Names of the only queues that each message is for, in order, as runs (`bridge.messages.value_runs`); no
#: name: every queue. Empty: so are all.
Queues = tuple[tuple[int, tuple[str, ...]], ...]

_HEADER_BYTES = 5  # msgpack array32: 0xdd and a big-endian count, always, so that bodies can be joined
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Message])
_message_decoder = msgspec.msgpack.Decoder(Message)
_element_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_message(message: Message) -> bytes:
    """A message as the element of a block's body."""
    return _encoder.encode(message)


def encode_to_hold(message: Message) -> bytes:
    """As `encode_message`, for a message that may be held for long: the encoder's result keeps its buffer,
    which is up to half as large again.
    """
    return b"%b" % _encoder.encode(message)


def decode_message(encoded: bytes) -> Message:
    """The message that `encode_message` encoded."""
    return _message_decoder.decode(encoded)


def encoded_size(message: Message) -> int:
    """Bytes of a message's encoding, with those of a large body, which is kept beside it."""
    beside = message.body.size if isinstance(message.body, LargeBody) else 0
    return len(encode_message(message)) + beside


def _array(elements: int) -> bytes:
    return b"\xdd" + elements.to_bytes(4, "big")


class KeptBody(NamedTuple):
    """A large message's body where a journal keeps it."""

    #: Its number in the journal.
    body_id: int
    body: LargeBody


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded messages of one address, in order. Never empty."""

    #: Number of messages.
    count: int
    #: msgpack array32 of `count` messages.
    body: bytes
    #: Size in bytes of the largest encoded message.
    largest: int
    #: CRC-32 of the last message's encoding, by which positions are compared (design section 3).
    checksum: int
    #: IDs set by producers, ascending by index.
    ids: tuple[IndexedId, ...] = ()
    #: Where each message was first stored, in order, as runs; empty: here (not stamped yet).
    origins: tuple[Origin, ...] = ()
    #: The bridges through which each message has come, in order, as runs; empty: none
    #: (`bridge.messages.hops`).
    hops: Hops = ()
    #: The queues at the target that each message is for. Only between a cluster's nodes, which place messages
    #: when they are sent.
    queues: Queues = ()
    #: The body of the block's one message, which is large: its chunks are beside it. None: every message has
    #: its body in the block.
    large: KeptBody | None = None

    @property
    def size(self) -> int:
        """Bytes of the block's body and producers' IDs: those that it takes in memory and in a frame."""
        return len(self.body) + sum(len(value) for _, value in self.ids)

    @property
    def whole_size(self) -> int:
        """As `size`, with a large body's bytes: limits and windows count these."""
        return self.size if self.large is None else self.size + self.large.body.size

    @property
    def largest_whole(self) -> int:
        """As `largest`, with a large body's bytes."""
        return self.largest if self.large is None else self.largest + self.large.body.size

    def messages(self) -> list[Message]:
        """The messages, decoded (some 0.4 µs each).

        Raises:
            msgspec.DecodeError: the body differs from the stored one; storage or wire is damaged.
        """
        return _decoder.decode(self.body)

    def encoded(self) -> list[bytes]:
        """The messages' encodings, byte for byte as they came. Raises: as `messages`."""
        return [bytes(element) for element in _element_decoder.decode(self.body)]

    def stamped(self, stream: str, runs: Iterable[Run]) -> Block:
        """This block with its origin named: `runs` of `stream`, unless it has one already."""
        if self.origins:
            return self
        origins = tuple((stream, first, last) for first, last in runs)
        return replace(self, origins=origins)

    def hopped(self, hops: Hops) -> Block:
        """The same block with these hops."""
        return replace(self, hops=hops)

    def part(self, start: int, stop: int) -> Block:
        """The messages with index in ``[start, stop)``, which must not be empty."""
        if start == 0 and stop == self.count:
            return self
        ids = tuple((index - start, value) for index, value in self.ids if start <= index < stop)
        origins = _cut_origins(self.origins, start, stop)
        hops, queues = (value_runs.cut(self.hops, start, stop), value_runs.cut(self.queues, start, stop))
        return self._chosen(range(start, stop), ids, origins, hops, queues)

    def without(self, indices: Iterable[int]) -> Block | None:
        """This block less the messages at `indices`; None where nothing is left."""
        dropped = set(indices)
        kept = [index for index in range(self.count) if index not in dropped]
        return self.chosen(kept) if kept else None

    def chosen(self, indices: Sequence[int]) -> Block:
        """The messages at `indices`, which ascend, each once; at least one."""
        first, stop = indices[0], indices[-1] + 1
        if stop - first == len(indices):
            return self.part(first, stop)
        origin_of = [
            (stream, position) for stream, first, last in self.origins for position in range(first, last + 1)
        ]
        origins = tuple((*origin_of[index], origin_of[index][1]) for index in indices) if origin_of else ()
        new_index = {old: new for new, old in enumerate(indices)}
        ids = tuple((new_index[index], value) for index, value in self.ids if index in new_index)
        hops, queues = value_runs.chosen(self.hops, indices), value_runs.chosen(self.queues, indices)
        return self._chosen(indices, ids, join_origins(origins), hops, queues)

    def holding(self, messages: Sequence[Message]) -> Block:
        """The same block with these messages in place of its own, one each; IDs, origins and hops stay."""
        encoded = list(map(encode_message, messages))
        return pack(encoded, self.ids, self.origins, self.hops, self.queues, self.large)

    def with_body(self, body: bytes) -> Block:
        """The same block, whose one message has this body, and none beside it."""
        (message,) = self.messages()
        encoded = encode_message(msgspec.structs.replace(message, body=body))
        return pack([encoded], self.ids, self.origins, self.hops, self.queues)

    def for_queues(self, queues: Queues) -> Block:
        """The same block, for these queues."""
        return replace(self, queues=queues)

    def _chosen(
        self,
        indices: Sequence[int],
        ids: tuple[IndexedId, ...],
        origins: tuple[Origin, ...],
        hops: Hops,
        queues: Queues,
    ) -> Block:
        """The messages at `indices`, which ascend."""
        encoded = self.encoded()
        return pack([encoded[index] for index in indices], ids, origins, hops, queues)


class FreshBlock(Block):
    """A block whose messages are not encoded yet. Body, largest and checksum are made when asked for."""

    __slots__ = ("_encoded", "_messages", "_size")

    _encoded: Block | None
    _messages: list[Message]
    _size: int | None

    def __init__(
        self,
        messages: Sequence[Message],
        ids: tuple[IndexedId, ...] = (),
        origins: tuple[Origin, ...] = (),
        hops: Hops = (),
        size: int | None = None,
    ) -> None:
        for name, value in (("count", len(messages)), ("ids", ids), ("origins", origins), ("hops", hops)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "queues", ())
        object.__setattr__(self, "large", None)
        object.__setattr__(self, "_messages", messages if isinstance(messages, list) else list(messages))
        object.__setattr__(self, "_encoded", None)
        object.__setattr__(self, "_size", size)

    @property
    def body(self) -> bytes:
        """As `Block.body`."""
        return self._packed().body

    @property
    def largest(self) -> int:
        """As `Block.largest`."""
        return self._packed().largest

    @property
    def checksum(self) -> int:
        """As `Block.checksum`; only the last message is encoded for it."""
        return zlib.crc32(encode_message(self._messages[-1]))

    @property
    def size(self) -> int:
        """As `Block.size`, without the bytes that the encoding adds to bodies, keys and headers."""
        size = self._size
        if size is None:
            size = sum(map(_content_size, self._messages))
            object.__setattr__(self, "_size", size)
        return size

    def messages(self) -> list[Message]:
        """The messages, as they were handed in."""
        return self._messages

    def encoded(self) -> list[bytes]:
        """As `Block.encoded`."""
        return [encode_message(message) for message in self._messages]

    def stamped(self, stream: str, runs: Iterable[Run]) -> Block:
        """As `Block.stamped`."""
        if self.origins:
            return self
        origins = tuple((stream, first, last) for first, last in runs)
        return FreshBlock(self._messages, self.ids, origins, self.hops, self._size)

    def hopped(self, hops: Hops) -> Block:
        """As `Block.hopped`."""
        return FreshBlock(self._messages, self.ids, self.origins, hops, self._size)

    def holding(self, messages: Sequence[Message]) -> Block:
        """As `Block.holding`."""
        return FreshBlock(messages, self.ids, self.origins, self.hops)

    def _chosen(
        self,
        indices: Sequence[int],
        ids: tuple[IndexedId, ...],
        origins: tuple[Origin, ...],
        hops: Hops,
        queues: Queues,  # noqa: ARG002 - it has none
    ) -> Block:
        return FreshBlock([self._messages[index] for index in indices], ids, origins, hops)

    def _packed(self) -> Block:
        packed = self._encoded
        if packed is None:
            packed = pack(self.encoded(), self.ids, self.origins, self.hops)
            object.__setattr__(self, "_encoded", packed)
        return packed


def _content_size(message: Message) -> int:
    size = len(message.body or b"") + len(message.key or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"")
    return size


def pack(
    encoded: Sequence[bytes],
    ids: tuple[IndexedId, ...] = (),
    origins: tuple[Origin, ...] = (),
    hops: Hops = (),
    queues: Queues = (),
    large: KeptBody | None = None,
) -> Block:
    """A block of messages that `encode_message` made; at least one, and one alone with a `large` body."""
    return Block(
        count=len(encoded),
        body=b"".join((_array(len(encoded)), *encoded)),
        largest=max(map(len, encoded)),
        checksum=zlib.crc32(encoded[-1]),
        ids=ids,
        origins=origins,
        hops=hops,
        queues=queues,
        large=large,
    )


def pack_messages(
    messages: Sequence[Message],
    ids: tuple[IndexedId, ...] = (),
    hops: Hops = (),
    size: int | None = None,
) -> Block:
    """A block of messages that do not come from a journal or a link; at least one.

    They are encoded when the body is asked for: from Kafka to Kafka it never is. `size`: bytes of their
    bodies, keys and headers, where the caller has counted them.
    """
    return FreshBlock(messages, ids, (), hops, size)


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
        hops=_join_hops(blocks),
        queues=_join_queues(blocks),
    )


def _join_hops(blocks: Sequence[Block]) -> Hops:
    if not any(block.hops for block in blocks):
        return ()
    return value_runs.joined(run for block in blocks for run in block.hops or ((block.count, b""),))


def _join_queues(blocks: Sequence[Block]) -> Queues:
    if not any(block.queues for block in blocks):
        return ()
    return value_runs.joined(run for block in blocks for run in block.queues or ((block.count, ()),))


def join_origins(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """The same origins in the fewest runs."""
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
