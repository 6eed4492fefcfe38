"""A transaction that the brokers left open after its end: the next taker of the lane ends it as it was ended.

A broker that does not verify partitions takes records whose partition the coordinator has never heard of. So
they hang as they do where the coordinator forgot its markers: nobody will ever end them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

import pytest
import structlog.testing
from aiokafka.structs import TopicPartition

from bridge.errors import Fenced, TargetRefused, TargetUnavailable
from bridge.kafka.client import producers
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.transaction_requests import TransactionRequests
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.records import JournalPartition
from bridge.kafka.recovery import hanging
from bridge.kafka.target import transaction
from bridge.kafka.target.target import KafkaTarget, KafkaTargetOptions
from bridge.relay.ports import Stream
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.secured import PASSWORD, USER, allowed
from tests.kafka.target.rig import Rig, batch, deliver, kafka_stream, numbered, opened, values

Unique = Callable[[str], str]
#: Besides, whoever comes by SASL_PLAINTEXT has the rights that it was given, and no others.
UNVERIFIED = {
    "transaction.partition.verification.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
}
#: Reading a journal partition gives up after this long without progress.
STALLED_AFTER_MS = 4_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("kafka-unverified")
    listeners = ("SASL_PLAINTEXT",)
    with Cluster(name="unverified", directory=directory, properties=UNVERIFIED, listeners=listeners) as made:
        yield made


class _Rig(Rig):
    """Its journals do not wait long."""

    def journal(self, connection: KafkaConnection) -> JournalTopic:
        journal = super().journal(connection)
        journal._log._stalled_after_ms = STALLED_AFTER_MS
        return journal


@pytest.fixture
async def bridge(cluster: Cluster, unique: Unique, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(hanging, "SUSPECTED_AFTER_MS", 500)
    made = _Rig(cluster, unique("bridge"))
    yield made
    await made.close()


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def forget(target: KafkaTarget, *, known: Collection[str] = (), commit: bool | None = None) -> None:
    """From here on the coordinator hears of these topics only, and of this end of their transactions."""
    assert target._lane is not None
    producer = target._lane._producer
    manager, sender = producer._txn_manager, producer._sender
    add, end = sender._do_add_partitions_to_txn, sender._do_txn_commit

    async def added(tps: Collection[TopicPartition]) -> None:
        announced = {tp for tp in tps if tp.topic in known}
        for tp in set(tps) - announced:
            manager.partition_added(tp)
        if announced:
            await add(announced)

    async def ended(result: Any) -> None:
        if commit is None:
            manager.complete_transaction()
        else:
            await end(type(result)(1 if commit else 0))

    sender._do_add_partitions_to_txn, sender._do_txn_commit = added, ended
    sender.remember = lambda: vars(sender).update(_do_add_partitions_to_txn=add, _do_txn_commit=end)


def coordinator_starts_anew(target: KafkaTarget) -> None:
    """It hears everything from now on, and by another connection."""
    assert target._lane is not None
    sender = target._lane._producer._sender
    sender.remember()
    sender.session.close()


async def receive(target: KafkaTarget, stream: Stream, first: int, last: int) -> None:
    (receipt,) = await deliver(target, batch(stream, numbered(first, last), from_=first))
    assert receipt.verdict is Verdict.STORED


async def left_open(bridge: Rig, stream: Stream, **how: Any) -> KafkaTarget:
    """A target that has committed messages 0 to 4, and has a receipt for 5 to 9, which hang."""
    before = bridge.target()
    await opened(before, stream)
    await receive(before, stream, 0, 4)
    await before.close()
    target = await settled(bridge, stream, **how)
    await receive(target, stream, 5, 9)
    return target


async def settled(bridge: Rig, *streams: Stream, **how: Any) -> KafkaTarget:
    """A target that forgets from its first transaction on, while no earlier one still gets its markers."""
    first = bridge.target()
    await opened(first, *streams)
    await first.close()
    target = bridge.target()
    await opened(target, *streams)  # waits for them
    forget(target, **how)
    return target


def bodies(count: int) -> list[bytes]:
    return [b"m%d" % n for n in range(count)]


def decisions(logged: list[Any]) -> list[tuple[list[str], str]]:
    return [
        (line["partitions"], line["decision"]) for line in logged if line["event"] == "hanging-transaction"
    ]


async def test_what_hangs_everywhere_is_committed_and_the_lane_goes_on(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("all"))
    await left_open(bridge, stream)
    taker = bridge.target()
    assert (await opened(taker, stream)).next == 10
    assert decisions(logged) == [([f"{stream.address}/0", f"{bridge.journal_topic}/0"], "commit")]
    assert await values(bridge.cluster, stream.address) == bodies(10)
    await receive(taker, stream, 10, 14)
    # And nothing is left to end.
    assert (await opened(bridge.target(), stream)).next == 15
    assert len(decisions(logged)) == 1
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_what_hangs_in_one_of_two_data_partitions_is_committed_as_the_other_was(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    one, two = kafka_stream(unique("one")), kafka_stream(unique("two"))
    target = await settled(bridge, one, two, known=[one.address], commit=True)
    await deliver(target, batch(one, numbered(0, 4)), batch(two, numbered(0, 4)))
    taker = bridge.target()
    assert (await opened(taker, one, two)).next == 5
    assert decisions(logged) == [([f"{two.address}/0", f"{bridge.journal_topic}/0"], "commit")]
    for stream in (one, two):
        await receive(taker, stream, 5, 9)
        assert await values(bridge.cluster, stream.address) == bodies(10)


async def test_a_journal_that_hangs_alone_is_committed_as_the_data_was(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("committed"))
    await left_open(bridge, stream, known=[stream.address], commit=True)
    taker = bridge.target()
    assert (await opened(taker, stream)).next == 10
    assert decisions(logged) == [([f"{bridge.journal_topic}/0"], "commit")]
    await receive(taker, stream, 10, 14)
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_a_journal_that_hangs_alone_is_aborted_as_the_data_was_and_the_source_sends_again(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("aborted"))
    await left_open(bridge, stream, known=[stream.address], commit=False)
    taker = bridge.target()
    assert (await opened(taker, stream)).next == 5
    assert decisions(logged) == [([f"{bridge.journal_topic}/0"], "abort")]
    await receive(taker, stream, 5, 14)
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_a_journal_that_was_not_written_whole_is_aborted(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    """It was never announced to commit: that comes behind the last of the journal's records."""
    one, two = kafka_stream(unique("one")), kafka_stream(unique("two"))
    target = await settled(bridge, one, two)
    monkeypatch.setattr(transaction, "JOURNAL_BATCH_BYTES", 1)  # a record batch each
    whole = transaction.journal_batches
    monkeypatch.setattr(transaction, "journal_batches", lambda *made: whole(*made)[:-1])
    await deliver(target, batch(one, numbered(0, 4)), batch(two, numbered(0, 4)))
    monkeypatch.undo()
    taker = bridge.target()
    assert (await opened(taker, one, two)).next is None
    assert [decision for _, decision in decisions(logged)] == ["abort"]
    for stream in (one, two):
        await receive(taker, stream, 0, 9)
        assert await values(bridge.cluster, stream.address) == bodies(10)


async def test_a_transaction_that_is_open_and_anothers_is_left_alone(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("foreign"))
    target = bridge.target()
    await opened(target, stream)
    await receive(target, stream, 0, 4)
    foreign = await producers.started(KafkaConnection("foreign", bridge.cluster.bootstrap), unique("other"))
    try:
        await foreign.begin_transaction()
        await foreign.send_and_wait(bridge.journal_topic, b"", b"foreign", partition=0)
        taker = bridge.target()
        with pytest.raises(TargetUnavailable, match="another producer"):
            await opened(taker, stream)
        await foreign.commit_transaction()
    finally:
        await producers.discard(foreign)
    assert decisions(logged) == []
    await receive_from(taker, stream, 5)


async def receive_from(target: KafkaTarget, stream: Stream, position: int) -> None:
    assert (await opened(target, stream)).next == position
    await receive(target, stream, position, position + 4)


async def test_what_is_partly_committed_and_partly_aborted_is_left_to_an_operator(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    one, two = kafka_stream(unique("one")), kafka_stream(unique("two"))
    target = await settled(bridge, one, two)
    await deliver(target, batch(one, numbered(0, 4)), batch(two, numbered(0, 4)))
    assert target._lane is not None
    requests = TransactionRequests(target._lane._producer, target._lane._transactional_id)
    await requests.end([(one.address, 0)], commit=True, within_ms=5_000)
    await requests.end([(two.address, 0)], commit=False, within_ms=5_000)
    with pytest.raises(
        TargetRefused, match=r"/0 up to offset 4 committed.*/0 up to offset 4 aborted"
    ) as refused:
        await opened(bridge.target(), one, two)
    assert "kafka-transactions.sh" in refused.value.detail
    assert decisions(logged) == []


async def test_without_the_right_to_read_the_data_the_bridge_says_which_it_needs(
    bridge: Rig, cluster: Cluster, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("rights"))
    await (await left_open(bridge, stream)).close()
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    connection = KafkaConnection("us", cluster.bootstrap_of("SASL_PLAINTEXT"), security=login)
    journal = bridge.journal(connection)
    options = KafkaTargetOptions(bridge=bridge.bridge)
    target = KafkaTarget(connection, journal, 0, options, clock=SystemClock())
    bridge.made.append((target, journal))
    rights = [
        ("topic", bridge.journal_topic, operation) for operation in ("Read", "Write", "DescribeConfigs")
    ]
    rights += [
        ("topic", stream.address, "Write"),
        ("transactional id", f"{bridge.journal_topic}.*", "Write"),
    ]
    with allowed(cluster, *rights):
        with pytest.raises(TargetRefused, match=f"needs the ACL Read on topic {stream.address}"):
            await opened(target, stream)
        assert decisions(logged) == []
        with allowed(cluster, ("topic", stream.address, "Read")):
            assert (await opened(target, stream)).next == 10


async def test_data_in_a_topic_that_was_deleted_since_keeps_nothing_up(
    bridge: Rig, cluster: Cluster, unique: Unique, logged: list[Any]
) -> None:
    one, two = kafka_stream(unique("one")), kafka_stream(unique("two"))
    target = await settled(bridge, one, two)
    await deliver(target, batch(one, numbered(0, 4)), batch(two, numbered(0, 4)))
    await target.close()
    await asyncio.to_thread(cluster.delete_topic, one.address)
    taker = bridge.target()
    assert (await opened(taker, two)).next == 5
    assert decisions(logged) == [([f"{two.address}/0", f"{bridge.journal_topic}/0"], "commit")]
    await receive(taker, two, 5, 9)
    assert await values(bridge.cluster, two.address) == bodies(10)


async def test_data_that_the_journal_does_not_name_is_not_committed_with_the_rest(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("more"))
    target = await left_open(bridge, stream)
    assert target._lane is not None
    producer = target._lane._producer
    await producer.begin_transaction()
    await producer.send_and_wait(stream.address, b"unfinished", partition=0)
    with pytest.raises(TargetRefused, match="more of it than the journal names"):
        await opened(bridge.target(), stream)
    assert decisions(logged) == []


async def test_a_zombie_cannot_end_what_hangs(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("zombie"))
    zombie = await left_open(bridge, stream)
    assert zombie._lane is not None
    name = zombie._lane._transactional_id
    connection = KafkaConnection("there", bridge.cluster.bootstrap)
    taker = await producers.started(connection, name)
    try:
        journal = JournalPartition(bridge.journal_topic, 0)
        with pytest.raises(Fenced):
            await hanging.end_own(connection, zombie._lane._producer, name, journal)
        assert await hanging.end_own(connection, taker, name, journal)
    finally:
        await producers.discard(taker)
    assert (await opened(bridge.target(), stream)).next == 10


async def test_a_process_that_dies_while_it_ends_it_leaves_all_of_it_or_nothing(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kafka_stream(unique("dies"))
    await left_open(bridge, stream)

    async def dies(self: TransactionRequests, add: Any, end: Any) -> None:
        """Between its two requests."""
        node = await self._client.coordinator_lookup(1, self._transactional_id)
        await self._client.send(node, add)
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(TransactionRequests, "_end", dies)
        with pytest.raises(asyncio.CancelledError):
            await opened(bridge.target(), stream)
    taker = bridge.target()
    # Its successor's start has aborted it, data and journal together.
    assert (await opened(taker, stream)).next == 5
    await receive(taker, stream, 5, 14)
    assert await values(bridge.cluster, stream.address) == bodies(15)


def fail_at(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """From here on every transaction fails there."""

    def crash_point(name: str) -> None:
        if name == place:
            raise TargetUnavailable(f"broken at {place}")

    monkeypatch.setattr(transaction, "crash_point", crash_point)


async def test_data_that_hangs_alone_is_aborted_before_the_same_messages_are_written_again(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    """Else the marker of the second attempt would commit the first with it."""
    stream = kafka_stream(unique("doubled"))
    target = await settled(bridge, stream)
    with monkeypatch.context() as patched:
        fail_at(patched, "kafka.after-send")
        with pytest.raises(TargetUnavailable, match="broken"):
            await deliver(target, batch(stream, numbered(0, 4)))
    taker = bridge.target()
    assert (await opened(taker, stream)).next is None
    await receive(taker, stream, 0, 4)
    assert decisions(logged) == [([f"{stream.address}/0"], "abort")]
    await receive(taker, stream, 5, 9)
    assert await values(bridge.cluster, stream.address) == bodies(10)
    assert len(decisions(logged)) == 1


async def test_data_that_hangs_alone_is_committed_where_the_journal_was(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("confirmed"))
    await left_open(bridge, stream, known=[bridge.journal_topic], commit=True)
    taker = bridge.target()
    assert (await opened(taker, stream)).next == 10
    assert decisions(logged) == [([f"{stream.address}/0"], "commit")]
    assert await values(bridge.cluster, stream.address) == bodies(10)
    await receive(taker, stream, 10, 14)
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_committed_data_that_hangs_is_found_before_the_next_mark_takes_the_place_of_the_last(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    one, two = kafka_stream(unique("one")), kafka_stream(unique("two"))
    target = await settled(bridge, one, two, known=[bridge.journal_topic], commit=True)
    await receive(target, one, 0, 4)
    taker = bridge.target()
    await opened(taker, one, two)
    await receive(taker, two, 0, 4)
    third = bridge.target()
    assert (await opened(third, one, two)).next == 5
    await receive(third, one, 5, 9)
    assert decisions(logged) == [([f"{one.address}/0"], "commit")]
    assert await values(bridge.cluster, one.address) == bodies(10)


async def test_data_behind_what_the_last_mark_names_is_not_committed_with_it(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("behind"))
    target = await left_open(bridge, stream, known=[bridge.journal_topic], commit=True)
    assert target._lane is not None
    producer = target._lane._producer
    await producer.begin_transaction()
    await producer.send_and_wait(stream.address, b"unfinished", partition=0)
    with pytest.raises(TargetRefused, match="more of it than the journal names"):
        await opened(bridge.target(), stream)
    assert decisions(logged) == []


async def test_a_coordinator_that_starts_anew_between_transactions_ends_the_session(
    bridge: Rig, unique: Unique, logged: list[Any]
) -> None:
    stream = kafka_stream(unique("between"))
    target = await left_open(bridge, stream, known=[bridge.journal_topic], commit=True)
    coordinator_starts_anew(target)
    await receive(target, stream, 10, 14)
    assert decisions(logged) == [([f"{stream.address}/0"], "commit")]
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_a_transaction_that_begins_as_the_coordinator_starts_anew_takes_no_other_with_it(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    """It fails later. Its abort must not end what hangs there and has been confirmed."""
    stream = kafka_stream(unique("within"))
    target = await left_open(bridge, stream, known=[bridge.journal_topic], commit=True)

    def crash_point(name: str) -> None:
        if name == "kafka.after-begin":
            coordinator_starts_anew(target)
        if name == "kafka.after-send":
            raise TargetUnavailable("broken")

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "crash_point", crash_point)
        with pytest.raises(TargetUnavailable):
            await deliver(target, batch(stream, numbered(10, 14), from_=10))
    taker = bridge.target()
    assert (await opened(taker, stream)).next == 10
    assert await values(bridge.cluster, stream.address) == bodies(10)
    await receive(taker, stream, 10, 14)
    assert decisions(logged) == [([f"{stream.address}/0"], "commit")]
    assert await values(bridge.cluster, stream.address) == bodies(15)


async def test_every_transaction_says_who_takes_part(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("mark"))
    target = bridge.target()
    await opened(target, stream)
    await receive(target, stream, 0, 4)
    consumer = KafkaConnection("there", bridge.cluster.bootstrap).consumer()
    await consumer.start()
    try:
        tp = TopicPartition(bridge.journal_topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        (end,) = (await consumer.end_offsets([tp])).values()
        marks = []
        async with asyncio.timeout(10):
            while await consumer.position(tp) < end:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    marks += [
                        json.loads(value)
                        for record in records
                        for name, value in record.headers
                        if name == "transaction"
                    ]
    finally:
        await consumer.stop()
    assert marks[-1] == [1, [[stream.address, 0, 4]]]
