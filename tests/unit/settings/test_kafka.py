"""Bridges with a Kafka end, as the settings see them: which topics, which names, what is promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.kafka.checks import same_cluster
from bridge.messages.addresses import is_own
from bridge.settings import Settings, SettingsInvalid, kafka_names, load
from bridge.settings.bridges import Bridge

CONNECTORS = """
[connectors.eu]
url = "kafka://eu-1:9092,eu-2:9092"
[connectors.us]
url = "kafka://us-1:9092"
[connectors.hub]
url = "ws://hub:61616"
"""


def settings_of(path: Path, bridges: str) -> Settings:
    path.write_text(CONNECTORS + bridges)
    return load(path, {})


def bridge_of(path: Path, keys: str, source: str = "eu", target: str = "us") -> Bridge:
    """The one bridge of a file, from Kafka to Kafka unless it is said otherwise."""
    ends = f'source-connector = "{source}"\nstatic-connectors = ["{target}"]\n'
    (bridge,) = settings_of(path, f'[[bridges]]\nname = "x"\n{ends}{keys}\n').bridges
    return bridge


@pytest.mark.parametrize(
    ("source", "target", "line"),
    [
        ("eu", "us", "x: eu:orders -> us: exactly-once"),
        ("journal", "us", "x: journal:orders -> us: exactly-once"),
        ("eu", "hub", "x: eu:orders -> hub: exactly-once"),
        ("eu", "journal", "x: eu:orders -> journal: exactly-once"),
    ],
)
def test_a_bridge_with_a_kafka_end_promises_exactly_once(
    settings_file: Path, source: str, target: str, line: str
) -> None:
    assert str(bridge_of(settings_file, 'queue-name = "orders"', source, target)) == line


def test_every_kafka_key_is_taken_where_both_ends_are_kafka(settings_file: Path) -> None:
    keys = """
        queue-name = ["orders", '/pay.*/', "!pay.test"]
        previous-name = "old"
        concurrency = 8
        start-position = "latest"
        gap-policy = "continue"
        open-transaction-warn-after = "5m"
        add-partitions = true
        topic-replication-factor = 3
        journal-topic = "my.journal"
        journal-replication-factor = 2
        group-id = "my-group"
        max-hops = 3
    """
    bridge = bridge_of(settings_file, keys)
    assert (bridge.own_topic, bridge.own_group) == ("my.journal", "my-group")
    assert (bridge.concurrency, bridge.max_hops) == (8, 3)


def test_names_of_its_own_are_made_of_the_bridge_s(settings_file: Path) -> None:
    bridge = bridge_of(settings_file, 'queue-name = "orders"')
    assert bridge.own_topic == kafka_names.journal_topic("x") == "core-bridge.x.journal"
    assert bridge.own_group == kafka_names.group_id("x") == "core-bridge.x"


@pytest.mark.parametrize(
    ("keys", "topic", "read"),
    [
        ("queue-name = '/.*/'", "orders", True),
        ("queue-name = '/.*/'", "__consumer_offsets", False),
        ("queue-name = '/.*/'", "core-bridge.y.journal", False),
        (
            'queue-name = "__consumer_offsets"',
            "__consumer_offsets",
            True,
        ),  # at its word
        ("queue-name = ['/.*/', '!orders']", "orders", False),
        ("queue-name = '/.*/'\njournal-topic = 'mine'", "mine", False),
        ("queue-name = '/.*/'\nforwarding-address = 'eu.{address}'", "eu.orders", False),
        ("queue-name = '/.*/'\nforwarding-address = 'all'", "all", False),
        ("queue-name = ['/.*/', 'all']\nforwarding-address = 'all'", "all", True),
        ("queue-name = '/orders/'", "orders.eu", False),
    ],
)
def test_which_topics_a_bridge_reads(settings_file: Path, keys: str, topic: str, read: bool) -> None:
    """Regular expressions never mean hidden topics, the bridge's own, or what it forwards to itself."""
    assert bridge_of(settings_file, keys).selects_topic(topic) is read


def test_what_is_hidden_on_kafka_is_hidden_from_regular_expressions(settings_file: Path) -> None:
    bridge = bridge_of(settings_file, "queue-name = '/.*/'")
    for topic in ("__x", "core-bridge.x", "_x", "core-bridges", "x.core-bridge."):
        assert bridge.selects_topic(topic) is not kafka_names.is_hidden(topic)
    assert is_own(kafka_names.OWN_PREFIX)


def test_a_name_too_long_for_its_journal_topic_needs_one_to_be_set(settings_file: Path) -> None:
    name = "n" * 230
    bridge = f'[[bridges]]\nname = "{name}"\nqueue-name = "orders"\nstatic-connectors = ["us"]\n'
    with pytest.raises(SettingsInvalid, match=r"journal-topic .*required, because core-bridge\.n+\.journal"):
        settings_of(settings_file, bridge)
    assert settings_of(settings_file, bridge + 'journal-topic = "mine"\n').bridges[0].own_topic == "mine"


def test_the_same_names_there_and_back_are_no_loop_of_one_bridge(settings_file: Path) -> None:
    there = (
        '[[bridges]]\nname = "there"\nsource-connector = "eu"\nqueue-name = "a"\nstatic-connectors = ["us"]\n'
    )
    back = (
        '[[bridges]]\nname = "back"\nsource-connector = "us"\nqueue-name = "a"\nstatic-connectors = ["eu"]\n'
    )
    assert len(settings_of(settings_file, there + back).bridges) == 2


def test_one_cluster_may_feed_another_topic_of_its_own(settings_file: Path) -> None:
    keys = 'queue-name = "orders"\nforwarding-address = "copy.{address}"'
    assert bridge_of(settings_file, keys, "eu", "eu").target_address("orders") == "copy.orders"


def test_clusters_are_the_same_when_they_share_a_broker(settings_file: Path) -> None:
    more = '[connectors.one]\nurl = "kafka://eu-2:9092"\n[connectors.other]\nurl = "kafka://eu-2:9093"\n'
    connectors = settings_of(settings_file, more).connectors
    assert same_cluster(connectors["eu"], connectors["one"])
    assert not same_cluster(connectors["eu"], connectors["other"])


def test_workers_are_taken_with_a_bridge_for_them(settings_file: Path) -> None:
    keys = 'name = "x"\nqueue-name = "orders"\nsource-connector = "eu"\nstatic-connectors = ["us"]\n'
    assert settings_of(settings_file, f"[node]\nworkers = 4\n[[bridges]]\n{keys}").node.workers == 4


def test_no_acceptor_is_needed(settings_file: Path) -> None:
    bridge_of(settings_file, 'queue-name = "orders"')
    assert load(settings_file, {}).acceptor is None


def test_concurrency_is_lanes_from_kafka_and_calls_of_the_transformer_from_the_journal(
    settings_file: Path,
) -> None:
    keys = 'queue-name = "orders"\nconcurrency = 256\n'
    kafka = bridge_of(settings_file, keys)
    assert (kafka.callers, kafka.calls_at_a_time) == (1, "")
    plain = bridge_of(settings_file, keys, source="journal")
    assert (plain.callers, plain.calls_at_a_time) == (
        256, "one link, all in order; no effect without a transformer",
    )  # fmt: skip
    made = bridge_of(settings_file, f'{keys}transformer = "shop.orders:change"\n', source="journal")
    assert made.calls_at_a_time == (
        "one link, all in order; 256 calls of the transformer at a time, in order for each key"
    )
    one = bridge_of(settings_file, 'queue-name = "orders"\n', source="journal")
    assert (one.callers, one.calls_at_a_time) == (1, "")
