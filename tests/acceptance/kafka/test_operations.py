"""A node with Kafka bridges seen by its operators: states, probes, metrics, commands, log lines."""

from __future__ import annotations

import json
import math
import time

import pytest

from bridge.demo.ports import free_ports
from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, plain, read, send, values
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters

STATES = ("STOPPED", "STARTING", "CONNECTING", "RUNNING", "PAUSING", "PAUSED", "STOPPING", "FAILED")


def order(node: Node, bridge: str, verb: str) -> int:
    return node.ops.call("POST", f"/v1/bridges/{bridge}/{verb}").status


def sample(node: Node, name: str, bridge: str) -> float:
    """A sample of the bridge; NaN where the series is missing, as a lag that is not known."""
    return node.metrics().get(f'core_bridge_{name}{{bridge="{bridge}"}}', math.nan)


def test_what_a_bridge_says_when_it_starts_and_connects(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Contract, Logs: `bridge-started` with all its keys; `bridge-connected`."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    rest = "[duplicate-detection]\nid-cache-size = 77\n"
    node = make_node(rest + kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    started = node.event("bridge-started", bridge=bridge)
    assert (started["source"], started["target"]) == (f"a:{topic}", "b")
    assert started["guarantee"] == "exactly-once"
    assert started["check-producer-ids"] is True
    assert started["id-cache-size"] == 77
    assert (started["node"], started["level"]) == ("node-1", "info")
    assert node.event("bridge-connected", bridge=bridge)["store"].startswith("kafka:")
    checked = command("validate", "--settings", str(node.file))
    assert checked.out.splitlines()[1:] == [f"{bridge}: a:{topic} -> b: exactly-once"]
    node.await_state(bridge, "RUNNING")
    reply = node.ops.get("/ready")
    assert (reply.status, reply.json) == (200, {"ready": True, "reasons": [], "bridges": {bridge: "RUNNING"}})
    assert node.stop() == 0
    assert node.event("stopped")["queued"] == 0


def test_stop_start_pause_and_resume(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """R1, R18, R19: nothing moves meanwhile, and then everything comes once, in order."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=2)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    send(clusters.a, topic, plain("0"))
    read(clusters.b, topic, 1)
    expected = [b"0"]
    for number, (halt, halted, go) in enumerate(
        [("stop", "STOPPED", "start"), ("pause", "PAUSED", "resume"), ("pause", "PAUSED", "start")], 1
    ):
        ended = command(halt, bridge, "--operations", f"http://127.0.0.1:{node.operations_port}")
        assert ended.code == 0, ended
        node.await_state(bridge, halted)
        assert order(node, bridge, halt) == 200, "a second time is no mistake"
        send(clusters.a, topic, plain(str(number)))
        assert node.ops.get("/ready").status == 200, "stopped by hand is no failure"
        assert values(read(clusters.b, topic, len(expected))) == expected
        ended = command(go, bridge, "--operations", f"http://127.0.0.1:{node.operations_port}")
        assert ended.code == 0, ended
        expected.append(str(number).encode())
        assert values(read(clusters.b, topic, len(expected))) == expected
        node.await_state(bridge, "RUNNING")
    assert order(node, "nobody", "stop") == 404


def test_lag_is_what_the_target_has_not_got(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """Metrics of a bridge whose target cannot take messages now; and again when it can."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain(*map(str, range(25))))
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, create_topics=False)).start()
    eventually(lambda: sample(node, "lag_messages", bridge) == 25, "25 wait")
    eventually(lambda: sample(node, "lag_seconds", bridge) > 0, "for some time")
    clusters.b.create_topic(topic)
    read(clusters.b, topic, 25)
    eventually(lambda: sample(node, "lag_messages", bridge) == 0, "nothing waits")
    assert sample(node, "lag_seconds", bridge) == 0
    samples = node.metrics()
    assert samples[f'core_bridge_connected{{bridge="{bridge}"}}'] == 1
    states = {state: samples[f'core_bridge_state{{bridge="{bridge}",state="{state}"}}'] for state in STATES}
    assert states == {state: float(state == "RUNNING") for state in STATES}
    assert time.time() - sample(node, "last_progress_timestamp_seconds", bridge) < 60
    assert sample(node, "in_flight_messages", bridge) == 0


def test_status_shows_a_kafka_bridge(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """`core-bridge status`, as text and as JSON, and `GET /v1/status`."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1"))
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    await_progress(clusters.a, bridge, topic)
    eventually(lambda: node.status(bridge)["acknowledged"] == 2, "both are confirmed")
    found = node.status(bridge)
    assert (found["state"], found["in-flight"]) == ("RUNNING", 0)
    where = ("--operations", f"http://127.0.0.1:{node.operations_port}")
    ways = (*where, "--url", f"http://127.0.0.1:{node.port}")
    ended = command("status", *ways)
    assert ended.code == 0
    (line,) = (one for one in ended.out.splitlines() if bridge in one)
    assert "RUNNING" in line
    ended = command("status", *ways, "--format", "json")
    assert ended.code == 0
    assert bridge in json.dumps(json.loads(ended.out))


def test_sigterm_drains_and_nothing_is_lost_or_doubled(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Stopped while it relays: exit 0, at a batch's end; the next process goes on there."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    expected = [b"%05d" % number for number in range(20_000)]
    send(clusters.a, topic, (Record(value) for value in expected))
    options = {"queue_name": topic, "producer_window_size": "16KiB"}
    node = make_node(kafka_bridge(clusters._asdict(), bridge, **options)).start()
    eventually(lambda: node.status(bridge)["acknowledged"], "some are confirmed")
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < 10
    assert node.event("stopped")
    some = read(clusters.b, topic)
    assert values(some) == expected[: len(some)]
    node.start()
    assert values(read(clusters.b, topic, len(expected))) == expected
    assert node.stop() == 0


@pytest.mark.parametrize("end", ["target", "source"])
def test_a_broker_goes_and_comes_back(
    clusters: Clusters, own_cluster: Cluster, named: Named, make_node: MakeNode, end: str
) -> None:
    """R3, R11, R21: CONNECTING, a try every retry-interval, and RUNNING; ready throughout; lag grows.

    When a broker that was started again serves transactions is for it to say, not for a clock here.
    """
    bridge, topic = named("bridge"), named("orders")
    source, target = (clusters.a, own_cluster) if end == "target" else (own_cluster, clusters.b)
    source.create_topic(topic)
    node = make_node(kafka_bridge({"a": source, "b": target}, bridge, queue_name=topic)).start()
    send(source, topic, plain("0", "1"))
    read(target, topic, 2)
    await_progress(source, bridge, topic)
    own_cluster.broker(1).kill()
    node.await_state(bridge, "CONNECTING")
    gone = node.event("bridge-disconnected", bridge=bridge)
    assert gone["reason"]
    assert 100 <= gone["retry-in-ms"] <= 200
    assert node.ops.get("/ready").status == 200
    assert sample(node, "connected", bridge) == 0
    if end == "target":
        for _ in range(3):
            send(source, topic, plain("2"))
        eventually(lambda: sample(node, "lag_messages", bridge) == 3, "what waits is counted")
        eventually(lambda: sample(node, "lag_seconds", bridge) > 0, "and its age")
    own_cluster.broker(1).restart()
    node.await_state(bridge, "RUNNING")
    waits = [one["retry-in-ms"] for one in node.events("bridge-disconnected", bridge=bridge)]
    assert all(100 <= wait <= 200 for wait in waits), waits
    assert sample(node, "connected", bridge) == 1
    assert sample(node, "reconnects_total", bridge) >= 1
    send(source, topic, plain("3"))
    expected = [b"0", b"1", b"2", b"2", b"2", b"3"] if end == "target" else [b"0", b"1", b"3"]
    assert values(read(target, topic, len(expected))) == expected


@pytest.mark.parametrize("end", ["target", "source"])
def test_an_unreachable_broker_is_said_once_and_waited_for(
    clusters: Clusters, named: Named, make_node: MakeNode, end: str
) -> None:
    """R21: CONNECTING, ready, the same reason once, no trace; SIGTERM ends it at once with 0."""
    bridge, topic = named("bridge"), named("orders")
    clusters.a.create_topic(topic)
    (port,) = free_ports(1)
    nobody = f"127.0.0.1:{port}"
    ends: dict[str, Reachable | str]
    ends = {"a": clusters.a, "b": nobody} if end == "target" else {"a": nobody, "b": clusters.b}
    node = make_node(kafka_bridge(ends, bridge, queue_name=topic)).start()
    node.await_state(bridge, "CONNECTING")
    said = node.event("bridge-disconnected", bridge=bridge)
    assert str(port) in said["reason"]
    assert 100 <= said["retry-in-ms"] <= 200
    time.sleep(1)  # five retries, each of which must keep silent
    assert len(node.events("bridge-disconnected")) == 1
    assert node.ops.get("/ready").status == 200
    assert node.status(bridge)["reason"]
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < 5


def test_attempts_that_are_used_up_fail_the_bridge_and_start_tries_again(
    clusters: Clusters, own_cluster: Cluster, named: Named, make_node: MakeNode
) -> None:
    """R4, R5: `initial-connect-attempts`; not ready, `bridge-failed`; mended, `start` works."""
    bridge, topic = named("a-to-own"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0"))
    own_cluster.broker(1).kill()
    node = make_node(
        kafka_bridge(
            {"a": clusters.a, "own": own_cluster},
            bridge,
            target="own",
            queue_name=topic,
            initial_connect_attempts=1,
        )
    ).start_listening()
    reason = node.await_failed(bridge)
    assert node.event("bridge-failed", bridge=bridge)["reason"] in reason
    reply = node.ops.get("/ready")
    assert (reply.status, reply.json["ready"]) == (503, False)
    assert any(bridge in one for one in reply.json["reasons"]), reply.json
    own_cluster.broker(1).restart()
    assert order(node, bridge, "start") == 200
    assert values(read(own_cluster, topic, 1)) == [b"0"]
    node.await_state(bridge, "RUNNING")
    assert node.ops.get("/ready").status == 200
    assert node.stop() == 0


def test_further_options_go_to_the_clients_that_have_them(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B30: kebab-case options of aiokafka's consumer and producer, compression among them."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    options = {
        "client-id": bridge,
        "compression-type": "gzip",
        "linger-ms": 1,
        "fetch-max-wait-ms": 50,
        "max-partition-fetch-bytes": 65536,
        "max-poll-records": 7,
        "metadata-max-age-ms": 5000,
        "request-timeout-ms": 30000,
        "session-timeout-ms": 6000,
        "heartbeat-interval-ms": 1000,
        "check-crcs": True,
    }
    rest = connector_tables(clusters._asdict(), {"a": options, "b": options})
    rest += bridge_table(bridge, queue_name=topic, source_connector="a", static_connectors=["b"])
    node = make_node(rest).start()
    sent = [Record(b"%03d" % number * 1000) for number in range(100)]
    send(clusters.a, topic, sent)
    assert values(read(clusters.b, topic, 100)) == values(sent)
    assert node.stop() == 0
    assert not node.events("library"), "no client complains"


def test_topics_that_are_not_there_are_waited_for(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """The source's topic is made after the bridge was started; never by the bridge itself."""
    bridge, topic = named("a-to-b"), named("orders")
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    node.event("bridge-started")
    time.sleep(1)  # long enough for a client that would make it
    assert topic not in clusters.a.topics()
    assert node.ops.get("/ready").status == 200
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0"))
    assert values(read(clusters.b, topic, 1, within_s=30)) == [b"0"]


def test_wrong_use_of_commands_ends_with_a_word_and_no_trace(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Exit codes of `positions`, `lanes`, `stop` where the bridge, the broker or the number is wrong."""
    bridge, topic = named("a-to-b"), named("orders")
    (port,) = free_ports(1)
    node = make_node(kafka_bridge({"a": clusters.a, "b": f"127.0.0.1:{port}"}, bridge, queue_name=topic))
    file = ("--settings", str(node.write()))
    for arguments, code, said in [
        (("positions", "nobody", "--from", "target", *file), 1, "nobody"),
        (("positions", bridge, "--from", "middle", *file), 2, "middle"),
        (("lanes", bridge, "--set", "0", *file), (1, 2), "0"),
        (("lanes", bridge, "--set", "4", "--yes", *file), 1, str(port)),
        (("lanes", "nobody", "--set", "4", *file), 1, "nobody"),
    ]:
        ended = command(*arguments)
        assert ended.code in (code if isinstance(code, tuple) else (code,)), (arguments, ended)
        assert said in ended.err, (arguments, ended)
