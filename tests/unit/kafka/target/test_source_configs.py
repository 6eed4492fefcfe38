"""The configuration that a topic made at the target gets from its source topic."""

from __future__ import annotations

import pytest

from bridge.kafka.target.source_configs import copied


@pytest.mark.parametrize(("replicas", "kept"), [(1, False), (2, True), (3, True)])
def test_in_sync_replicas_are_copied_where_there_are_as_many_replicas(replicas: int, kept: bool) -> None:
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    expected = configs if kept else {"cleanup.policy": "compact"}
    assert copied(configs, replicas) == expected
