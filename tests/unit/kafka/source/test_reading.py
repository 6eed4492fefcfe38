"""A consumer that is replaced: aiokafka asks the brokers that it knows for new addresses, and no others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from structlog.testing import capture_logs

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.source.consumer import Reading

ORDERS = TopicPartition("orders", 0)


class Consumer:
    """aiokafka's, which knows one broker, where it found it at its start."""

    def __init__(self, address: tuple[str, int]) -> None:
        broker = SimpleNamespace(nodeId=1, host=address[0], port=address[1])
        self._client = SimpleNamespace(cluster=SimpleNamespace(brokers=lambda: [broker]))
        self.stopped = False

    def assign(self, tps: Collection[TopicPartition]) -> None: ...

    def seek(self, tp: TopicPartition, at: int) -> None: ...

    async def stop(self) -> None:
        self.stopped = True


class Cluster:
    """One broker, which may move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = ("here", 9092)
        self.started: list[Consumer] = []
        monkeypatch.setattr(KafkaConnection, "started_consumer", self._start)
        self.reading = Reading(KafkaConnection("eu", "here:9092"), 1024, addresses=self._addresses)

    async def _start(self, **_options: Any) -> Consumer:
        self.started.append(Consumer(self.address))
        return self.started[-1]

    def _addresses(self) -> Mapping[int, tuple[str, int]]:
        return {1: self.address}


async def test_a_consumer_stays_while_a_broker_is_where_it_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    await cluster.reading.assign({ORDERS: 0})
    await cluster.reading.assign({ORDERS: 7})
    await cluster.reading.heal({ORDERS})
    assert len(cluster.started) == 1
    await cluster.reading.close()


async def test_a_consumer_whose_brokers_have_other_addresses_is_replaced_when_streams_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    await cluster.reading.assign({ORDERS: 0})
    cluster.address = ("elsewhere", 9092)
    await cluster.reading.assign({ORDERS: 0})
    assert [one.stopped for one in cluster.started] == [True, False]
    await cluster.reading.close()


async def test_a_consumer_whose_brokers_have_other_addresses_is_replaced_while_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    await cluster.reading.assign({ORDERS: 0})
    cluster.address = ("here", 9093)
    with capture_logs() as logs:
        await cluster.reading.heal({ORDERS})
    assert [one.stopped for one in cluster.started] == [True, False]
    (event,) = logs
    assert (event["event"], event["reason"]) == ("consumer-replaced", "the brokers have other addresses")
    await cluster.reading.close()
