"""What the identity of a stream says of its source and its kind."""

from __future__ import annotations

import pytest

from bridge.messages.stream_names import StreamKind, kind_of_stream, plan_stream, replay_address, source_of
from bridge.relay.ports import Stream


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


RESENT = f"journal:i1:{replay_address('out', 'orders')}:5"
PLAN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("identity", "kind", "checks_ids"),
    [
        ("journal:i1:orders:0", StreamKind.MESSAGES, True),
        ("kafka:cluster:topic-id:3", StreamKind.MESSAGES, True),
        ("kafka:cluster:topic-id:3:dead-letters", StreamKind.DEAD_LETTERS, True),
        (RESENT, StreamKind.RESENT_LETTERS, False),
        (f"{RESENT}:dead-letters", StreamKind.DEAD_LETTERS, True),
        (plan_stream("journal:i1:orders:0", PLAN, force=False), StreamKind.PLAN, True),
        (plan_stream(RESENT, PLAN, force=False), StreamKind.PLAN, True),
        (plan_stream(RESENT, PLAN, force=True), StreamKind.FORCED_PLAN, False),
    ],
)
def test_a_streams_kind_says_whether_ids_are_looked_up(
    identity: str, kind: StreamKind, checks_ids: bool
) -> None:
    assert Stream(identity, "orders", "orders").kind is kind_of_stream(identity) is kind
    assert kind.checks_ids is checks_ids
