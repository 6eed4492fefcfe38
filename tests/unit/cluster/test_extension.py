"""What a node says of its cluster while a part of the cluster's work fails."""

from __future__ import annotations

import asyncio

from bridge.runtime.repeated_task import PAUSE_S, RepeatedTask
from cluster.extension import ClusterExtension
from tests.fakes.virtual_time import in_virtual_time


@in_virtual_time
async def test_the_node_is_not_ready_while_a_part_of_the_clusters_work_fails() -> None:
    errors = [RuntimeError("a defect")]

    async def turn() -> None:
        await asyncio.sleep(1)
        if errors:
            raise errors.pop()

    extension = ClusterExtension.__new__(ClusterExtension)
    task = RepeatedTask("cluster-changes", turn)
    extension._tasks, extension._contacts = [task], []
    task.begin()
    assert list(extension.unready()) == []
    await asyncio.sleep(1.5)
    assert list(extension.unready()) == ["cluster: cluster-changes: RuntimeError: a defect"]
    await asyncio.sleep(PAUSE_S + 1)
    assert list(extension.unready()) == []
    await task.end()
