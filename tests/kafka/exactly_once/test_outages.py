"""Long outages, topics made anew, and somebody else's open transactions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import confluent_kafka
import pytest

from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S
from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import APART_MS, Form, OpenTransaction, Way, started
from tests.kafka.traffic.traffic import Fate, Record

MakeWay = Callable[..., Way]

PARTITIONS: Final = 3
#: For what `make test` leaves out.
_LONG: Final = pytest.mark.kafka_long
#: Longer than a bridge is frozen.
PATIENT: Final = {"session-timeout-ms": 30_000, "heartbeat-interval-ms": 300}
#: IDs that an address remembers in the test of a long outage.
SMALL_CACHE: Final = 50


def test_an_outage_longer_than_every_memory_but_the_journal_topic(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """Many times what the ID cache holds piles up, and the source forgets the bridge's offsets: it goes on
    exactly where it was."""
    way = make_way(traffic=form.traffic(rng.randrange(2**31), PARTITIONS, repeats=0.0))
    cache = f"[duplicate-detection]\nid-cache-size = {SMALL_CACHE}"
    node = started(make_node("node-1", way.settings(cache)))
    way.feed.send(form.part(4))
    way.await_all()
    assert node.stop() == 0
    way.feed.send(form.part(2))
    assert way.traffic.count > 20 * SMALL_CACHE
    group = f"core-bridge.{way.bridge}.progress"
    admin = way.source.admin()
    admin.delete_consumer_groups([group])[group].result(CALL_TIMEOUT_S)
    way.finish(started(node))


@pytest.mark.parametrize(
    "bridge",
    ["running", "frozen", pytest.param("paused", marks=_LONG), pytest.param("stopped", marks=_LONG)],
)
def test_a_topic_that_was_made_anew_is_relayed_from_its_beginning(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random, bridge: str
) -> None:
    """The new log grows beyond where the old one was read to, so that its name and position prove nothing;
    a bridge that is frozen meanwhile keeps its lanes, and reads on without having seen metadata."""
    way = make_way(PARTITIONS, group=PATIENT)
    new = form.traffic(rng.randrange(2**31), PARTITIONS, started_ms=way.traffic.started_ms + APART_MS)
    node = started(make_node("node-1", way.settings()))
    way.feed.send(form.part(10))
    way.await_all()
    match bridge:
        case "running":
            way.renew(new)
            way.feed.send()
        case "frozen":
            node.pause()
            way.renew(new)
            way.feed.send()
            node.resume()
        case "paused":
            assert node.ops.call("POST", f"/v1/bridges/{way.bridge}/pause").json["state"] == "PAUSED"
            way.renew(new)
            way.feed.send()
            assert node.ops.call("POST", f"/v1/bridges/{way.bridge}/resume").status == 200
        case "stopped":
            assert node.stop() == 0
            way.renew(new)
            way.feed.send()
            node.start()
    way.finish(node)


def next_transaction(way: Way, fate: Fate, size: int) -> list[Record]:
    """The next transaction that ends so; what comes before it is sent."""
    while True:
        records = way.feed.take(size)
        if all(record.fate in (fate, Fate.REPEATED) for record in records):
            return records
        way.feed.send_these(records)


def test_an_open_transaction_at_the_source_holds_back_what_is_behind_it_and_no_more(
    form: Form, make_way: MakeWay, make_node: MakeNode, unique: Callable[[str], str]
) -> None:
    way = make_way(1)
    node = started(make_node("node-1", way.settings()))
    for fate in (Fate.ARRIVES, Fate.ABORTED):
        records = next_transaction(way, fate, form.transaction)
        before = way.expected - sum(record.fate is Fate.ARRIVES for record in records)
        foreign = OpenTransaction(way.source, way.topic, records, unique("foreign"))
        way.feed.send(form.part(4), transactional_id=unique("behind"))
        way.arrivals.await_count(before)
        await_progress(way.source, way.bridge, way.topic)
        assert way.arrivals.look(1) == before, "something was read past the open transaction"
        foreign.end()
        way.await_all()
    way.finish(node)


def test_an_open_transaction_on_the_target_topic_stops_its_readers_and_not_the_bridge(
    form: Form, clusters: Clusters, make_way: MakeWay, make_node: MakeNode, unique: Callable[[str], str]
) -> None:
    way = make_way(PARTITIONS)
    node = started(make_node("node-1", way.settings()))
    way.feed.send(form.part(4))
    way.await_all()
    before = way.arrivals.count
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": clusters.b.bootstrap, "transactional.id": unique("foreign")}
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(way.target_topic, b"foreign", partition=partition)
    producer.flush(CALL_TIMEOUT_S)
    way.feed.send()
    await_progress(way.source, way.bridge, way.topic)
    assert way.arrivals.look(1) == before
    producer.abort_transaction(CALL_TIMEOUT_S)
    way.finish(node)
