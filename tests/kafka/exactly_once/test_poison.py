"""Records that cannot go through, in the middle of traffic: each is set aside alone, with a dead letter."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from tests.harness.node import MakeNode
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S
from tests.kafka.exactly_once.rig import Form, Way, started
from tests.kafka.traffic.checker import Kind, read
from tests.kafka.traffic.poison import send_poison

MakeWay = Callable[..., Way]
Unique = Callable[[str], str]

PARTITIONS: Final = 3
#: What the target takes, and what one record has; bytes.
LIMIT: Final = 20_000
TOO_LARGE: Final = 30_000
DAY_MS: Final = 86_400_000
#: The source takes any timestamp, the target Kafka's default: an hour.
ANY_TIME: Final = {"message.timestamp.after.max.ms": str(100 * DAY_MS)}


def send_one(way: Way, partition: int, value: bytes, timestamp: int) -> None:
    """A record that is none of the traffic's."""
    producer = way.source.producer()
    producer.produce(way.topic, value, b"strange", partition, timestamp=timestamp)
    assert producer.flush(CALL_TIMEOUT_S) == 0


def test_a_record_that_the_target_does_not_take_goes_alone(
    form: Form, make_way: MakeWay, make_node: MakeNode, unique: Unique, rng: random.Random
) -> None:
    traffic = form.traffic(rng.randrange(2**31), PARTITIONS)
    limit = {"max.message.bytes": str(LIMIT)}
    way = make_way(traffic=traffic, source_config=ANY_TIME, target_config=limit)
    letters = unique("letters")
    now_ms = int(time.time() * 1000)
    way.feed.send(form.part(3))
    send_one(way, 0, b"x" * TOO_LARGE, traffic.started_ms - DAY_MS)
    way.feed.send(form.part(3))
    send_one(way, 1, b"tomorrow", now_ms + DAY_MS)
    # While one partition is held up the others go on: what they bring must not use up the topic's window.
    cache = f"[duplicate-detection]\nid-cache-size = {form.messages}"
    node = started(make_node("node-1", way.settings(cache, dead_letter_address=letters)))
    way.finish(node)
    found = {one.value: dict(one.headers) for one in read(way.target, letters)}
    assert set(found) == {b"x" * TOO_LARGE, b"tomorrow"}
    for partition, (body, rule) in enumerate(
        [(b"x" * TOO_LARGE, b"MESSAGE_TOO_LARGE"), (b"tomorrow", b"INVALID_TIMESTAMP")]
    ):
        headers = found[body]
        assert rule in (headers["core-bridge-reason"] or b""), headers
        assert headers["core-bridge-address"] == way.topic.encode()
        assert (headers["core-bridge-stream"] or b"").endswith(b":%d" % partition)


def test_a_record_that_cannot_be_decoded_parks_its_partition_and_no_other(
    form: Form, make_way: MakeWay, make_node: MakeNode
) -> None:
    """What is behind it waits for a person; what is before it, and all other partitions, arrive."""
    way = make_way(PARTITIONS)
    way.feed.send(form.part(2))
    before = sum(
        record.partition == 0 for index, record in enumerate(way.traffic.records()) if index < form.part(2)
    )
    asyncio.run(send_poison(way.source.bootstrap, way.topic))
    node = started(make_node("node-1", way.settings()))
    parked = node.event("partition-parked")
    assert (parked["topic"], parked["partition"]) == (way.topic, 0)
    way.feed.send()
    kept = sum(
        record.fate == 0 and (record.partition != 0 or record.number < before)
        for record in way.traffic.records()
    )
    way.arrivals.await_count(kept)
    assert node.stop() == 0
    report = way.report()
    lost = [fault.number for fault in report.faults]
    assert set(report.counts) == {Kind.LOST}, report
    assert (report.read, min(lost) >= before) == (kept, True), report
