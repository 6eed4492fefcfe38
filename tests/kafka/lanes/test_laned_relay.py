"""Bridges in lanes over real groups: what operations show while workers and brokers come and go.

The groups are real, the ends of each lane are not: what lanes relay is tested where their ends are.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from bridge.kafka.lanes.groups import JournalTopicOwnership
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.lanes import STANDBY, LanedRelay
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import VirtualClock
from tests.harness.eventually import until
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.lanes.members import LONGEST_S, MOVED_WITHIN_S
from tests.kafka.lanes.worker import connection

LANES = 4


class Workers:
    """Workers of one bridge, each as a `LanedRelay`, on journals and a store that outlive them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.group = f"core-bridge.relays-{uuid.uuid4().hex[:12]}"
        self.store = FakeStore()
        self.journals = [FakeJournal(f"incarnation-{lane}") for lane in range(LANES)]
        for journal in self.journals:
            journal.make("orders")
        self.running: list[LanedRelay] = []

    async def start(self) -> LanedRelay:
        options = RelayOptions("us-to-eu", backoff=Backoff(200, 1.0, 200))
        ownership = JournalTopicOwnership(
            connection(self.bootstrap), group=self.group, topic=f"{self.group}.journal", lanes=LANES
        )
        worker = LanedRelay(options, ownership, lambda lane: self._relay(options, lane))
        self.running.append(worker)
        await worker.command(Command.START)
        await until(lambda: worker.state is State.RUNNING, "it relays", LONGEST_S)
        return worker

    def _relay(self, options: RelayOptions, lane: int) -> Relay:
        source = FakeSource(self.journals[lane], f"us-to-eu-{lane}")
        target = FakeTarget(self.store, f"us-to-eu-{lane}")
        return Relay(options, LaneEnds(source, target), clock=VirtualClock())

    async def put(self, body: bytes) -> None:
        """A message in every lane; returns when all have arrived."""
        before = len(self.store.bodies("orders"))
        for journal in self.journals:
            journal.put("orders", Message(body))
        await until(lambda: len(self.store.bodies("orders")) == before + LANES, "all have arrived", LONGEST_S)

    async def close(self) -> None:
        await asyncio.gather(*[worker.command(Command.STOP) for worker in self.running])


@pytest_asyncio.fixture
async def workers(cluster_a: Reachable) -> AsyncIterator[Workers]:
    made = Workers(cluster_a.bootstrap)
    yield made
    await made.close()


def lanes(*workers: LanedRelay) -> list[int]:
    return sorted(lane for worker in workers for lane in worker.lanes)


async def test_lanes_relay_on_in_another_worker_within_3_s_of_a_clean_stop(workers: Workers) -> None:
    first, second = await workers.start(), await workers.start()
    await until(
        lambda: lanes(first, second) == [*range(LANES)] and len(first.lanes) == len(second.lanes),
        "the lanes are shared",
        LONGEST_S,
    )
    await workers.put(b"one")
    stayed = dict(second.lanes)
    await first.command(Command.STOP)
    stopped = asyncio.get_running_loop().time()
    await until(
        lambda: lanes(second) == [*range(LANES)] and second.state is State.RUNNING,
        "the second has all lanes",
        LONGEST_S,
    )
    assert asyncio.get_running_loop().time() - stopped < MOVED_WITHIN_S
    assert all(second.lanes[lane] is relay for lane, relay in stayed.items())
    await workers.put(b"two")
    assert workers.store.bodies("orders").count(b"two") == LANES


async def test_more_workers_than_lanes_stand_by(workers: Workers) -> None:
    started = [await workers.start() for _ in range(LANES + 1)]
    await until(lambda: lanes(*started) == [*range(LANES)], "every lane has an owner", LONGEST_S)
    (standby,) = [worker for worker in started if not worker.lanes]
    assert (standby.state, standby.counts.trouble) == (State.RUNNING, STANDBY)
    owner = next(worker for worker in started if worker.lanes)
    await owner.command(Command.STOP)
    await until(lambda: len(standby.lanes) == 1, "the standby has a lane", LONGEST_S)


async def test_a_paused_workers_lanes_do_not_move(workers: Workers) -> None:
    first, second = await workers.start(), await workers.start()
    await until(lambda: lanes(first, second) == [*range(LANES)], "every lane has an owner", LONGEST_S)
    mine, others = list(first.lanes), list(second.lanes)
    await first.command(Command.PAUSE)
    with pytest.raises(AssertionError, match="lanes move"):  # where a stopped one's would have moved
        await until(lambda: list(second.lanes) != others, "lanes move", within_s=1.5)
    assert (first.state, list(first.lanes)) == (State.PAUSED, mine)
    await first.command(Command.RESUME)
    await until(lambda: first.state is State.RUNNING, "the first relays again", LONGEST_S)
    await workers.put(b"after")


async def test_workers_recover_by_themselves_from_a_broker_that_was_away_longer_than_a_session(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    workers = Workers(cluster.bootstrap)
    try:
        first, second = await workers.start(), await workers.start()
        await until(lambda: lanes(first, second) == [*range(LANES)], "every lane has an owner", LONGEST_S)
        await asyncio.to_thread(cluster.broker(1).kill)
        await until(
            lambda: first.state is State.CONNECTING and second.state is State.CONNECTING,
            "both are connecting",
            LONGEST_S,
        )
        assert lanes(first, second) == []
        assert workers.group in first.counts.trouble
        await asyncio.to_thread(cluster.restart)
        await until(
            lambda: lanes(first, second) == [*range(LANES)] and first.state is State.RUNNING,
            "every lane has an owner again",
            LONGEST_S,
        )
        await until(lambda: second.state is State.RUNNING, "the second relays", LONGEST_S)
        assert first.counts.reconnects == 1
        await workers.put(b"after")
    finally:
        await workers.close()
