"""A node with two worker processes between two real clusters."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import Node
from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import Arrivals
from tests.kafka.traffic.checker import check, stamps_of
from tests.kafka.traffic.traffic import Fate, Traffic, produce

PARTITIONS = 4
#: A killed member's lanes are free after the group's session time-out; this keeps the tests short.
GROUP = "session-timeout-ms = 3000\nheartbeat-interval-ms = 500\n"
#: Longest wait for a take-over and what is left to relay after it, in seconds.
RELAYED_WITHIN_S = 60.0


class Relayed:
    """A topic, the node that relays it with workers, and what it says of itself."""

    def __init__(self, clusters: Clusters, name: str, directory: Path) -> None:
        self.clusters = clusters
        self.topic = self.bridge = name
        clusters.a.create_topic(name, PARTITIONS)
        self.node = Node(
            "node-1",
            directory,
            node="workers = 2",
            rest=(
                f'[connectors.a]\nurl = "kafka://{clusters.a.bootstrap}"\n'
                f'[connectors.b]\nurl = "kafka://{clusters.b.bootstrap}"\n[connectors.b.kafka]\n{GROUP}'
                f'[[bridges]]\nname = "{name}"\nsource-connector = "a"\nstatic-connectors = ["b"]\n'
                f'queue-name = "{name}"\nconcurrency = {PARTITIONS}\nretry-interval = 200\n'
            ),
        )
        self.traffic = Traffic(seed=4, count=0, partitions=PARTITIONS)

    @contextmanager
    def sending(self, count: int, messages_per_s: float = 0) -> Iterator[None]:
        """Meanwhile so many messages are sent; at the end all of them are."""
        self.traffic = Traffic(seed=4, count=count, partitions=PARTITIONS)
        records = self.traffic.records()
        with ThreadPoolExecutor(1) as other:
            sent = other.submit(produce, self.clusters.a, self.topic, records, messages_per_s=messages_per_s)
            yield
            sent.result()

    def send(self, count: int) -> None:
        with self.sending(count):
            pass

    def acknowledged(self) -> float:
        return self.node.metrics()[f'core_bridge_messages_acknowledged_total{{bridge="{self.bridge}"}}']

    def await_all(self) -> None:
        """Everything arrives, once and in order."""
        expected = sum(record.fate is Fate.ARRIVES for record in self.traffic.records())
        with contextlib.closing(Arrivals(self.clusters.b, self.topic, PARTITIONS)) as arrivals:
            arrivals.await_count(expected, RELAYED_WITHIN_S)
        stamps = stamps_of(self.clusters.a, self.topic, self.traffic)
        report = check(self.clusters.b, self.topic, self.traffic, stamps=stamps)
        assert report.ok, str(report)

    def workers(self, number: int) -> list[int]:
        """Pids of the first so many processes."""
        eventually(lambda: len(self.node.events("worker-started")) >= number, f"{number} starts")
        return [event["pid"] for event in self.node.events("worker-started")]

    def lanes(self, workers: int = 2) -> dict[int, list[int]]:
        """By worker, once each has said which lanes are its own and together they have all."""

        def owned() -> dict[int, list[int]] | None:
            found = {event["worker"]: event["owned"] for event in self.node.events("lanes")}
            everyone = sorted(lane for lanes in found.values() for lane in lanes)
            return found if len(found) == workers and everyone == list(range(PARTITIONS)) else None

        return eventually(owned, "the workers share the lanes", RELAYED_WITHIN_S)


@pytest.fixture
def relayed(clusters: Clusters, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Relayed]:
    made = Relayed(clusters, unique("workers"), tmp_path)
    yield made
    made.node.destroy()


def test_two_workers_share_the_lanes_and_are_one_bridge(relayed: Relayed) -> None:
    relayed.send(4_000)
    relayed.node.start()
    lanes = relayed.lanes()
    assert all(lanes.values()), lanes
    relayed.await_all()
    relayed.node.await_state(relayed.bridge, "RUNNING")
    eventually(lambda: relayed.acknowledged() == 4_000, "all are acknowledged")
    assert {event["worker"] for event in relayed.node.events("bridge-connected")} == {1, 2}
    assert relayed.node.stop() == 0
    assert {event["exit"] for event in relayed.node.events("worker-ended")} == {0}


def test_a_worker_that_is_killed_loses_and_doubles_nothing(relayed: Relayed) -> None:
    relayed.node.start()
    relayed.lanes()
    with relayed.sending(8_000, messages_per_s=2_000):
        eventually(lambda: relayed.acknowledged() > 1_000, "messages are relayed")
        os.kill(relayed.workers(2)[0], signal.SIGKILL)
        before = relayed.acknowledged()
        assert before < relayed.traffic.count
        relayed.workers(3)
        assert relayed.acknowledged() >= before
    relayed.await_all()


def test_a_killed_node_leaves_no_worker_and_the_next_one_goes_on(relayed: Relayed) -> None:
    relayed.node.start()
    relayed.lanes()
    with relayed.sending(8_000, messages_per_s=2_000):
        eventually(lambda: relayed.acknowledged() > 1_000, "messages are relayed")
        assert relayed.acknowledged() < relayed.traffic.count
        relayed.node.kill()
        for pid in relayed.workers(2):
            eventually(partial(_has_ended, pid), f"worker {pid} has ended")
        relayed.node.start()
    relayed.await_all()


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_stopped_bridge_is_stopped_in_every_worker(relayed: Relayed) -> None:
    relayed.send(1_000)
    relayed.node.start()
    relayed.lanes()
    relayed.await_all()
    assert relayed.node.ops.call("POST", f"/v1/bridges/{relayed.bridge}/stop").json["state"] == "STOPPED"
    os.kill(relayed.workers(2)[0], signal.SIGKILL)
    relayed.workers(3)
    assert relayed.node.bridge_state(relayed.bridge) == "STOPPED"
    assert relayed.node.ops.call("POST", f"/v1/bridges/{relayed.bridge}/start").json["state"] == "STARTING"
    relayed.node.await_state(relayed.bridge, "RUNNING")


def test_workers_take_other_settings_of_a_bridge_while_it_relays(relayed: Relayed) -> None:
    """The same processes relay on, each lane from where it was: nothing is lost or doubled."""
    node = relayed.node.start()
    relayed.lanes()
    pids = relayed.workers(2)
    with relayed.sending(5_000, messages_per_s=500):
        for times in (1, 2):
            eventually(lambda: relayed.acknowledged() > 0, "it relays", RELAYED_WITHIN_S)
            node.rest = node.rest.removesuffix(f"max-hops = {times}\n") + f"max-hops = {times + 1}\n"
            node.write()
            node.signal(signal.SIGHUP)
            reloaded = eventually(
                lambda times=times: node.events("settings-reloaded")[times - 1 :],  # type: ignore[misc]
                "the node reloads its settings",
            )[0]
            assert reloaded["restarted"] == [relayed.bridge]
    relayed.await_all()
    assert relayed.workers(2) == pids
