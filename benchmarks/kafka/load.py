"""Load on real clusters, in processes of its own: a backlog, messages at a steady rate, and their latency.

``python -m benchmarks.kafka.load backlog HOST:PORT TOPIC COUNT`` prints messages/s of raw producing;
``... steady SOURCE TARGET TOPIC RATE SECONDS`` prints latency percentiles in ms from producing at the source
to reading, read_committed, at the target.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

MESSAGE_BYTES = 1024
PARTITIONS = 4
#: The first bytes of a message at a steady rate: the time of its production, ns.
STAMP_BYTES = 20
#: Longest that brokers may take to answer one question about offsets, and to have an answer, seconds.
ASK_TIMEOUT_S = 5.0
SETTLED_TIMEOUT_S = 30.0
#: Pause between two questions, seconds.
ASK_AGAIN_S = 0.02


def make_topic(brokers: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Make the topic, and wait until it exists."""
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()


class Ends:
    """The end offsets of topics, asked of the brokers each time.

    Not by a consumer's `get_watermark_offsets`: librdkafka keeps in mind that a topic was not there, and a
    client that asks often never hears that it has been made since.
    """

    def __init__(self, brokers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": brokers})

    def of(self, topic: str, partitions: int = PARTITIONS) -> list[int] | None:
        """The high watermark of each partition; None: there is no topic, or its leaders do not answer."""
        found = self._admin.list_topics(timeout=ASK_TIMEOUT_S).topics.get(topic)
        if found is None or found.error is not None or len(found.partitions) < partitions:
            return None
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        try:
            answers = self._admin.list_offsets(asked, request_timeout=ASK_TIMEOUT_S)
            return [answers[place].result(ASK_TIMEOUT_S).offset for place in asked]
        except KafkaException:
            return None

    def settled(self, topic: str) -> list[int]:
        """The high watermarks of an existing topic; waits until the leaders answer."""
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while time.monotonic() < deadline:
            ends = self.of(topic)
            if ends is not None:
                return ends
            time.sleep(ASK_AGAIN_S)
        raise SystemExit(f"nobody says where topic {topic} ends, for {SETTLED_TIMEOUT_S:g} s")


def backlog(brokers: str, topic: str, count: int) -> dict[str, Any]:
    """Produce `count` messages as fast as one producer can: idempotent, acks=all, 1 MB batches."""
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    body = os.urandom(MESSAGE_BYTES)
    failed: list[KafkaError] = []
    done = _noting(failed)
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, body, partition=number % PARTITIONS, on_delivery=done)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - began
    if failed:
        raise SystemExit(f"{len(failed)} messages were not produced: {failed[0]}")
    return {"messages/s": count / seconds, "seconds": seconds}


def _noting(failed: list[KafkaError]) -> Callable[[KafkaError | None, Any], None]:
    """For `on_delivery`: keeps the errors of messages that were not produced."""

    def done(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    return done


def steady(
    source: str, target: str, topic: str, rate: int, seconds: int, target_topic: str
) -> dict[str, Any]:
    """Latency at `rate` messages a second, after a warm-up of a fifth of the time."""
    total = rate * seconds
    latencies: list[float] = []
    failed: list[KafkaError] = []
    done = _noting(failed)
    consumer = Consumer(
        {
            "bootstrap.servers": target,
            "group.id": f"bench-{os.getpid()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    ends = Ends(target).settled(target_topic)
    consumer.assign([TopicPartition(target_topic, partition, end) for partition, end in enumerate(ends)])

    def produce() -> None:
        producer = Producer({"bootstrap.servers": source, "acks": "all", "linger.ms": 1})
        filler = b"x" * (MESSAGE_BYTES - STAMP_BYTES)
        began = time.perf_counter()
        for number in range(total):
            ahead = began + number / rate - time.perf_counter()
            if ahead > 0.001:
                producer.poll(0)
                time.sleep(ahead)
            stamp = f"{time.time_ns():0{STAMP_BYTES}d}".encode()
            producer.produce(topic, stamp + filler, partition=number % PARTITIONS, on_delivery=done)
        producer.flush()

    thread = threading.Thread(target=produce)
    thread.start()
    seen = 0
    deadline = time.monotonic() + seconds + 60
    while seen < total and time.monotonic() < deadline:
        # One by one: `consume(500, timeout=0.1)` waits up to 100 ms for more, and that would be measured too.
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen += 1
            if seen > total // 5:
                latencies.append((time.time_ns() - int(message.value()[:STAMP_BYTES])) / 1e6)
    thread.join()
    consumer.close()
    if seen < total:
        raise SystemExit(
            f"only {seen} of {total} messages arrived; {len(failed)} were not produced; {target_topic} ended"
            f" at {ends} before and ends at {Ends(target).of(target_topic)} now, {topic} at"
            f" {Ends(source).of(topic)}"
        )
    latencies.sort()
    return {
        f"p{share}": latencies[min(len(latencies) - 1, int(len(latencies) * share / 100))]
        for share in (50, 90, 99)
    }


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "backlog":
        print(json.dumps(backlog(arguments[0], arguments[1], int(arguments[2]))))
    else:
        a, b, name, each_second, how_long, at_target = arguments
        print(json.dumps(steady(a, b, name, int(each_second), int(how_long), at_target)))
