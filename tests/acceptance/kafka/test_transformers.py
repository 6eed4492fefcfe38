"""A bridge with a transformer from Kafka to Kafka."""

from __future__ import annotations

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, plain, read, send, with_id
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, kafka_bridge
from tests.kafka.conftest import Clusters


def test_records_are_changed_dropped_and_dead_lettered_in_order_through_a_kill(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B6, B14-B16: also what comes with an earlier bridge's stamp or a producer's ID keeps it."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    node = make_node(
        kafka_bridge(
            clusters._asdict(), bridge, queue_name=topic,
            transformer="tests.harness.transformers:ByBody", max_delivery_attempts=2,
            dead_letter_address=letters,
        )
    ).start()  # fmt: skip
    send(
        clusters.a,
        topic,
        [with_id(b"m0", b"mine"), *plain("drop 1", "raise 2", "twice 3"), Record(b"m4", b"k")],
    )
    assert [one.value for one in read(clusters.b, topic, 2)][:2] == [b"made m0", b"made m4"]
    (letter,) = read(clusters.b, letters, 2)[:1]
    assert letter.value == b"raise 2"
    assert (letter.header("core-bridge-reason") or b"").startswith(b"TRANSFORMER_FAILED: ")
    assert node.status(bridge)["dropped"] == 1
    node.kill()
    send(
        clusters.a, topic, plain(*(f"{('m', 'drop', 'raise')[number % 3]} {number}" for number in range(60)))
    )
    node.start()
    await_progress(clusters.a, bridge, topic)
    found = read(clusters.b, topic, 22)
    assert [one.value for one in found][2:] == [b"made m %d" % number for number in range(0, 60, 3)]
    assert found[0].ids == [b"mine"]
    assert (found[1].key, len({one.ids[-1] for one in found})) == (b"k", 22)
    assert len(read(clusters.b, letters, 22)) == 22
    assert node.stop() == 0
