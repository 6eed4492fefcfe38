"""Where messages go: as Java's client decides for keys."""

from __future__ import annotations

import zlib

import pytest
from aiokafka.partitioner import murmur2 as aiokafkas
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.records.partitioner import murmur2, partition_for_key, partition_without_key, partitioned


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_java(data: bytes, expected: int) -> None:
    """The vectors of ``org.apache.kafka.common.utils.UtilsTest.testMurmur2``."""
    assert murmur2(data) == expected % 2**32


@given(st.binary(max_size=70))
def test_murmur2_is_that_of_another_implementation(data: bytes) -> None:
    assert murmur2(data) == aiokafkas(data)


@given(st.binary(max_size=20), st.integers(1, 100))
def test_a_key_goes_to_one_partition_that_there_is(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (aiokafkas(key) & 0x7FFFFFFF) % partitions


def test_without_a_key_a_source_partition_stays_together() -> None:
    assert [partition_without_key(f"kafka:c:t:{number}", 3) for number in range(5)] == [0, 1, 2, 0, 1]


def test_without_a_key_a_journal_stream_stays_together() -> None:
    identity = "journal:i:orders:0"
    assert partition_without_key(identity, 7) == zlib.crc32(identity.encode()) % 7


def test_messages_are_dealt_out_in_order() -> None:
    keys = [b"a", None, b"b", b"a", None, b"b"]
    dealt = partitioned(keys, "kafka:c:t:1", 4)
    assert sorted(index for indices in dealt.values() for index in indices) == list(range(6))
    for partition, indices in dealt.items():
        assert indices == sorted(indices)
        for index in indices:
            key = keys[index]
            assert partition == (1 if key is None else partition_for_key(key, 4))
