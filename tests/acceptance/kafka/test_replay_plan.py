"""`core-bridge replay` where an end is Kafka: from a topic, and to one."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dedup.ids import Stamp
from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, plain, read, send, with_id
from tests.acceptance.test_replay_plan import SENT, counts, replay, write_plan
from tests.harness.eventually import eventually
from tests.harness.lossy import installed, lossy
from tests.harness.node import MakeNode, Node
from tests.harness.reports import Report
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.source.rig import expire

RETAINED = '[address-settings."#"]\nretain-time = "1h"\n'
BODIES = [f"m{number}" for number in range(10)]
#: Positions that are lost on the way, and what is left.
LOSE, LOST = "2-3,7", [[2, 3], [7, 7]]
KEPT = [body for number, body in enumerate(BODIES) if number not in (2, 3, 7)]
MENDED = [*KEPT, "m2", "m3", "m7"]


def losing(make_node: MakeNode, directory: Path, tables: str, connector: str) -> Node:
    """A node whose end at one connector loses what `LOSSY_END` names."""
    return make_node(lossy(tables, connector), variables=installed(directory))


def bodies(cluster: Reachable, topic: str, count: int) -> list[str]:
    return [(record.value or b"").decode() for record in read(cluster, topic, count)]


def received(node: Node, bridge: str, *, replays: bool) -> list[dict[str, Any]]:
    lines = [
        line for line in node.delivery_lines() if line["side"] == "received" and line["bridge"] == bridge
    ]
    return [line for line in lines if (line.get("replays") is not None) is replays]


def entry_of(node: Node, bridge: str, positions: list[list[int]]) -> dict[str, Any]:
    """By the received line of a node that is both ends."""
    line = eventually(lambda: received(node, bridge, replays=False), "the log says what came")[0]
    return {key: line[key] for key in ("bridge", "stream", "address", "target", "store")} | {
        "positions": positions
    }


def test_what_a_target_cluster_lost_is_read_at_the_source_cluster_again(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = losing(make_node, tmp_path, kafka_bridge(clusters._asdict(), bridge, queue_name=topic), "b")
    node.start(LOSSY_END=f"{topic}:{LOSE}")
    send(clusters.a, topic, plain(*BODIES))
    await_progress(clusters.a, bridge, topic)
    assert bodies(clusters.b, topic, 7) == KEPT
    plan = write_plan(tmp_path / "plan.json", entry_of(node, bridge, [[1, 3], [7, 7]]))

    # It asks the topic: position 1 is there.
    looked = replay(node, plan, "--dry-run")
    assert (looked.code, counts(looked)) == (0, SENT | {"known": 1}), looked
    sent = replay(node, plan)
    assert (sent.code, counts(sent)) == (0, SENT | {"known": 1}), sent
    again = replay(node, plan)
    assert (again.code, counts(again)) == (0, SENT | {"sent": 0, "earlier": 4})
    assert counts(replay(node, plan, "--dry-run")) == SENT | {"sent": 0, "earlier": 4}
    assert bodies(clusters.b, topic, 10) == MENDED
    # The last line of a stream is written at every taking of the lane: equal lines are one event.
    (line,) = {str(line): line for line in received(node, bridge, replays=True)}.values()
    assert (line["runs"], line["replays"]) == ([[1, 3], [7, 7]], entry_of(node, bridge, LOST)["stream"])

    # Another plan finds by their IDs what the first one sent.
    other = write_plan(tmp_path / "other.json", entry_of(node, bridge, LOST))
    assert counts(replay(node, other)) == SENT | {"sent": 0, "known": 3}
    assert counts(replay(node, other, "--force")) == SENT
    assert counts(replay(node, other, "--force")) == SENT | {"sent": 0, "earlier": 3}
    assert bodies(clusters.b, topic, 13) == [*MENDED, "m2", "m3", "m7"]
    send(clusters.a, topic, plain("m10"))
    assert bodies(clusters.b, topic, 14)[-1] == "m10", "the bridge goes on as ever"
    assert node.stop() == 0


CARRIED = Stamp("journal:1:orders:0").text(7).encode()


def test_of_ten_records_of_one_stamp_those_that_were_lost_are_sent(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """A stream processor has copied the header to 5 to 14, of which 5 to 12 are lost; 14 equals 5."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = losing(make_node, tmp_path, kafka_bridge(clusters._asdict(), bridge, queue_name=topic), "b")
    node.start(LOSSY_END=f"{topic}:5-12")
    sent_bodies = [b"m5" if at == 14 else b"m%d" % at for at in range(25)]
    send(
        clusters.a,
        topic,
        [with_id(b, CARRIED) if 5 <= at < 15 else Record(b) for at, b in enumerate(sent_bodies)],
    )
    await_progress(clusters.a, bridge, topic)
    assert len(bodies(clusters.b, topic, 17)) == 17
    # A part of them first: what is there then is told by more than its ID.
    part = write_plan(tmp_path / "part.json", entry_of(node, bridge, [[6, 7]]))
    assert counts(replay(node, part)) == SENT | {"sent": 2}
    plan = write_plan(tmp_path / "plan.json", entry_of(node, bridge, [[5, 12]]))
    expected = SENT | {"sent": 6, "known": 2}
    for options in (["--dry-run"], []):
        ended = replay(node, plan, *options)
        assert (ended.code, counts(ended)) == (0, expected), ended
    for _ in range(3):
        assert counts(replay(node, plan)) == SENT | {"sent": 0, "earlier": 8}
    there = [body.encode() for body in bodies(clusters.b, topic, 25)]
    assert Counter(there) == Counter(sent_bodies)
    other = write_plan(tmp_path / "other.json", entry_of(node, bridge, [[5, 11]]))
    assert counts(replay(node, other)) == SENT | {"sent": 0, "known": 7}

    # Other records with this ID may have been at the source: that the target has these is not claimed.
    expire(clusters.a, topic, 3)
    doubtful = write_plan(tmp_path / "doubtful.json", entry_of(node, bridge, [[5, 6], [8, 12], [20, 20]]))
    for options in (["--dry-run"], []):
        ended = replay(node, doubtful, *options)
        assert (ended.code, counts(ended)) == (1, SENT | {"sent": 0, "known": 1, "unknown": 7}), ended
        assert "5-6, 8-12 cannot be told" in ended.err
    lines = received(node, bridge, replays=True)
    assert [line["runs"] for line in lines if line["upto"] == 21] == [[[20, 20]]]
    assert len(bodies(clusters.b, topic, 25)) == 25
    assert node.stop() == 0


def test_a_producers_id_that_is_not_checked_is_counted(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """m0 and m1 are one message that was sent twice, and arrive twice; the second one is lost."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=2)
    tables = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, check_producer_ids=False)
    node = losing(make_node, tmp_path, tables, "b")
    node.start(LOSSY_END=f"{topic}:1")
    twice = with_id(b"m", b"again")
    send(clusters.a, topic, [twice, twice, with_id(b"other", b"again"), with_id(b"m", b"again", partition=1)])
    await_progress(clusters.a, bridge, topic)
    assert sorted(bodies(clusters.b, topic, 3)) == ["m", "m", "other"]
    line = next(one for one in received(node, bridge, replays=False) if one["stream"].endswith(":0"))
    entry = {key: line[key] for key in ("bridge", "stream", "address", "target", "store")}
    plan = write_plan(tmp_path / "plan.json", entry | {"positions": [[1, 1]]})
    assert counts(replay(node, plan, "--dry-run")) == counts(replay(node, plan)) == SENT | {"sent": 1}
    assert sorted(bodies(clusters.b, topic, 4)) == ["m", "m", "m", "other"]
    other = write_plan(tmp_path / "other.json", entry | {"positions": [[0, 2]]})
    assert counts(replay(node, other)) == SENT | {"sent": 0, "known": 3}
    assert node.stop() == 0


@pytest.mark.spark_long
def test_lost_found_replayed_and_clean_between_clusters(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """The whole way: the logs of both sides say what was lost, the plan mends it, all is accounted for."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = losing(make_node, tmp_path, kafka_bridge(clusters._asdict(), bridge, queue_name=topic), "b")
    node.start(LOSSY_END=f"{topic}:{LOSE}")
    send(clusters.a, topic, plain(*BODIES))
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    logs = [node.data / "delivery-log"]
    found = Report.of(tmp_path / "before", logs)
    assert (found.ended.code, found.summary["verdict"], found.total("lost", bridge)) == (3, "lost", 3), found

    node.start()
    mended = replay(node, found.plan)
    assert (mended.code, counts(mended)) == (0, SENT), mended
    assert bodies(clusters.b, topic, 10) == MENDED
    assert node.stop() == 0
    clean = Report.of(tmp_path / "after", logs)
    clean.assert_clean(bridge, 10)
    assert json.loads(clean.plan.read_text())["entries"] == []


def test_what_a_cluster_lost_of_a_journal_is_sent_from_it_again(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    bridge, topic = named("to-b"), named("orders")
    tables = connector_tables({"b": clusters.b}) + bridge_table(
        bridge, source_connector="journal", queue_name=topic, static_connectors=["b"]
    )
    node = losing(make_node, tmp_path, tables + RETAINED, "b")
    node.start(LOSSY_END=f"{topic}:{LOSE}")
    for body in BODIES:
        node.api.send(topic, body.encode())
    eventually(lambda: node.lag(topic) == 0, "all is settled")
    assert bodies(clusters.b, topic, 7) == KEPT
    plan = write_plan(tmp_path / "plan.json", entry_of(node, bridge, LOST))
    assert counts(replay(node, plan, "--dry-run")) == SENT
    node.kill()
    # The first commit is that of the lane, which is new.
    node.start(CORE_BRIDGE_CRASH_AT="kafka.after-commit:2")
    assert replay(node, plan).code == 1, "no answer came"
    assert node.wait() == -signal.SIGKILL
    node.start()
    ended = replay(node, plan)
    assert (ended.code, counts(ended)) == (0, SENT | {"sent": 0, "earlier": 3}), ended
    assert bodies(clusters.b, topic, 10) == MENDED
    assert node.stop() == 0


def test_what_a_node_lost_of_a_topic_is_read_there_again(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    bridge, topic = named("from-a"), named("orders")
    clusters.a.create_topic(topic)
    tables = connector_tables({"a": clusters.a}) + bridge_table(
        bridge, source_connector="a", queue_name=topic, static_connectors=["journal"]
    )
    node = losing(make_node, tmp_path, tables, "a")
    node.start(LOSSY_END=f"{topic}:{LOSE}")
    send(clusters.a, topic, plain(*BODIES))
    eventually(lambda: len(node.api.bodies(topic)) == 7, "what is not lost is there")
    # 20: beyond the log's end, as after a truncation.
    plan = write_plan(tmp_path / "plan.json", entry_of(node, bridge, [*LOST, [20, 20]]))
    for options in (["--dry-run"], []):
        ended = replay(node, plan, *options)
        assert (ended.code, counts(ended)) == (1, SENT | {"gone": 1}), ended
    assert node.api.bodies(topic) == MENDED
    assert node.stop() == 0
