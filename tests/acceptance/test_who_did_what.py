"""Who is connected, who was turned away, and what operators did: in log, metrics and status."""

from __future__ import annotations

import json
import re
from datetime import datetime

from tests.harness.api import Api
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import STATE_WITHIN_S, MakeNode, bridge_to, start_together

BRIDGE = "orders-to-hub"
USERS = """
[[acceptor.users]]
name = "edge-user"
token = "of-the-edge"
link = true
send = ["orders"]
[[acceptor.users]]
name = "clerk"
token = "of-the-clerk"
send = ["orders"]
"""


def test_the_hub_names_who_is_connected_from_where_and_for_how_long(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor=USERS)
    edge = make_node("edge", rest=bridge_to(hub, connector__token='"of-the-edge"'))
    assert hub.start().metrics()["core_bridge_links_opened_total"] == 0
    edge.start().await_state(BRIDGE, "RUNNING")
    opened = hub.event("link-opened")
    who = {"bridge": BRIDGE, "peer-node": "edge", "user": "edge-user", "peer": "127.0.0.1"}
    assert {key: opened[key] for key in who} == who
    (link,) = hub.ops.get("/v1/status").json["links"]
    assert datetime.fromisoformat(link.pop("since")).year > 2000
    assert link == {
        "bridge": BRIDGE,
        "node": "edge",
        "user": "edge-user",
        "peer": "127.0.0.1",
        "frame-bytes": 0,
        "wire-bytes": 0,
    }
    assert hub.metrics()["core_bridge_links"] == 1
    text = command("status", "--settings", str(hub.file)).out
    assert f"link {BRIDGE} of edge from 127.0.0.1 user edge-user since 20" in text
    edge.kill()
    closed = hub.event("link-closed")
    assert {key: closed[key] for key in who} == who
    assert closed["reason"].startswith("TARGET_UNAVAILABLE: ")
    found = hub.metrics()
    assert (found["core_bridge_links"], found["core_bridge_links_opened_total"]) == (0, 1)
    assert hub.ops.get("/v1/status").json["links"] == []


def test_status_shows_each_bridges_lag_and_the_version(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.await_state(BRIDGE, "RUNNING")
    hub.kill()
    edge.await_state(BRIDGE, "CONNECTING", STATE_WITHIN_S)
    for _ in range(3):
        assert edge.api.send("orders", b"x").status == 200
    status = edge.ops.get("/v1/status").json
    assert status["bridges"][0]["lag"] == 3
    assert re.fullmatch(r"\d+\.\d+\.\d+", status["version"])
    assert [name for name in edge.metrics() if f'version="{status["version"]}"' in name]
    text = command("status", "--settings", str(edge.file)).out.splitlines()
    assert f"version {status['version']}" in text
    assert any(line.startswith(f"bridge {BRIDGE} CONNECTING ") and " lag 3" in line for line in text)


def test_refused_credentials_are_counted_and_logged_without_a_flood(make_node: MakeNode) -> None:
    node = make_node(acceptor=USERS, operations='tokens = ["of-operators"]').start()
    series = 'core_bridge_requests_refused_total{code="%s",listener="%s"}'
    found = node.metrics()
    for listener in ("acceptor", "operations"):
        for code in ("UNAUTHENTICATED", "FORBIDDEN", "ORIGIN_REFUSED"):
            assert found[series % (code, listener)] == 0
    for _ in range(40):
        Api(node.port, "guessed").send("orders", b"x").is_problem(401, "UNAUTHENTICATED")
    Api(node.port, "of-the-clerk").get("/v1/link").is_problem(403, "FORBIDDEN")
    Api(node.operations_port, "guessed").get("/v1/status").is_problem(401, "UNAUTHENTICATED")
    found = node.metrics()
    assert found[series % ("UNAUTHENTICATED", "acceptor")] == 40
    assert found[series % ("FORBIDDEN", "acceptor")] == 1
    assert found[series % ("UNAUTHENTICATED", "operations")] == 1
    forbidden = node.event("request-refused", code="FORBIDDEN")
    assert (forbidden["level"], forbidden["peer"]) == ("warning", "127.0.0.1")
    assert forbidden["reason"] == "clerk may not open a node link"
    node.event("request-refused", listener="operations", code="UNAUTHENTICATED", count=1)
    assert node.stop() == 0
    told = node.events("request-refused", listener="acceptor", code="UNAUTHENTICATED")
    assert sum(event["count"] for event in told) == 40
    assert len(told) < 20
    assert "guessed" not in node.log.read_text()


def test_operators_actions_are_logged_with_who_and_what(make_node: MakeNode) -> None:
    node = make_node(operations='tokens = ["of-one", "of-another"]').start()
    node.api.send("orders", b"x", Duplicate_Id="a")
    another = Api(node.operations_port, "of-another")
    assert another.get("/v1/status").status == 200
    assert another.call("DELETE", "/v1/addresses/orders/id-cache").json == {"removed": 1}
    another.call("POST", "/v1/bridges/absent/pause").is_problem(404, "NOT_FOUND")
    node.event("operator-action", outcome="NOT_FOUND")
    told = [
        (event["action"], event["user"], event["peer"], event["outcome"])
        for event in node.events("operator-action")
    ]
    assert told == [
        ("DELETE /v1/addresses/orders/id-cache", "tokens[1]", "127.0.0.1", "done"),
        ("POST /v1/bridges/absent/pause", "tokens[1]", "127.0.0.1", "NOT_FOUND"),
    ], "looking is no action"


def test_a_pause_outlives_the_node_as_the_docs_say(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.await_state(BRIDGE, "RUNNING")
    paused = command("pause", BRIDGE, "--settings", str(edge.file), "--format", "json")
    assert json.loads(paused.out)["state"] == "PAUSED"
    assert edge.stop() == 0
    edge.start().await_state(BRIDGE, "PAUSED")
    edge.api.send("orders", b"x")
    assert command("resume", BRIDGE, "--settings", str(edge.file)).code == 0
    eventually(lambda: hub.api.bodies("orders") == ["x"], "it relays")
