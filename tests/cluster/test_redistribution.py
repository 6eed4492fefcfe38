"""Redistribution between real nodes: Artemis's cases by their ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.rig import Cluster, await_waiting, numbers, read, send, waiting
from tests.harness.eventually import eventually

pytestmark = pytest.mark.processes

ANYCAST = '[addresses.jobs]\nrouting-type = "ANYCAST"\n[address-settings."#"]\nredistribution-delay = 0\n'


def test_c30_what_waits_without_a_reader_goes_to_a_node_that_has_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, rest=ANYCAST).start()
    cluster.await_members()
    send(cluster[0], "jobs", numbers(20))
    await_waiting(cluster[0], "jobs", "jobs", 20)
    found: list[str] = []

    def take() -> bool:
        found.extend(read(cluster[1], "jobs", "jobs", wait_ms=500))
        return len(found) >= 20

    eventually(take, "all arrive where the reader is")
    assert found == numbers(20)
    assert waiting(cluster[0], "jobs", "jobs") == 0
