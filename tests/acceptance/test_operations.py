"""The contract's "HTTP on operations": probes, states, metrics, commands to bridges, ID caches."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.harness.api import Api
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import STATE_WITHIN_S, MakeNode, Node, bridge_to, start_together

BRIDGE = "orders-to-hub"

#: Every name of the contract, with the labels that it has here.
METRICS = {
    "core_bridge_messages_sent_total{bridge}",
    "core_bridge_messages_acknowledged_total{bridge}",
    "core_bridge_messages_refused_total{bridge}",
    "core_bridge_messages_resent_total{bridge}",
    "core_bridge_messages_filtered_total{bridge}",
    "core_bridge_messages_dropped_total{bridge}",
    "core_bridge_messages_not_evaluated_total{bridge}",
    "core_bridge_filter_doubtful{bridge}",
    "core_bridge_log_lines_dropped_total",
    "core_bridge_messages_unrouted_total{address}",
    "core_bridge_messages_stored_total{address}",
    "core_bridge_duplicates_rejected_total{address,kind}",
    "core_bridge_duplicates_rejected_total{bridge,kind}",
    "core_bridge_http_request_duration_seconds_bucket{kind,le,listener}",
    "core_bridge_http_request_duration_seconds_count{kind,listener}",
    "core_bridge_http_request_duration_seconds_sum{kind,listener}",
    "core_bridge_disk_free_bytes",
    "core_bridge_disk_size_bytes",
    "core_bridge_in_flight_messages{bridge}",
    "core_bridge_in_flight_bytes{bridge}",
    "core_bridge_in_flight_wanted_bytes{bridge}",
    "core_bridge_line_bytes_per_second{bridge}",
    "core_bridge_round_trip_seconds{bridge}",
    "core_bridge_limit{bridge,limit}",
    "core_bridge_bytes_resent_total{bridge}",
    "core_bridge_lag_messages{bridge}",
    "core_bridge_lag_seconds{bridge}",
    "core_bridge_parked_partitions{bridge}",
    "core_bridge_connected{bridge}",
    "core_bridge_state{bridge,state}",
    "core_bridge_throttled_seconds_total{bridge}",
    "core_bridge_reconnects_total{bridge}",
    "core_bridge_link_frame_bytes_total{bridge}",
    "core_bridge_link_wire_bytes_total{bridge}",
    "core_bridge_links_received_frame_bytes_total",
    "core_bridge_links_received_wire_bytes_total",
    "core_bridge_links",
    "core_bridge_links_opened_total",
    "core_bridge_requests_refused_total{code,listener}",
    "core_bridge_ready",
    "core_bridge_build_info{python,version}",
    "core_bridge_address_bytes{address}",
    "core_bridge_address_max_bytes{address}",
    "core_bridge_id_cache_entries{address}",
    "core_bridge_id_cache_capacity{address}",
    "core_bridge_id_cache_evictions_total{address}",
    "core_bridge_id_cache_oldest_seconds{address}",
    "core_bridge_journal_bytes",
    "core_bridge_journal_wal_bytes",
    "core_bridge_journal_commits_total",
    "core_bridge_last_progress_timestamp_seconds{bridge}",
}  # fmt: skip
STATES = {
    "STOPPED",
    "STARTING",
    "CONNECTING",
    "RUNNING",
    "WAITING",
    "SCHEDULED",
    "PAUSING",
    "PAUSED",
    "STOPPING",
    "FAILED",
}


def hub_and_edge(make_node: MakeNode, **edge: str) -> tuple[Node, Node]:
    """Both running and connected."""
    hub = make_node("hub")
    edge_node = make_node("edge", rest=bridge_to(hub, **edge))
    start_together(hub, edge_node)
    edge_node.await_state(BRIDGE, "RUNNING")
    return hub, edge_node


TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def bridge_of(node: Node, name: str = BRIDGE) -> dict[str, Any]:
    """The bridge's entry in the status."""
    found: dict[str, Any] = next(
        one for one in node.ops.get("/v1/status").json["bridges"] if one["name"] == name
    )
    return found


def operate(node: Node, verb: str, bridge: str = BRIDGE) -> tuple[int, str]:
    reply = node.ops.call("POST", f"/v1/bridges/{bridge}/{verb}")
    return reply.status, reply.json.get("state", reply.json.get("title"))


# ------------------------------------------------------------------ probes


def test_ping_answers_while_the_journal_is_still_opening(make_node: MakeNode) -> None:
    """Operations open first: a node that takes long to open is alive and not ready."""
    node = make_node().start()
    assert node.stop() == 0
    with closing(sqlite3.connect(node.data / "journal.sqlite", isolation_level=None)) as blocking:
        blocking.execute("PRAGMA locking_mode = EXCLUSIVE")
        blocking.execute("BEGIN EXCLUSIVE")
        node.spawn()
        node.ops.await_status("/ping", 200)
        ready = node.ops.get("/ready")
        assert (ready.status, ready.json["ready"]) == (503, False)
        assert ready.json["reasons"] == ["the journal is not open yet"]
        node.ops.get("/v1/addresses/orders/id-cache").is_problem(503, "JOURNAL_UNAVAILABLE")
    node.ops.await_status("/ready", 200)


def test_ready_has_exactly_the_contracts_keys(node: Node) -> None:
    assert node.ops.get("/ready").json == {"ready": True, "reasons": [], "bridges": {}}
    assert node.ops.get("/ping").status == 200


def test_a_target_that_cannot_be_reached_does_not_make_the_node_unready(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub)).start()
    edge.event("bridge-disconnected")
    ready = edge.ops.get("/ready")
    assert (ready.status, ready.json) == (
        200,
        {"ready": True, "reasons": [], "bridges": {BRIDGE: "CONNECTING"}},
    )
    hub.start()
    edge.await_state(BRIDGE, "RUNNING", STATE_WITHIN_S)


def test_a_bridge_that_failed_makes_the_node_unready_until_it_is_started_again(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, initial_connect_attempts="0"))
    edge.spawn()
    edge.event("bridge-failed")
    reply = edge.ops.await_status("/ready", 503)
    assert reply.json["ready"] is False
    assert reply.json["bridges"] == {BRIDGE: "FAILED"}
    (reason,) = reply.json["reasons"]
    assert BRIDGE in reason
    ended = command("ready", "--settings", str(edge.file))
    assert (ended.code, ended.out) == (1, f"not ready: {reason}\n")
    assert command("ready", "--alive", "--settings", str(edge.file)).code == 0
    assert edge.api.send("orders", b"x").status == 200, "the acceptor takes messages all the same"
    hub.start()
    assert operate(edge, "start")[0] == 200
    edge.await_state(BRIDGE, "RUNNING")
    assert edge.ops.get("/ready").status == 200
    eventually(lambda: hub.api.bodies("orders") == ["x"], "the message arrives")


@pytest.mark.parametrize(
    ("verb", "state", "again"), [("stop", "STOPPED", "start"), ("pause", "PAUSED", "resume")]
)
def test_what_an_operator_stops_or_pauses_stays_so_when_the_node_starts_again(
    make_node: MakeNode, verb: str, state: str, again: str
) -> None:
    hub, edge = hub_and_edge(make_node)
    assert operate(edge, verb) == (200, state)
    edge.kill()
    edge.start()
    edge.await_state(BRIDGE, state)
    assert edge.event("bridge-held", bridge=BRIDGE)["command"] == verb
    assert edge.api.send("orders", b"x").status == 200
    assert edge.stop() == 0
    edge.start()
    edge.await_state(BRIDGE, state)
    assert operate(edge, again)[0] == 200
    eventually(lambda: hub.api.bodies("orders") == ["x"], "the message arrives")
    edge.kill()
    edge.start()
    edge.await_state(BRIDGE, "RUNNING")


def test_a_target_that_stands_still_is_seen_in_the_status(make_node: MakeNode) -> None:
    """Long before the link is dead; and the status says since when, and when it last made progress."""
    hub, edge = hub_and_edge(make_node)
    assert edge.api.send("orders", b"a").status == 200
    eventually(lambda: bridge_of(edge)["last-progress"], "a receipt has come")
    hub.pause()
    assert edge.api.send("orders", b"b").status == 200
    reason = eventually(lambda: bridge_of(edge)["reason"], "the silence is shown")
    assert re.fullmatch(r"no receipt for \d+ s; 1 messages are on their way", reason)
    found = bridge_of(edge)
    assert (found["state"], found["lag"]) == ("RUNNING", 1)
    assert all(TIMESTAMP.fullmatch(found[key]) for key in ("since", "last-progress"))
    hub.resume()
    eventually(lambda: bridge_of(edge)["reason"] is None, "it goes on")
    line = next(
        one for one in command("status", "--settings", str(edge.file)).out.splitlines() if BRIDGE in one
    )
    assert f" since {found['since']} last-progress " in line


def test_reconnect_attempts_end_in_failed(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node, reconnect_attempts="1")
    hub.kill()
    edge.await_state(BRIDGE, "FAILED", 2 * STATE_WITHIN_S)


def test_a_bridge_shows_within_its_time_that_its_peer_went_and_came(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    hub.kill()
    edge.await_state(BRIDGE, "CONNECTING", STATE_WITHIN_S)
    assert edge.metrics()[f'core_bridge_connected{{bridge="{BRIDGE}"}}'] == 0
    hub.start()
    edge.await_state(BRIDGE, "RUNNING", STATE_WITHIN_S)
    assert edge.metrics()[f'core_bridge_connected{{bridge="{BRIDGE}"}}'] == 1
    assert hub.stop() == 0, "a clean stop is seen as well"
    edge.await_state(BRIDGE, "CONNECTING", STATE_WITHIN_S)


def limit_files(node: Node, size: int) -> Callable[[], None]:
    """No file of the node's grows beyond `size`, as on a full disk; answers what ends that."""
    assert node.process is not None
    process = node.process.pid
    _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))

    def lift() -> None:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))

    return lift


def test_a_node_without_room_is_not_ready_and_goes_on_by_itself(make_node: MakeNode) -> None:
    """Recovery by itself within 5 s."""
    node = make_node().start()
    lift = limit_files(node, 1_000_000)
    bodies = [f"{number}" * 100_000 for number in range(9)]
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: [node.api.send("orders", body.encode()).status for body in bodies])
        assert node.event("journal-full")["level"] == "warning"
        not_ready = node.ops.await_status("/ready", 503)
        assert not_ready.json["reasons"] == ["the disk is full"]
        assert node.ops.get("/ping").status == 200
        assert not sending.done(), "a full disk holds POSTs, as BLOCK does"
        lift()
        node.ops.await_status("/ready", 200, 5)
        assert sending.result(5) == [200] * len(bodies)
    assert node.api.bodies("orders") == bodies
    assert node.stop() == 0


def test_a_bridge_that_the_disk_keeps_from_settling_says_so(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    hub.kill()
    edge.await_state(BRIDGE, "CONNECTING", STATE_WITHIN_S)
    for number in range(3):
        assert edge.api.send("orders", b"%d" % number).status == 200
    lift = limit_files(edge, 50_000)
    hub.start()
    eventually(lambda: hub.api.bodies("orders") == ["0", "1", "2"], "they arrive")

    def reason() -> str:
        (bridge,) = edge.ops.get("/v1/status").json["bridges"]
        return str(bridge["reason"])

    eventually(lambda: "DISK_FULL" in reason(), "it says why it does not go on")
    assert edge.lag("orders") == 3
    lift()
    eventually(lambda: edge.lag("orders") == 0, "it goes on by itself")
    assert reason() == "None"


# ------------------------------------------------------------------ commands


def test_a_paused_bridge_keeps_what_comes_and_goes_on_where_it_was(make_node: MakeNode) -> None:
    """R18: what Artemis's pause could not do, resume."""
    hub, edge = hub_and_edge(make_node)
    edge.api.send("orders", b"before")
    eventually(lambda: hub.api.bodies("orders") == ["before"], "it arrives")
    assert operate(edge, "pause") == (200, "PAUSED")
    assert edge.ops.get("/ready").json["bridges"] == {BRIDGE: "PAUSED"}
    assert edge.api.send("orders", b"meanwhile").status == 200
    assert edge.lag("orders") == 1
    assert hub.api.bodies("orders") == ["before"]
    assert operate(edge, "resume")[0] == 200
    eventually(lambda: hub.api.bodies("orders") == ["before", "meanwhile"], "the rest arrives")


def test_a_stopped_bridge_starts_again(make_node: MakeNode) -> None:
    """O2."""
    hub, edge = hub_and_edge(make_node)
    assert operate(edge, "stop") == (200, "STOPPED")
    assert edge.ops.get("/ready").status == 200
    edge.api.send("orders", b"x")
    assert operate(edge, "start")[0] == 200
    edge.await_state(BRIDGE, "RUNNING", STATE_WITHIN_S)
    eventually(lambda: hub.api.bodies("orders") == ["x"], "it arrives")


def test_commands_that_the_state_forbids_are_conflicts(make_node: MakeNode) -> None:
    """O2."""
    _, edge = hub_and_edge(make_node)
    operate(edge, "stop")
    for verb in ("pause", "resume"):
        problem = edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/{verb}").is_problem(409, "CONFLICT")
        assert problem["found"] == "STOPPED"
    assert operate(edge, "stop") == (200, "STOPPED"), "what is so already may be asked for"
    assert edge.ops.call("POST", "/v1/bridges/absent/start").is_problem(404, "NOT_FOUND")
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/restart").is_problem(404, "NOT_FOUND")
    assert edge.ops.get(f"/v1/bridges/{BRIDGE}/start").is_problem(405, "METHOD_NOT_ALLOWED")


def test_commands_at_once_leave_the_bridge_in_a_state_that_can_be_left(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    verbs = ["pause", "resume", "stop", "start"] * 5
    threads = [threading.Thread(target=operate, args=(edge, verb)) for verb in verbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: operate(edge, "start")[0] == 200, "it takes start")
    edge.await_state(BRIDGE, "RUNNING")
    edge.api.send("orders", b"x")
    eventually(lambda: hub.api.bodies("orders") == ["x"], "it relays")


def test_the_status_names_the_node_and_its_bridges(make_node: MakeNode) -> None:
    _, edge = hub_and_edge(make_node)
    status = edge.ops.get("/v1/status").json
    assert (status["ready"], status["reasons"], status["node"]) == (True, [], "edge")
    (bridge,) = status["bridges"]
    assert (bridge["name"], bridge["state"], bridge["guarantee"]) == (BRIDGE, "RUNNING", "exactly-once")


def test_management_needs_the_token_and_probes_do_not(make_node: MakeNode) -> None:
    node = make_node(operations='tokens = ["s3cret"]').start()
    for path in ("/ping", "/ready", "/metrics"):
        assert node.ops.get(path).status == 200
    node.ops.get("/v1/status").is_problem(401, "UNAUTHENTICATED")
    assert Api(node.operations_port, "s3cret").get("/v1/status").status == 200


def test_operations_answer_errors_as_problems(node: Node) -> None:
    node.ops.get("/nothing").is_problem(404, "NOT_FOUND")
    node.ops.call("POST", "/ping").is_problem(405, "METHOD_NOT_ALLOWED")
    node.ops.get("/v1/status", Host="evil.example").is_problem(403, "ORIGIN_REFUSED")
    node.ops.get("/v1/addresses/absent/id-cache").is_problem(404, "ADDRESS_NOT_FOUND")


def test_an_address_is_deleted_with_all_it_has(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    node.api.send(address, b"x", Duplicate_Id="a")
    assert node.ops.call("DELETE", f"/v1/addresses/{address}").status == 204
    node.api.get(f"/v1/addresses/{address}").is_problem(404, "ADDRESS_NOT_FOUND")
    assert node.api.send(address, b"new", Duplicate_Id="a").json["verdict"] == "stored"
    assert node.api.bodies(address) == ["new"]


# ------------------------------------------------------------------ the ID cache


def id_cache(node: Node, address: str) -> dict[str, object]:
    shown: dict[str, object] = node.ops.get(f"/v1/addresses/{address}/id-cache").json
    return shown


def test_an_id_cache_is_shown_resized_and_cleared(node: Node, address: str) -> None:
    for number in range(5):
        node.api.send(address, b"x", Duplicate_Id=f"{number}")
    assert id_cache(node, address) == {"entries": 5, "capacity": 20_000, "persisted": True}
    path = f"/v1/addresses/{address}/id-cache"
    assert node.ops.call("PUT", path, size=2).json == {"size": 2, "dropped": 3}
    assert id_cache(node, address) == {"entries": 2, "capacity": 2, "persisted": True}
    assert node.api.send(address, b"x", Duplicate_Id="4").json["verdict"] == "duplicate", "the newest stay"
    assert node.api.send(address, b"x", Duplicate_Id="0").json["verdict"] == "stored", "the oldest went"
    assert node.ops.call("DELETE", path).json == {"removed": 2}
    assert node.api.send(address, b"x", Duplicate_Id="0").json["verdict"] == "stored"
    assert node.ops.call("PUT", path, size=0).json == {"size": 0, "dropped": 1}
    assert node.api.send(address, b"x", Duplicate_Id="0").json["verdict"] == "stored", "0 turns the check off"
    node.ops.call("PUT", path, size=-1).is_problem(400, "MALFORMED")


def test_ids_and_sizes_outlast_a_restart(make_node: MakeNode) -> None:
    node = make_node().start()
    for number in range(4):
        node.api.send("orders", b"x", Duplicate_Id=f"{number}")
    node.ops.call("PUT", "/v1/addresses/orders/id-cache", size=3)
    node.kill()
    node.start()
    assert id_cache(node, "orders") == {"entries": 3, "capacity": 3, "persisted": True}
    assert node.api.send("orders", b"x", Duplicate_Id="1").json["verdict"] == "duplicate"
    assert node.api.send("orders", b"x", Duplicate_Id="0").json["verdict"] == "stored"
    assert node.ops.call("DELETE", "/v1/addresses/orders/id-cache").json == {"removed": 3}
    assert node.stop() == 0
    node.start()
    assert node.api.send("orders", b"x", Duplicate_Id="1").json["verdict"] == "stored"


def test_ids_that_are_not_persisted_are_forgotten(make_node: MakeNode) -> None:
    node = make_node(rest="[duplicate-detection]\npersist-id-cache = false\nid-cache-size = 7\n").start()
    node.api.send("orders", b"x", Duplicate_Id="a")
    assert id_cache(node, "orders") == {"entries": 1, "capacity": 7, "persisted": False}
    assert node.api.send("orders", b"x", Duplicate_Id="a").json["verdict"] == "duplicate"
    assert node.stop() == 0
    node.start()
    assert node.api.send("orders", b"x", Duplicate_Id="a").json["verdict"] == "stored"


# ------------------------------------------------------------------ metrics


def test_metrics_have_the_contracts_names_and_count_what_happened(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    began = time.time()
    for number in range(10):
        edge.api.send("orders", b"%d" % number, Duplicate_Id=f"{number}")
    for number in range(3):
        edge.api.send("orders", b"again", Duplicate_Id=f"{number}")
    edge.api.send("orders", b"too large" * 200)
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    of_bridge = f'{{bridge="{BRIDGE}"}}'
    found = edge.metrics()
    assert {
        "stored": found['core_bridge_messages_stored_total{address="orders"}'],
        "dead": found['core_bridge_messages_stored_total{address="dead-letters"}'],
        "duplicates": found['core_bridge_duplicates_rejected_total{address="orders",kind="producer"}'],
        "replays": found[f'core_bridge_duplicates_rejected_total{{bridge="{BRIDGE}",kind="replay"}}'],
        "acknowledged": found[f"core_bridge_messages_acknowledged_total{of_bridge}"],
        "refused": found[f"core_bridge_messages_refused_total{of_bridge}"],
        "filtered": found[f"core_bridge_messages_filtered_total{of_bridge}"],
        "in flight": found[f"core_bridge_in_flight_messages{of_bridge}"],
        "lag": found[f"core_bridge_lag_messages{of_bridge}"],
        "lag s": found[f"core_bridge_lag_seconds{of_bridge}"],
        "connected": found[f"core_bridge_connected{of_bridge}"],
        "running": found[f'core_bridge_state{{bridge="{BRIDGE}",state="RUNNING"}}'],
        "reconnects": found[f"core_bridge_reconnects_total{of_bridge}"],
        "entries": found['core_bridge_id_cache_entries{address="orders"}'],
        "capacity": found['core_bridge_id_cache_capacity{address="orders"}'],
        "evictions": found['core_bridge_id_cache_evictions_total{address="orders"}'],
    } == {
        "stored": 11, "dead": 1, "duplicates": 3, "replays": 0, "acknowledged": 10, "refused": 1,
        "filtered": 0,
        "in flight": 0, "lag": 0, "lag s": 0, "connected": 1, "running": 1, "reconnects": 0,
        "entries": 10, "capacity": 20_000, "evictions": 0,
    }  # fmt: skip
    assert found[f"core_bridge_messages_sent_total{of_bridge}"] >= 11
    assert began <= found[f"core_bridge_last_progress_timestamp_seconds{of_bridge}"] <= time.time()
    assert 0 <= found['core_bridge_id_cache_oldest_seconds{address="orders"}'] < 60
    assert found["core_bridge_journal_bytes"] > 0
    assert found["core_bridge_journal_commits_total"] >= 2
    of_state = {series for series in found if series.startswith("core_bridge_state")}
    assert {re.findall(r'state="(\w+)"', series)[0] for series in of_state} == STATES
    assert sum(found[series] for series in of_state) == 1
    shapes = {re.sub(r'="[^"]*"', "", series) for series in found}
    assert shapes == METRICS
    assert hub.metrics()['core_bridge_messages_stored_total{address="orders"}'] == 10


def test_every_series_is_there_from_the_start_at_zero(make_node: MakeNode) -> None:
    """An alert on a counter that is not there yet never fires. What a bridge without its target has parked is
    not known.
    """
    hub = make_node("hub")
    edge = make_node("edge", rest=f'[addresses.orders]\nqueues = ["q"]\n{bridge_to(hub)}').start()
    found = edge.metrics()
    shapes = {re.sub(r'="[^"]*"', "", series) for series in found}
    not_known = {"core_bridge_parked_partitions{bridge}", "core_bridge_round_trip_seconds{bridge}"}
    assert shapes == METRICS - not_known | {"core_bridge_queue_lag_messages{address,queue}"}
    for counter in (series for series in found if "_total" in series):
        assert found[counter] == 0 or "commits" in counter, counter
    assert found[f'core_bridge_last_progress_timestamp_seconds{{bridge="{BRIDGE}"}}'] == 0


def test_the_disk_and_how_long_requests_take_are_measured(make_node: MakeNode) -> None:
    node = make_node().start()
    for number in range(3):
        assert node.api.send("orders", b"%d" % number).status == 200
    assert node.ops.call("PUT", "/v1/addresses/orders/id-cache", size=7).status == 200
    found = node.metrics()
    disk = os.statvfs(node.data)
    assert found["core_bridge_disk_size_bytes"] == disk.f_blocks * disk.f_frsize
    assert 0 < found["core_bridge_disk_free_bytes"] <= found["core_bridge_disk_size_bytes"]
    name = "core_bridge_http_request_duration_seconds"
    counts = {
        (listener, kind): found[f'{name}_count{{kind="{kind}",listener="{listener}"}}']
        for listener, kind in (("acceptor", "sends"), ("acceptor", "reads"), ("operations", "settlements"))
    }
    assert counts == {("acceptor", "sends"): 3, ("acceptor", "reads"): 0, ("operations", "settlements"): 1}
    assert found[f'{name}_bucket{{kind="sends",le="+Inf",listener="acceptor"}}'] == 3
    assert found[f'{name}_sum{{kind="sends",listener="acceptor"}}'] > 0


def test_a_full_id_cache_counts_what_it_forgets(make_node: MakeNode) -> None:
    node = make_node(rest="[address-settings.orders]\nid-cache-size = 3\n").start()
    for number in range(5):
        node.api.send("orders", b"x", Duplicate_Id=f"{number}")
    found = node.metrics()
    assert found['core_bridge_id_cache_entries{address="orders"}'] == 3
    assert found['core_bridge_id_cache_evictions_total{address="orders"}'] == 2


def test_lag_and_reconnects_are_seen_while_the_target_is_away(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    hub.kill()
    for _ in range(3):
        edge.api.send("orders", b"x")
    edge.await_state(BRIDGE, "CONNECTING", STATE_WITHIN_S)
    of_bridge = f'{{bridge="{BRIDGE}"}}'
    assert edge.metrics()[f"core_bridge_lag_messages{of_bridge}"] == 3
    eventually(lambda: edge.metrics()[f"core_bridge_lag_seconds{of_bridge}"] > 0.1, "they grow older")
    hub.start()
    eventually(lambda: edge.metrics()[f"core_bridge_lag_messages{of_bridge}"] == 0, "they arrive")
    assert edge.metrics()[f"core_bridge_reconnects_total{of_bridge}"] == 1


def test_metrics_show_what_they_had_while_the_journal_cannot_be_read(make_node: MakeNode) -> None:
    node = make_node().start()
    assert node.api.send("orders", b"1", **{"Idempotency-Key": "one"}).status == 200
    assert node.stop() == 0  # all of it is in the file, none in the write-ahead log
    node.start()
    before = node.metrics()
    size = (node.data / "journal.sqlite").stat().st_size
    # The head of the index, too: readers that find it damaged look at the file again.
    for name, damaged in (("journal.sqlite", size), ("journal.sqlite-shm", 136)):
        with (node.data / name).open("r+b") as file:
            file.write(b"\xff" * damaged)
    node.ops.await_status("/v1/addresses/orders/id-cache", 503)
    found = node.metrics()
    of_address = 'core_bridge_id_cache_entries{address="orders"}'
    assert found[of_address] == before[of_address] == 1
    assert set(found) == set(before)


def test_metrics_go_on_without_the_data_directory(make_node: MakeNode) -> None:
    """A volume that is gone: sizes of its files cannot be told, all else can."""
    node = make_node().start()
    assert node.api.send("orders", b"1").status == 200
    before = node.metrics()
    node.data.rename(node.data.with_name("elsewhere"))
    found = node.metrics()
    assert found['core_bridge_messages_stored_total{address="orders"}'] == 1
    assert set(before) - set(found) == {
        "core_bridge_disk_free_bytes",
        "core_bridge_disk_size_bytes",
        "core_bridge_journal_bytes",
        "core_bridge_journal_wal_bytes",
    }


def test_metrics_are_prometheus_text(node: Node) -> None:
    reply = node.ops.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = reply.body.decode().splitlines()
    assert "# TYPE core_bridge_messages_stored_total counter" in lines
    assert "# TYPE core_bridge_in_flight_messages gauge" in lines


@pytest.mark.parametrize(("made", "log_mode"), [(None, 0o600), (0o750, 0o640)])
def test_what_the_node_keeps_is_readable_to_its_user_alone(
    make_node: MakeNode, made: int | None, log_mode: int
) -> None:
    """Whatever the umask; the delivery log also to a group that an operator lets into its directory."""
    node = make_node(umask=0o022)
    log = node.data / "delivery-log"
    if made is not None:
        log.mkdir(parents=True)
        log.chmod(made)
        node.data.chmod(made)
    node.start()
    assert node.api.send("orders", b"x").status == 200
    eventually(node.delivery_lines, "a line is written")
    modes = {path: path.stat().st_mode & 0o777 for path in [node.data, *node.data.rglob("*")]}
    assert {path.name for path in modes} >= {"journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"}
    for path, mode in modes.items():
        if path.is_dir():
            assert mode == (made or 0o700), path
        else:
            assert mode == (log_mode if ".jsonl" in path.name else 0o600), path
    assert node.stop() == 0
    assert {path.stat().st_mode & 0o177 for path in node.data.rglob("*.sqlite")} == {0}
