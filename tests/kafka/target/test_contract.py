"""The target contract, on a real broker: the suite of `tests.contracts`; what Kafka says otherwise is here.

On Kafka a lane has one producer: a newer opening fences all of the lane, not one stream of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import pytest

from bridge.errors import Fenced
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.ports import Opened, Stream, Target
from dedup.verdict import Verdict
from tests.contracts import test_target as contract
from tests.contracts.test_target import HELD, SMALL, TOO_LARGE, batch, deliver, expected, opened, to
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import Rig, arrived

#: Cases that Kafka answers in words of its own, below.
_OTHERWISE: Final = {
    "test_a_newer_opening_fences_the_older_link_of_that_stream_only",
    "test_without_room_nothing_is_stored_or_remembered_and_nothing_behind_it_is_taken",
    "test_a_message_too_large_is_refused_by_its_position_with_nothing_stored",
}
globals().update(
    {
        name: case
        for name, case in vars(contract).items()
        if name.startswith("test_") and name not in _OTHERWISE
    }
)


class KafkaStore:
    """Topics of one test: the suite's addresses, each with a name that no other test has."""

    def __init__(self, cluster: Reachable, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.rigs: dict[str, Rig] = {}
        #: Addresses whose topics are deleted as soon as they are open.
        self.vanishing: set[str] = set()
        for address in ("orders", "invoices", HELD, "a0"):
            self.make(address)

    def topic(self, address: str) -> str:
        # The suite opens some hundred addresses at once, "a0" and so on: here they share a topic.
        return f"{self.prefix}.{'many' if address[1:].isdigit() else address}"

    def make(self, address: str) -> None:
        self.cluster.create_topic(self.topic(address), config={"max.message.bytes": str(len(TOO_LARGE) - 1)})

    def target(self, bridge: str = contract.BRIDGE) -> Target:
        store = self

        class Renaming(KafkaTarget):
            async def open(self, streams: Sequence[Stream]) -> Opened:
                renamed = [replace(one, target_address=store.topic(one.target_address)) for one in streams]
                answer = await super().open(renamed)
                for address in store.vanishing & {stream.target_address for stream in streams}:
                    await asyncio.to_thread(store.cluster.delete_topic, store.topic(address))
                return answer

        rig = self.rigs.setdefault(
            bridge, Rig(self.cluster, f"{self.prefix}.{bridge}", {"create_topics": False})
        )
        return rig.target(kind=Renaming)

    async def stored(self, address: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        return [
            (record.value, dict(record.headers).get("_AMQ_DUPL_ID"))
            for record in await arrived(self.cluster, self.topic(address))
        ]

    async def fill(self, address: str) -> None:
        """SMALL is not there at all. HELD goes once it has been opened: what is sent to it waits for it."""
        if address == HELD:
            self.vanishing.add(address)

    async def make_room(self, address: str) -> None:
        self.make(address)

    async def cut(self, target: Target) -> None:
        await target.close()


@pytest.fixture
async def store(cluster_a: Reachable, unique: Callable[[str], str]) -> AsyncIterator[KafkaStore]:
    async with AsyncExitStack() as stack:
        made = KafkaStore(cluster_a, unique("contract"))

        async def close() -> None:
            for rig in made.rigs.values():
                await rig.close()

        stack.push_async_callback(close)
        yield made


@pytest.fixture
async def target(store: KafkaStore) -> AsyncIterator[Target]:
    made = store.target()
    yield made
    await made.close()


async def test_without_a_topic_nothing_is_stored_or_remembered_and_nothing_behind_it_is_taken(
    store: KafkaStore, target: Target
) -> None:
    """B20, B23"""
    stream = to(SMALL)
    await opened(target, stream)
    batches = [batch(n, n + 2, stream=stream, runs=runs) for n, runs in ((0, None), (2, None), (4, ()))]
    receipts = await deliver(target, *batches)
    assert [receipt.verdict for receipt in receipts] == [Verdict.NOT_NOW] * 3
    assert receipts[0].reason.startswith("ADDRESS_NOT_FOUND: ")
    assert (await opened(target, stream)).next is None
    await store.make_room(SMALL)
    assert (await opened(target, stream)).next is None
    (receipt,) = await deliver(target, batch(0, 6, stream=stream))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored(SMALL) == expected(*range(6), stream=stream)


async def test_a_message_too_large_is_refused_by_its_position_and_next_says_what_is_stored(
    store: KafkaStore, target: Target
) -> None:
    """A batch that is larger than a first transaction is stored in parts."""
    await opened(target)
    await deliver(target, batch(0, 2))
    (receipt,) = await deliver(target, batch(2, 6, large=4))
    assert (receipt.verdict, receipt.position, receipt.next) == (Verdict.REFUSED, 4, 4)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
    assert await store.stored() == expected(0, 1, 2, 3)
    assert (await opened(target)).next == 4


async def test_a_newer_opening_fences_the_older_link_of_the_lane(store: KafkaStore, target: Target) -> None:
    other = to("invoices")
    await target.open([contract.STREAM, other])
    newer = store.target()
    await opened(newer)
    with pytest.raises(Fenced):
        await deliver(target, batch(0, 1, stream=other))
    with pytest.raises(Fenced):
        await deliver(target, batch(0, 2))
    (receipt,) = await deliver(newer, batch(0, 2))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored() == expected(0, 1)
    assert await store.stored("invoices") == []
    await newer.close()
