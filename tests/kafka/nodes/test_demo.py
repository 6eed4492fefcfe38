"""The demo between two real clusters: its proof, what it says without clusters, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from bridge.client.progress import Progress
from bridge.demo.compare import Comparison
from bridge.demo.kafka_clusters import DemoCluster, DemoRecord
from bridge.demo.kafka_story import PARTITIONS, SOURCE, TARGET, KafkaStory
from bridge.demo.ports import free_ports
from bridge.demo.rows import Row
from tests.harness.eventually import eventually
from tests.harness.forked import unmeasured
from tests.kafka.cluster import two_clusters
from tests.kafka.conftest import Clusters

PATIENCE_S = 120.0
#: A topic that a demo made: name, at both ends, and its bridge's journal topic.
DEMO_TOPIC = re.compile(r"(core-bridge-demo-|core-bridge\.demo-)[0-9a-f]{8}(\.journal)?")


def start(
    directory: Path, clusters: Clusters, *arguments: str, is_measured: bool = False
) -> subprocess.Popen[bytes]:
    """Start a demo; coverage would take half of what it and its relays compute, each time."""
    ends = ("--source", clusters.a.bootstrap, "--target", clusters.b.bootstrap)
    environment = os.environ | {"TMPDIR": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-m", "bridge", "demo", "--kafka", *ends, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment if is_measured else unmeasured(environment),
    )


def finish(process: subprocess.Popen[bytes], data: bytes = b"") -> tuple[int, str, str]:
    with process:
        try:
            out, err = process.communicate(data, PATIENCE_S)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out.decode(), err.decode()


def demo_topics(clusters: Clusters) -> set[str]:
    return {topic for cluster in clusters for topic in cluster.topics() if DEMO_TOPIC.fullmatch(topic)}


def processes_of(directory: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(directory).encode() in command:
            found.append(int(path.parent.name))
    return found


def test_rows_arrive_once_and_in_order_though_their_relay_is_killed_twice_and_suspended(
    clusters: Clusters, tmp_path: Path
) -> None:
    before = demo_topics(clusters)
    data = b"".join(b"row %d%s\n" % (row, b"\xff" * (row % 30)) for row in range(3_000))
    code, out, err = finish(
        start(tmp_path, clusters, "--input", "-", "--format", "json", is_measured=True), data
    )
    assert (code, err) == (0, "")
    proof = json.loads(out.splitlines()[-1])
    assert (proof["sent"], proof["arrived"]) == (3_000, 3_000)
    assert proof["duplicates"] == proof["repeated"] == 300
    assert proof["lost"] == proof["doubled"] == proof["out-of-order"] == 0
    assert (proof["kills"], proof["cuts"]) == (2, 1)
    assert demo_topics(clusters) == before
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [False, True])
def test_an_interrupted_demo_takes_relays_and_topics_along_unless_they_are_to_be_kept(
    clusters: Clusters, tmp_path: Path, keep: bool
) -> None:
    before = demo_topics(clusters)
    process = start(tmp_path, clusters, *(["--keep"] if keep else []))
    eventually(lambda: any("journal" in topic for topic in demo_topics(clusters) - before), "it runs", 60)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert processes_of(tmp_path) == []
    left = demo_topics(clusters) - before
    if not keep:
        assert (err, left, list(tmp_path.iterdir())) == ("", set(), [])
        return
    (directory,) = tmp_path.iterdir()
    said = re.fullmatch(
        rf"core-bridge: settings, journals and logs are in {directory}; "
        rf"topic (\S+) is at {clusters.a.bootstrap} and {clusters.b.bootstrap}, (\S+) at the latter\n",
        err,
    )
    assert said, err
    assert left == set(said.groups())
    clusters.a.delete_topic(said[1])
    for topic in said.groups():
        if topic in clusters.b.topics():
            clusters.b.delete_topic(topic)


def test_without_clusters_it_says_what_to_do_and_leaves_nothing(clusters: Clusters, tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    code, out, err = finish(start(tmp_path, clusters, "--target", nowhere))
    assert (code, out) == (1, "")
    assert err.startswith(
        f"core-bridge: NO_CLUSTERS: no Kafka cluster at {nowhere} (target); `make kafka-up` starts two "
        "clusters; --source and --target name others: "
    )
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_one_cluster_is_not_enough(clusters: Clusters, tmp_path: Path) -> None:
    code, out, err = finish(start(tmp_path, clusters, "--target", clusters.a.bootstrap))
    assert (code, out) == (1, "")
    assert "are the same Kafka cluster" in err


def test_clusters_are_those_of_make_kafka_up_and_are_named_for_kafka_alone(tmp_path: Path) -> None:
    ports = two_clusters.FIRST_PORTS
    assert (f"127.0.0.1:{ports['a']}", f"127.0.0.1:{ports['b']}") == (SOURCE, TARGET)
    shown = subprocess.run(
        [sys.executable, "-m", "bridge", "demo", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert SOURCE in shown
    assert TARGET in shown
    refused = subprocess.run(
        [sys.executable, "-m", "bridge", "demo", "--source", SOURCE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, refused.stderr) == (2, "core-bridge: demo --source needs --kafka\n")
    with pytest.raises(SystemExit) as ended:
        two_clusters.main(["running"], tmp_path)
    assert ended.value.code == 1


# ---------------------------------------------------------------- the judge


@pytest.fixture
async def story(clusters: Clusters, tmp_path: Path) -> AsyncIterator[KafkaStory]:
    """One that has an empty topic at its target."""
    rows = [Row(index, b"body %d" % index, f"id-{index}") for index in range(40)]
    story = KafkaStory(
        rows, Progress(), directory=tmp_path, source=clusters.a.bootstrap, target=clusters.b.bootstrap
    )
    async with DemoCluster("target", story.target) as target:
        await target.make_topic(story.route.topic, PARTITIONS)
    yield story
    await story.clean_up()


async def judged(story: KafkaStory, records: Sequence[DemoRecord]) -> Comparison:
    """What the demo finds where these are at its target."""
    async with DemoCluster("target", story.target) as target, target.sender(story.route.topic) as sender:
        await sender.send(records)
    return await story._compare()


def as_sent(rows: Sequence[Row]) -> list[DemoRecord]:
    return [DemoRecord(row.index % PARTITIONS, row.key, row.body, row.id.encode()) for row in rows]


def verdict(found: Comparison) -> tuple[int, int, int, int]:
    return found.arrived, found.lost, found.doubled, found.out_of_order


async def test_what_arrives_as_it_was_sent_is_in_order(story: KafkaStory) -> None:
    assert verdict(await judged(story, as_sent(story.rows))) == (40, 0, 0, 0)


async def test_the_judge_finds_what_is_lost_doubled_and_out_of_order(story: KafkaStory) -> None:
    sent = as_sent(story.rows)
    # Row 8 is not there, row 5 is twice, and row 3 comes behind row 7.
    sent[3], sent[7] = sent[7], sent[3]
    assert verdict(await judged(story, [*sent[:8], *sent[9:], sent[5]])) == (40, 1, 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        DemoRecord(1, b"0", b"body 0", b"id-0"),
        DemoRecord(0, b"0", b"another", b"id-0"),
        DemoRecord(0, b"0", b"body 0", b"id-1"),
        DemoRecord(0, None, b"body 0", b"id-0"),
        DemoRecord(0, b"40", b"body 0", b"id-0"),
    ],
    ids=["in another partition", "another body", "another ID", "no key", "another key"],
)
async def test_the_judge_takes_no_altered_record_for_the_one_that_was_sent(
    story: KafkaStory, wrong: DemoRecord
) -> None:
    assert verdict(await judged(story, [wrong, *as_sent(story.rows)[1:]])) == (40, 1, 1, 0)
