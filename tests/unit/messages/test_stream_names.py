"""What the identity of a stream says of its source."""

from __future__ import annotations

import pytest

from bridge.messages.stream_names import replay_address, source_of


@pytest.mark.parametrize(
    ("identity", "source"),
    [
        ("journal:i1:orders:0", "journal:i1"),
        (f"journal:i1:{replay_address('out', 'orders')}:5", "journal:i1"),
        ("journal:i1:orders:0:dead-letters", "journal:i1"),
        ("kafka:cluster:topic-id:3", "kafka:cluster"),
    ],
)
def test_streams_of_one_journal_or_cluster_have_one_source(identity: str, source: str) -> None:
    assert source_of(identity) == source
