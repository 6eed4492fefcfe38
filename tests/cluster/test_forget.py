"""Lost nodes are forgotten: what waits for them goes elsewhere, or becomes dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, send
from tests.harness.eventually import eventually

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("in_doubt", ["requeue", "dead-letter"])
def test_what_waits_for_a_lost_node_goes_to_another_place_or_becomes_dead_letters(
    tmp_path: Path, in_doubt: str
) -> None:
    cluster = Cluster(tmp_path, 3, connection='message-load-balancing = "STRICT"').start()
    cluster.await_members()
    for index in (1, 2):
        make_queue(cluster[index], "news", "shared")
        cluster.await_place(0, index, "news", "shared")
    make_queue(cluster[1], "news", "only-here")
    cluster.await_place(0, 1, "news", "only-here")
    send(cluster[0], "news", numbers(2))  # one of the two is n1's
    await_waiting(cluster[1], "news", "only-here", 2)
    await_waiting(cluster[2], "news", "shared", 1)
    up = cluster[0].ops.call("POST", "/v1/cluster/forget", node="n1")
    up.is_problem(409, "CONFLICT")
    cluster[1].kill()
    cluster.await_unreachable(0, 1)
    send(cluster[0], "news", numbers(10, 2))  # shared: all to n2; only-here: they wait for n1
    await_waiting(cluster[2], "news", "shared", 11)
    forget: dict[str, Any] = {"node": "n1", "in_doubt": in_doubt}
    plan = cluster[0].ops.call("POST", "/v1/cluster/forget", **{**forget, "dry_run": True}).json
    assert (plan["waiting"], plan["perhaps-delivered"], plan["done"]) == (10, 10, False)
    done = cluster[0].ops.call("POST", "/v1/cluster/forget", **forget)
    assert done.json["done"], done.body
    eventually(lambda: len(letters(cluster)) == 10, f"ten dead letters; found {len(letters(cluster))}")
    reasons = {letter["reason"].partition(":")[0] for letter in letters(cluster)}
    assert reasons == {"QUEUE_GONE" if in_doubt == "requeue" else "IN_DOUBT"}
    eventually(lambda: "n1" not in cluster.table(0), "n0 knows n1 no more")
    assert read(cluster[2], "news", "shared")[1:] == numbers(10, 2)


def letters(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster[0].ops.get("/v1/dead-letters").json["dead-letters"]
    return found
