"""Gaps, dead letters and loops at Kafka ends."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import (
    Record,
    delete_before,
    plain,
    read,
    send,
    values,
    with_id,
)
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode
from tests.kafka.bridges import PATIENCE_S, await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.reachable import SILENT
from tests.kafka.conftest import Clusters
from tests.kafka.source.rig import expire

KIB = 1024


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_what_the_source_deleted_unread_stops_the_bridge_or_is_counted(
    clusters: Clusters, named: Named, make_node: MakeNode, policy: str
) -> None:
    """`gap-policy`: FAILED with the numbers and nothing sent; or passed over, said once, and on it goes."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1", "2"))
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, gap_policy=policy)).start()
    read(clusters.b, topic, 3)
    assert node.stop() == 0
    send(clusters.a, topic, plain("3", "4", "5", "6", "7"))
    delete_before(clusters.a, topic, 6)
    node.start_listening()
    if policy == "stop":
        reason = node.await_failed(bridge)
        assert topic in reason
        assert "3" in reason
        assert "6" in reason
        assert node.ops.get("/ready").status == 503
        assert values(read(clusters.b, topic, 3)) == [b"0", b"1", b"2"]
    else:
        assert values(read(clusters.b, topic, 5)) == [b"0", b"1", b"2", b"6", b"7"]
        gap = node.event("source-gap", bridge=bridge)
        assert (gap["first"], gap["end"], gap["positions"]) == (3, 6, 3)
        assert len(node.events("source-gap")) == 1
        assert node.bridge_state(bridge) == "RUNNING"


def test_what_was_deleted_before_the_first_start_is_no_gap(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1", "2"))
    delete_before(clusters.a, topic, 2)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 1)) == [b"2"]
    assert node.bridge_state(bridge) == "RUNNING"
    assert not node.events("source-gap")


def test_a_record_that_does_not_fit_is_refused_alone(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """A dead letter with the contract's headers, its own ID, key, headers and body; counted and logged."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(topic, config={"max.message.bytes": str(20 * KIB)})
    large = Record(b"x" * 40 * KIB, b"key", (("mine", b"1"), ("_AMQ_DUPL_ID", b"own"), ("mine", None)))
    send(clusters.a, topic, [*plain("0", "1"), large, *plain("2"), large, *plain("3")])
    node = make_node(
        kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address=letters)
    ).start()
    assert values(read(clusters.b, topic, 4)) == [b"0", b"1", b"2", b"3"]
    first, second = read(clusters.b, letters, 2)
    for letter, position in ((first, b"2"), (second, b"4")):
        assert (letter.value, letter.key, letter.ids) == (large.value, b"key", [b"own"])
        assert [value for name, value in letter.headers if name == "mine"] == [b"1", None]
        assert (letter.header("core-bridge-reason") or b"").startswith(b"MESSAGE_TOO_LARGE: ")
        assert letter.header("core-bridge-bridge") == bridge.encode()
        assert letter.header("core-bridge-address") == topic.encode()
        assert letter.header("core-bridge-position") == position
        assert (letter.header("core-bridge-stream") or b"").startswith(b"kafka:")
    said = node.event("dead-letter", bridge=bridge)
    assert said["position"] == 2
    assert said["reason"].startswith("MESSAGE_TOO_LARGE: ")
    await_progress(clusters.a, bridge, topic)
    assert node.metrics()[f'core_bridge_messages_refused_total{{bridge="{bridge}"}}'] == 2
    assert node.bridge_state(bridge) == "RUNNING"
    assert node.stop() == 0
    node.start()
    send(clusters.a, topic, plain("4"))
    read(clusters.b, topic, 5)
    read(clusters.b, letters, 2)


@pytest.mark.kafka_long
def test_a_bridge_into_a_node_goes_on_beyond_any_number_of_dead_letters(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Which positions have a letter fitted no answer of the hub from the 18th on, and nothing from 1,025.

    Positions of seven digits: a thousand of them are as long a list as an OPEN takes.
    """
    bridge, topic, number = named("in"), named("orders"), 1_100
    clusters.a.create_topic(topic)
    for _ in range(20):
        send(clusters.a, topic, plain(*[""] * 50_000))
    expire(clusters.a, topic, 1_000_000)
    large = Record(b"x" * 2 * KIB)
    send(clusters.a, topic, [record for good in plain(*map(str, range(number))) for record in (good, large)])
    hub = make_node("", "hub", acceptor='max-message-size = "1KiB"\n').start()
    edge = make_node(
        connector_tables({"eu": clusters.a})
        + f'[connectors.hub]\nurl = "{hub.url}"\n'
        + bridge_table(
            bridge,
            queue_name=topic,
            source_connector="eu",
            static_connectors=["hub"],
            dead_letter_address="letters",
        ),
        "edge",
    ).start()
    stored = 'core_bridge_messages_stored_total{{address="{}"}}'
    eventually(lambda: hub.metrics().get(stored.format("letters")) == number, "letters", 4 * PATIENCE_S)
    send(clusters.a, topic, plain("behind them"))
    eventually(lambda: hub.metrics()[stored.format(topic)] == number + 1, "it goes on")
    assert hub.metrics()[stored.format("letters")] == number
    assert edge.metrics()[f'core_bridge_messages_refused_total{{bridge="{bridge}"}}'] == number


def test_without_a_dead_letter_address_the_first_refused_record_stops_the_bridge(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`dead-letter-address = ""`: FAILED; what was before it is there, nothing behind it is."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(topic, config={"max.message.bytes": str(20 * KIB)})
    send(clusters.a, topic, [*plain("0"), Record(b"x" * 40 * KIB), *plain("2")])
    settings = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address="")
    node = make_node(settings).start_listening()
    reason = node.await_failed(bridge)
    assert "MESSAGE_TOO_LARGE" in reason
    assert node.event("bridge-failed", bridge=bridge)["reason"] in reason
    assert set(values(read(clusters.b, topic))) <= {b"0"}


def test_a_loop_is_refused_and_never_acknowledged_and_gone(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """A -> B -> A: what would pass a bridge for the second time is a dead letter with its ID and body."""
    topic, letters = named("orders"), named("letters")
    rest = connector_tables(clusters._asdict())
    for name, source, target in (("there", "a", "b"), ("back", "b", "a")):
        rest += bridge_table(
            named(name), queue_name=topic, source_connector=source, static_connectors=[target],
            dead_letter_address=letters,
        )  # fmt: skip
    for cluster in clusters:
        cluster.create_topic(topic)
        cluster.create_topic(letters)
    send(clusters.a, topic, [*plain("from a"), with_id(b"with id", b"own")])
    send(clusters.b, topic, plain("from b"))
    node = make_node(rest).start()
    at_target = read(clusters.b, letters, 2)
    assert values(at_target) == [b"from a", b"with id"]
    assert at_target[1].ids == [b"own"]
    assert values(read(clusters.a, letters, 1)) == [b"from b"]
    assert all((one.header("core-bridge-reason") or b"").startswith(b"LOOP: ") for one in at_target)
    assert {event["bridge"] for event in node.events("dead-letter")} == {named("there"), named("back")}
    # Each has come back once to where it was sent, on purpose, and was never sent round again.
    assert sorted(map(str, values(read(clusters.a, topic, 5)))) == sorted(
        map(str, [b"from a", b"from a", b"from b", b"with id", b"with id"])
    )
    assert sorted(map(str, values(read(clusters.b, topic, 4)))) == sorted(
        map(str, [b"from a", b"from b", b"from b", b"with id"])
    )


def test_more_hops_than_allowed_are_a_dead_letter(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`max-hops = 1` of the second bridge of a chain."""
    topic, letters = named("orders"), named("letters")
    clusters.a.create_topic(topic)
    rest = connector_tables(clusters._asdict())
    rest += bridge_table(named("first"), queue_name=topic, source_connector="a", static_connectors=["b"])
    rest += bridge_table(
        named("second"), queue_name=topic, source_connector="b", static_connectors=["a"],
        forwarding_address="back.{address}", max_hops=1, dead_letter_address=letters,
    )  # fmt: skip
    send(clusters.a, topic, plain("0"))
    make_node(rest).start()
    (letter,) = read(clusters.a, letters, 1)
    assert letter.value == b"0"
    assert b"max-hops" in (letter.header("core-bridge-reason") or b"")
    send(clusters.b, topic, plain("1"))
    assert values(read(clusters.a, f"back.{topic}", 1)) == [b"1"]


def test_the_identity_of_a_connector_names_streams_and_stores(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`identity` in place of the cluster's id: in `bridge-connected`, and in a dead letter's stream."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, [with_id(b"empty", b"")])
    rest = f'[connectors.a]\nurl = "kafka://{clusters.a.bootstrap}"\nidentity = "east"\n'
    rest += f'[connectors.b]\nurl = "kafka://{clusters.b.bootstrap}"\nidentity = "west"\n'
    rest += bridge_table(
        bridge, queue_name=topic, source_connector="a", static_connectors=["b"], dead_letter_address=letters
    )
    node = make_node(rest).start()
    (letter,) = read(clusters.b, letters, 1)
    assert (letter.header("core-bridge-stream") or b"").startswith(b"kafka:east:")
    assert node.event("bridge-connected", bridge=bridge)["store"] == "kafka:west"


def test_a_timestamp_of_the_future_is_refused_alone(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """docs/kafka-traps.md 12: Kafka 4 takes at most one hour."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic, config={"message.timestamp.after.max.ms": str(10**15)})
    year_3000 = 32_503_680_000_000
    send(clusters.a, topic, [*plain("0"), Record(b"1", timestamp=year_3000), *plain("2")])
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address=letters)).start()
    assert values(read(clusters.b, topic, 2)) == [b"0", b"2"]
    (letter,) = read(clusters.b, letters, 1)
    assert letter.value == b"1"
    assert b"timestamp" in (letter.header("core-bridge-reason") or b"").lower()


def test_a_foreign_open_transaction_is_waited_for(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """docs/kafka-traps.md 15: what is behind it waits, what is before it has crossed; the bridge is well."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    send(clusters.a, topic, plain("0"))
    held = open_transaction(clusters, topic, named("tx"))
    send(clusters.a, topic, plain("2"))
    assert values(read(clusters.b, topic, 1)) == [b"0"]
    assert node.bridge_state(bridge) == "RUNNING"
    held.commit_transaction(30)
    assert values(read(clusters.b, topic, 3)) == [b"0", b"1", b"2"]


def open_transaction(clusters: Clusters, topic: str, name: str) -> Any:
    """A producer with the record "1" in a transaction that is neither committed nor aborted."""
    settings = {"bootstrap.servers": clusters.a.bootstrap, "transactional.id": name}
    producer: Any = confluent_kafka.Producer(settings, logger=SILENT)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    assert producer.flush(30) == 0
    return producer
