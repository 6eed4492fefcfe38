"""A bridge with two hubs: another store is refused, or gone on with, and the bridge goes back when told."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.harness.commands import Ended, command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

BRIDGE = "orders-to-hub"


def to_both(first: Node, second: Node, failover: str) -> str:
    """TOML of a bridge to both hubs, which leaves one after a single try."""
    return (
        f'[connectors.hub-a]\nurl = "{first.url}"\n[connectors.hub-b]\nurl = "{second.url}"\n'
        f'[[bridges]]\nname = "{BRIDGE}"\nqueue-name = "orders"\nstatic-connectors = ["hub-a", "hub-b"]\n'
        f'failover = "{failover}"\nreconnect-attempts-same-node = 1\n'
        "retry-interval = 100\nmax-retry-interval = 100\n"
    )


def put(edge: Node, *numbers: int) -> None:
    for number in numbers:
        assert edge.api.send("orders", f"m{number}".encode()).status == 200


def arrive(hub: Node, *numbers: int) -> None:
    """Exactly these have arrived there, in order."""
    wanted = [f"m{number}" for number in numbers]
    eventually(lambda: hub.api.bodies("orders") == wanted, f"{hub.name} has {wanted}")


def positions(edge: Node, *more: str) -> Ended:
    """The lines of `positions --from group --dry-run`."""
    return command("positions", BRIDGE, "--from", "group", "--dry-run", "--settings", str(edge.file), *more)


def test_two_hubs(make_node: MakeNode) -> None:
    """R22, R24"""
    first, second = make_node("hub-a"), make_node("hub-b")
    edge = make_node("edge", rest=to_both(first, second, "refuse"))
    start_together(first, second)  # the edge would take the one that answers first
    edge.start()
    put(edge, 0, 1)
    arrive(first, 0, 1)
    assert edge.status(BRIDGE)["connector"] == "hub-a"

    first.kill()
    put(edge, 2)
    refused = "hub-b: another store than before"
    eventually(lambda: refused in edge.status(BRIDGE)["reason"], "the second is refused")
    assert edge.status(BRIDGE)["state"] == "CONNECTING", "the first may come back"
    assert edge.stop() == 0
    ended = positions(edge)
    assert ended.code == 1
    for part in ("known to lead there: hub-a: TARGET_UNAVAILABLE", "hub-b leads to ", "--connector NAME"):
        assert part in ended.err
    ended = positions(edge, "--connector", "hub-b")
    assert (ended.code, ended.out.startswith("at hub-b: orders (")) == (0, True), ended
    assert "unknown to the target" in ended.out
    assert "goes on at 2" in ended.out
    edge.rest = to_both(first, second, "at-least-once")
    edge.start()
    arrive(second, 2)
    status = edge.status(BRIDGE)
    assert (status["connector"], status["guarantee"]) == ("hub-b", "at-least-once")
    assert status["store"] == second.ops.get("/v1/status").json["store"]
    (doubt,) = edge.events("failover-in-doubt")
    assert (doubt["upto"] - doubt["from"], doubt["store"]) == (1, status["store"])

    first.start()
    put(edge, 3)
    arrive(second, 2, 3)
    where = ("--operations", f"http://127.0.0.1:{edge.operations_port}")
    ended = command("failback", BRIDGE, *where)
    assert (ended.code, ended.out) == (0, f"{BRIDGE}: RUNNING\n")
    eventually(lambda: edge.status(BRIDGE)["connector"] == "hub-a", "it is back")
    put(edge, 4)
    arrive(first, 0, 1, 4)
    arrive(second, 2, 3)
    assert len(edge.events("failover-in-doubt")) == 1
    assert (
        "orders-to-hub RUNNING journal:orders -> hub-a,hub-b by hub-a"
        in command("status", *where, "--url", edge.url).out
    )

    first.kill()
    put(edge, 5)
    arrive(second, 2, 3, 5)
    first.start()
    assert edge.stop() == 0
    assert positions(edge).out.startswith("at hub-b: orders ("), "it is where the bridge was last"
    ended = positions(edge, "--connector", "hub-a")
    assert "covered by the target up to 5; " in ended.out
    assert "positions 5 to 5 are passed over and not delivered" in ended.out


def test_without_another_connector_there_is_nowhere_to_go_back_to(make_node: MakeNode) -> None:
    first = make_node("hub-a")
    rest = bridge_to(first, BRIDGE)
    edge = make_node("edge", rest=rest)
    start_together(first, edge)
    edge.await_state(BRIDGE, "RUNNING")
    reply = edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/failback")
    assert (reply.status, reply.json["title"]) == (409, "CONFLICT")
    assert "one connector" in reply.json["detail"]


def test_a_hub_that_was_put_back_while_the_bridge_was_elsewhere_gets_again_what_it_lost(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """What the edge still has, and nothing that the other hub has; what is gone stops the bridge by its
    numbers."""
    first, second = make_node("hub-a"), make_node("hub-b")
    edge = make_node("edge", rest=to_both(first, second, "at-least-once"))
    start_together(first, second)
    edge.start()
    put(edge, 0, 1)
    arrive(first, 0, 1)
    assert first.stop() == 0
    eventually(lambda: edge.status(BRIDGE)["connector"] == "hub-b", "it is at the second")
    shutil.copytree(first.data, tmp_path / "backup")
    first.start()
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/failback").status == 200
    eventually(lambda: edge.status(BRIDGE)["connector"] == "hub-a", "it is back")
    assert edge.api.make_queue("orders", "keeps", **{"from": "latest"}) == 201
    put(edge, 2, 3)
    arrive(first, 0, 1, 2, 3)

    def put_back() -> None:
        first.kill()
        eventually(lambda: edge.status(BRIDGE)["connector"] == "hub-b", "it is at the second")
        shutil.rmtree(first.data)
        shutil.copytree(tmp_path / "backup", first.data)
        first.start()

    put_back()
    put(edge, 4)
    arrive(second, 4)
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/failback").status == 200
    arrive(first, 0, 1, 2, 3)
    assert edge.event("target-went-back")["missing"] == [[2, 3]]
    put(edge, 5)
    arrive(first, 0, 1, 2, 3, 5)
    arrive(second, 4)

    def missing() -> list[tuple[str, int, int]]:
        lines = [line for line in edge.delivery_lines() if line.get("verdict") == "missing"]
        return [(line["side"], line["from"], line["upto"]) for line in lines]

    eventually(lambda: missing() == [("sent", 2, 4)], "the log says what is missing")

    put_back()
    put(edge, 6)
    arrive(second, 4, 6)
    assert edge.api.call("DELETE", "/v1/addresses/orders/queues/keeps").status == 204
    eventually(lambda: edge.api.get("/v1/addresses/orders").json["first"] >= 6, "the edge has dropped them")
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/failback").status == 200
    eventually(lambda: edge.status(BRIDGE)["state"] == "FAILED", "it has stopped")
    assert "SOURCE_GAP" in edge.status(BRIDGE)["reason"]
    assert edge.events("target-went-back")[-1]["missing"] == [[2, 3], [5, 5]]
