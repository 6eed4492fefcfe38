"""Chooses the partition of the target topic for a message (design section 5, 'Keys'). Pure.

A message with a key goes to the partition that Java's client chooses: murmur2, as in
``org.apache.kafka.common.utils.Utils`` and ``BuiltInPartitioner.partitionForKey``. All messages of a stream
without a key go to one partition, so that their order is kept.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from bridge.kafka.records.identity import partition_of

#: Keys whose hash is remembered, and their length: hashing 16 bytes takes 2 µs here, and keys repeat. Both
#: bound the memory that they take.
REMEMBERED_KEYS: Final = 65_536
REMEMBERED_KEY_BYTES: Final = 128

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of `data` as Java's client computes it, as an unsigned 32-bit number."""
    length = len(data)
    whole = length & ~3
    found = (_SEED ^ length) & _MASK
    for word in struct.unpack_from(f"<{whole >> 2}I", data):
        mixed = word * _FACTOR & _MASK
        mixed = (mixed ^ mixed >> 24) * _FACTOR & _MASK
        found = (found * _FACTOR & _MASK) ^ mixed
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    found = (found ^ found >> 13) * _FACTOR & _MASK
    return found ^ found >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of `key`, in a topic of so many partitions, that Java's client chooses."""
    if len(key) <= REMEMBERED_KEY_BYTES:
        return _remembered(key, partitions)
    return _partition(key, partitions)


def _partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


_remembered = lru_cache(maxsize=REMEMBERED_KEYS)(_partition)


def partition_without_key(stream: str, partitions: int) -> int:
    """The partition of a stream's messages without a key: source partition mod `partitions`, or by CRC-32."""
    source = partition_of(stream)
    return (zlib.crc32(stream.encode()) if source is None else source) % partitions


def partitioned(keys: Sequence[bytes | None], stream: str, partitions: int) -> dict[int, list[int]]:
    """By target partition, the indices of the messages that go there, in order; `keys` are theirs."""
    keyless = partition_without_key(stream, partitions)
    found: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        partition = keyless if key is None else partition_for_key(key, partitions)
        found.setdefault(partition, []).append(index)
    return found
