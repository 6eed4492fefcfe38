"""Records with headers whose names are no text: read as aiokafka reads all others."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException, NodeNotReadyError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c_py
from aiokafka.structs import TopicPartition

from dedup.reconcile.audit import loose_records

TP: Final = TopicPartition("orders", 0)
#: What stands in a batch for a name that is no text, of the same length.
PLACEHOLDER: Final = "POISON"
POISON: Final = b"\xff\xfePOI\xfd"
#: As aiokafka numbers them.
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
Headers = Sequence[tuple[str, bytes | None]]


def batch(
    base: int, records: Sequence[Headers], *, producer: int = -1, codec: str = "none", control: bool = False
) -> bytes:
    """A batch of records with these headers at offsets from `base` on."""
    transactional = int(producer >= 0)
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], transactional, producer, 0, -1, 1 << 20)
    for index, headers in enumerate(records):
        value = None if index % 2 else b"x" * 300
        assert builder.append(index, 1_700_000_000_000 + index, b"key", value, list(headers))
    return signed(bytes(builder.build()), base, control=control)


def signed(data: bytes, base: int, *, control: bool = False) -> bytes:
    """The batch at this offset and with its placeholders made poison, with the checksum of what it is now."""
    made = bytearray(data.replace(PLACEHOLDER.encode(), POISON))
    struct.pack_into(">q", made, 0, base)
    if control:
        made[22] |= 0x20
    struct.pack_into(">I", made, 17, calc_crc32c_py(bytes(made[21:])))
    return bytes(made)


def marker(base: int, producer: int) -> bytes:
    """The end of an aborted transaction."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, producer, 0, -1, 1 << 20)
    assert builder.append(0, 1_700_000_000_000, struct.pack(">hh", 0, 0), b"\0" * 6, [])
    return signed(bytes(builder.build()), base, control=True)


def loosely(
    data: bytes, offset: int = 0, aborted: Sequence[tuple[int, int]] = ()
) -> tuple[list[tuple[int, list[tuple[str, bytes | None]]]], int]:
    """Offsets and headers, and where the next fetch begins."""
    found, behind = loose_records.read(TP, data, aborted, offset)
    return [(one.offset, list(one.headers)) for one in found], behind


def strictly(data: bytes, offset: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Any:
    """As `loosely`, by aiokafka alone."""
    made = PartitionRecords(TP, MemoryRecords(data), list(aborted), offset, None, None, True, READ_COMMITTED)
    return [(one.offset, list(one.headers)) for one in made], made.next_fetch_offset


def test_names_that_are_no_text_are_written_with_backslashes_and_all_else_is_kept() -> None:
    ours = ("_AMQ_DUPL_ID", b"order-\xff")
    data = batch(7, [[(PLACEHOLDER, b"1"), ours, ("trace", None)], []])
    with pytest.raises((UnicodeDecodeError, CorruptRecordException)):
        strictly(data, 7)
    assert loosely(data, 7) == ([(7, [("\\xff\\xfePOI\\xfd", b"1"), ours, ("trace", None)]), (8, [])], 9)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_aiokafka_can_decode_is_read_the_same(codec: str) -> None:
    many = [[("name", b"v" * (index % 200)), ("ümlaut", None)][: index % 3] for index in range(500)]
    aborted = [(4, 510)]
    data = b"".join([
        batch(0, many, codec=codec),
        batch(510, many[:3], producer=4, codec=codec),  # aborted
        batch(513, many[:2], producer=5, codec=codec),
        marker(515, 4),
        batch(516, many[:9], producer=4, codec=codec),
        batch(600, many)[:-1],  # cut off by the size of the fetch
    ])  # fmt: skip
    for offset in (0, 250, 512, 515, 520):
        expected = strictly(data, offset, aborted)
        assert loosely(data, offset, aborted) == expected, f"from offset {offset}"
        assert expected[1] == 525, expected[1]


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_every_compression_is_known(codec: str) -> None:
    data = batch(3, [[("name", b"value")]] * 4, codec=codec)
    assert loosely(data, 3) == strictly(data, 3)
    assert len(loosely(data, 3)[0]) == 4


def test_aborted_poison_is_no_record() -> None:
    data = batch(0, [[(PLACEHOLDER, b"1")]], producer=4) + marker(1, 4) + batch(2, [[(PLACEHOLDER, b"2")]])
    assert loosely(data, 0, [(4, 0)]) == ([(2, [("\\xff\\xfePOI\\xfd", b"2")])], 3)


def test_batches_of_before_headers_are_read_too() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, 1_700_000_000_000, None, b"old")
    old = bytes(builder.build())
    assert loosely(old + batch(1, [[(PLACEHOLDER, None)]])) == (
        [(0, []), (1, [("\\xff\\xfePOI\\xfd", None)])],
        2,
    )


def test_a_damaged_batch_is_said_to_be() -> None:
    whole = bytearray(batch(0, [[(PLACEHOLDER, b"1")]]))
    whole[-1] ^= 1
    with pytest.raises(CorruptRecordException, match="Invalid CRC"):
        loosely(bytes(whole))


@pytest.mark.parametrize(
    ("at", "there"),
    [(57, b"\0\0\0\2"), (61, b"\x01"), (61, b"\x7e"), (65, b"\x7e"), (-2, b"\x80\x80"), (-2, b"\x7e")],
    ids=["more records", "negative length", "longer", "long key", "open number", "long value"],
)
def test_a_record_of_another_structure_is_said_to_be_damaged(at: int, there: bytes) -> None:
    """Its checksum is right: whoever wrote it wrote it so."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1_700_000_000_000, b"key", None, [(PLACEHOLDER, b"1")])
    made = bytearray(builder.build())
    at %= len(made)
    made[at : at + len(there)] = there
    with pytest.raises(CorruptRecordException, match="another structure"):
        loosely(signed(bytes(made), 0))


class Client:
    """One that a leader answers, with these bytes or this error."""

    def __init__(self, data: bytes = b"", *, leader: int | None = 1, error: int | Exception = 0) -> None:
        self.cluster = SimpleNamespace(leader_for_partition=lambda _tp: leader)
        self._data = data
        self._error = error

    async def send(self, _leader: int, _request: object) -> object:
        if isinstance(self._error, Exception):
            raise self._error
        return SimpleNamespace(topics=[("orders", [(0, self._error, 10, 10, 0, None, -1, self._data)])])


async def fetched(client: Client) -> tuple[list[int], int]:
    """Offsets, and where the next fetch begins."""
    found, behind = await loose_records.fetch(client, TP, 7, max_bytes=1_000, max_wait_ms=1)
    return [one.offset for one in found], behind


async def test_what_a_leader_sends_is_read() -> None:
    assert await fetched(Client(batch(7, [[(PLACEHOLDER, b"1")]]))) == ([7], 8)
    assert await fetched(Client()) == ([], 7)


@pytest.mark.parametrize(
    "client",
    [Client(leader=None), Client(leader=-1), Client(error=6), Client(error=NodeNotReadyError())],
    ids=["no leader known", "no leader", "moved", "away"],
)
async def test_where_no_leader_answers_nothing_comes(client: Client) -> None:
    """The consumer, which asks again, finds out what it is."""
    assert await fetched(client) == ([], 7)
