"""Stores record batches without a transaction: the data, and once it is acknowledged the target's state.

For bridges with ``use-duplicate-detection = false``. Where the process dies in between, the next taker of the
lane finds the state from before, and the data is sent again: what was in doubt may be there twice. Nothing is
lost, because no state is written before the data that it covers is stored.

The producer has the lane's transactional id, and its epoch (`bridge.kafka.client.producers`): a partition
takes nothing of an older owner of the lane once the present one has written there. Where the coordinator has
forgotten the id (``transactional.id.expiration.ms``, 7 days) the last step of an older owner may be doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import aiokafka

from bridge.kafka.client import producers
from bridge.kafka.journal_topic.records import JournalPartition, Record
from bridge.kafka.records.record_batches import Offsets, RecordBatches
from bridge.kafka.target.transaction import Acknowledged, Until, end_of, journal_batches, send_all
from bridge.runtime.fault_injection import crash_point


async def store(
    producer: aiokafka.AIOKafkaProducer,
    batches: RecordBatches,
    journal: JournalPartition,
    records: Callable[[Offsets], Iterable[Record]],
    acknowledged: Acknowledged,
    expected_ms: float = 0.0,
) -> int:
    """Store the data, then the state; both are durable on return. Returns the journal partition's new end.

    Args:
        producer: made by `producers.leave_transactions`.
        batches: the data.
        journal: the partition for the state.
        records: makes the journal's records once the data's offsets are known.
        acknowledged: called with each record batch that is stored, also where others fail.
        expected_ms: as of `Until`.

    Raises:
        JournalReplaced: the topic was deleted and made again.
        BatchesRefused: the brokers refuse some; the producer can go on with others.
        SendFailed: discard the producer; whether the rest was stored is unknown.
    """
    await producers.throttle(producer).over()
    until = Until(producer, expected_ms)
    offsets = await send_all(producer, list(batches.by_partition.values()), until, acknowledged=acknowledged)
    crash_point("kafka.after-send")
    of_journal = journal_batches(producer, journal, list(records(offsets)), [])
    written = await send_all(producer, [of_journal], until)
    crash_point("kafka.after-journal")
    return end_of(written, journal, markers=0)
