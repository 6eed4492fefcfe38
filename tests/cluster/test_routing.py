"""Where messages go for which several nodes have queues: real nodes, Artemis's cases by their ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, send

pytestmark = pytest.mark.processes

ANYCAST = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'


def test_c1_one_queue_on_two_nodes_takes_turns(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, connection='message-load-balancing = "STRICT"', rest=ANYCAST).start()
    cluster.await_members()
    cluster.await_place(0, 1, "jobs", "jobs")
    send(cluster[0], "jobs", numbers(10))
    await_waiting(cluster[0], "jobs", "jobs", 5)
    await_waiting(cluster[1], "jobs", "jobs", 5)
    assert read(cluster[0], "jobs", "jobs") == ["0", "2", "4", "6", "8"]
    assert read(cluster[1], "jobs", "jobs") == ["1", "3", "5", "7", "9"]


def test_c4_queues_of_other_names_get_each_message(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2).start()
    make_queue(cluster[0], "news", "here")
    make_queue(cluster[1], "news", "there")
    cluster.await_place(0, 1, "news", "there")
    send(cluster[0], "news", numbers(10))
    for node, queue in ((cluster[0], "here"), (cluster[1], "there")):
        await_waiting(node, "news", queue, 10)
        assert read(node, "news", queue) == numbers(10)
