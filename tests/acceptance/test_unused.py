"""Queues and addresses that come and go by themselves, on a real process."""

from __future__ import annotations

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node

GOING = """
[address-settings."temp.#"]
auto-create-queues = true
auto-delete-queues = true
auto-delete-queues-delay = "1ms"
auto-delete-addresses = true
auto-delete-addresses-delay = "1ms"
"""


def has_queue(node: Node, address: str, queue: str) -> bool:
    shown = node.api.get(f"/v1/addresses/{address}")
    return shown.status == 200 and queue in [one["name"] for one in shown.json["queues"]]


def test_a_readers_queue_comes_with_it_and_goes_with_its_address_through_kills(make_node: MakeNode) -> None:
    node = make_node("node", GOING).start()
    for address in ("temp.a", "kept"):
        assert node.api.send(address, b"m", Duplicate_Id="k").status == 200
    lease, messages = node.api.lease("temp.a", "q")
    assert [message["body"] for message in messages] == ["m"], "from the earliest message on"
    assert node.api.get("/v1/addresses/kept/queues/q/messages").status == 404, "no setting lets it come"
    node.kill()
    node.start()
    assert has_queue(node, "temp.a", "q"), "a message is leased"
    assert node.api.settle("acknowledge", "temp.a", "q", lease=lease).status == 204
    node.event("queue-deleted", address="temp.a", queue="q", reason="auto-delete-queues")
    node.event("address-deleted", address="temp.a", reason="auto-delete-addresses")
    node.kill()
    node.start()
    assert node.api.get("/v1/addresses/temp.a").status == 404
    again = node.api.send("temp.a", b"m", Duplicate_Id="k")
    assert again.json["verdict"] == "stored", "the IDs went with the address"
    assert node.api.send("kept", b"m", Duplicate_Id="k").json["verdict"] == "duplicate"


def test_a_message_that_nobody_has_read_keeps_its_address(make_node: MakeNode) -> None:
    node = make_node("node", GOING).start()
    assert node.api.send("temp.a", b"m").status == 200
    node.api.lease("temp.b", "q")
    node.event("address-deleted", address="temp.b")
    assert node.api.get("/v1/addresses/temp.a").json["messages"] == 1
    eventually(lambda: not has_queue(node, "temp.b", "q"), "it is gone")
