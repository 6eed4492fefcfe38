"""The suite of every source, run by the Kafka source on a real broker.

Left out is what a Kafka source does otherwise, and has tests of its own for: runs and copies of a journal
(`test_source_starts`, `test_source_leaders`), the size of what is read at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from bridge.kafka.source import lane_reader
from bridge.kafka.source.progress import Kind, Progress
from bridge.kafka.source.source import KafkaSource
from bridge.messages.batch import Batch
from bridge.relay.ports import Stream
from bridge.runtime.clock import SystemClock
from tests.contracts.test_source import (  # noqa: F401 - collected here
    test_a_position_beyond_the_end_is_a_gap_with_both_numbers,
    test_a_reading_that_is_given_up_disturbs_nobody,
    test_a_reading_that_is_given_up_takes_nothing_with_it,
    test_a_stream_that_backs_off_is_read_no_more_until_it_is_opened_again,
    test_a_stream_with_a_backlog_does_not_keep_others_waiting,
    test_closed_and_opened_again_it_goes_on,
    test_coverage_alone_is_settled_too,
    test_everything_is_read_in_order_at_its_exact_positions,
    test_everything_may_have_been_settled_by_the_targets_word_alone,
    test_however_many_streams_there_are_all_of_them_are_read,
    test_it_resumes_exactly_where_the_target_says_also_within_what_was_stored_together,
    test_messages_say_where_they_were_first_stored_and_the_same_again_when_read_again,
    test_new_streams_show_as_an_empty_reading_until_they_are_opened,
    test_nothing_is_remembered_of_a_bridge_that_never_had_a_receipt,
    test_opened_again_it_reads_again_what_is_not_settled,
    test_positions_are_exact_where_several_addresses_share_the_sequence,
    test_streams_have_the_same_identity_after_a_restart,
    test_what_is_settled_is_gone_and_remembered_with_the_store_that_has_it,
    test_what_the_target_has_beyond_the_last_receipt_is_settled_at_opening,
    test_what_was_read_and_not_settled_stays_in_order,
)
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source.rig import Rig, produce, rigged

#: Of the sources here: some seven messages.
BATCH_BYTES = 500


class _Named(KafkaSource):
    """Topics go by the names of the suite, and the start of a stream never seen is not shown."""

    prefix = ""

    async def streams(self) -> Sequence[Stream]:
        found = await super().streams()
        return [replace(stream, address=stream.address.removeprefix(self.prefix)) for stream in found]

    async def read(self) -> Sequence[Batch]:
        while batches := await super().read():
            if rest := [batch for batch in batches if batch.from_ < batch.upto]:
                return rest
        return []


class KafkaOrigin:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.prefix = f"{rig.bridge}."
        self.ends: dict[str, int] = {}
        self._make("orders")

    def _make(self, address: str) -> None:
        self.rig.cluster.create_topic(self.prefix + address)
        self.ends[address] = 0

    async def put(self, address: str, bodies: Sequence[bytes]) -> list[int]:
        if address not in self.ends:
            self._make(address)
        offsets = produce(self.rig.cluster, self.prefix + address, bodies)
        self.ends[address] += len(bodies)
        return offsets

    def source(self) -> KafkaSource:
        made = self.rig.source(
            kind=_Named,
            selects=lambda topic: topic.startswith(self.prefix),
            batch_bytes=BATCH_BYTES,
        )
        assert isinstance(made, _Named)
        made.prefix = self.prefix
        return made

    async def restart(self) -> None:
        """A source has nothing that outlives it but what it has committed."""

    async def backlog(self, address: str) -> int:
        progress = Progress(self.rig.connection, self.rig.group, SystemClock())
        try:
            marks = await progress.marks()
        finally:
            await progress.close()
        found = [mark for tp, mark in marks.items() if tp.topic == self.prefix + address]
        assert all(mark.kind is Kind.SETTLED for mark in found)
        return self.ends[address] - sum(mark.offset for mark in found)


@pytest.fixture
async def origin(
    cluster_a: Reachable, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KafkaOrigin]:
    monkeypatch.setattr(lane_reader, "METADATA_INTERVAL_MS", 500)
    async with rigged(cluster_a, unique("bridge")) as rig:
        yield KafkaOrigin(rig)
