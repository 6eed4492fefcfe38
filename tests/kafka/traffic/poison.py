"""Sends a record whose header key is not UTF-8, which ordinary producers cannot."""

from __future__ import annotations

import asyncio
import struct

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c_py

#: Kafka's error code for a partition that nobody leads yet.
NOT_LEADER = 6
#: Where a record batch has its CRC, and what it is over.
_CRC, _AFTER_CRC = 17, 21


async def send_poison(bootstrap: str, topic: str, partition: int = 0, key: bytes | None = None) -> None:
    """One record of its own batch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1_700_000_000_000, key, b"poison", [("KEY", b"1")])
    batch = bytearray(bytes(builder.build()).replace(b"KEY", b"\xff\xfe\xfd"))
    struct.pack_into(">I", batch, _CRC, calc_crc32c_py(bytes(batch[_AFTER_CRC:])))
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        request = ProduceRequest(
            transactional_id=None,
            required_acks=-1,
            timeout=10_000,
            topics=[(topic, [(partition, bytes(batch))])],
        )
        leader = client.get_random_node()  # of a cluster of one
        async with asyncio.timeout(10):
            error = NOT_LEADER
            while error == NOT_LEADER:  # the topic has just been made: every producer asks again
                answer = await client.send(leader, request)
                ((_topic, ((_partition, error, *_),)),) = answer.topics
        assert error == 0, error
    finally:
        await client.close()
