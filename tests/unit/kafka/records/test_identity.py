"""Names and lanes of partitions."""

from __future__ import annotations

import pytest

from bridge.kafka.records import identity
from bridge.settings import kafka_names


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("topic", ["orders", "payments.eu", "a"])
def test_partitions_of_a_topic_are_spread_evenly_over_the_lanes(topic: str, lanes: int) -> None:
    """A CRC-32 of topic and partition put partitions 0 to 3 of any topic on the same lane of two."""
    shares = [0] * lanes
    for partition in range(24):
        shares[identity.lane_of(topic, partition, lanes)] += 1
    assert max(shares) - min(shares) <= 1


def test_topics_of_one_partition_are_spread_too() -> None:
    lanes = {identity.lane_of(f"topic-{number}", 0, 4) for number in range(40)}
    assert lanes == {0, 1, 2, 3}


def test_a_stream_says_its_partition() -> None:
    stream = identity.stream_identity("cluster:with:colons", "5aeea5ce-9d3e-431c-ad2b-3ada564949ca", 17)
    assert identity.partition_of(stream) == 17
    assert identity.partition_of("journal:incarnation:orders:0") is None


@pytest.mark.parametrize(
    ("topic", "hidden"), [("__consumer_offsets", True), ("core-bridge.x.journal", True), ("orders", False)]
)
def test_what_no_regex_selects(topic: str, hidden: bool) -> None:
    assert kafka_names.is_hidden(topic) is hidden
