"""Nodes that relay to nodes: what arrives, with which IDs, over which links, and what is refused."""

from __future__ import annotations

import base64
import http.client
import re
import uuid
from pathlib import Path

import pytest

from tests.harness.api import titles
from tests.harness.certificates import client_tls
from tests.harness.eventually import eventually
from tests.harness.node import STATE_WITHIN_S, MakeNode, Node, bridge_to, start_together

BRIDGE = "orders-to-hub"
MIB = 1024 * 1024


def arrived(node: Node, number: int, address: str = "orders") -> list[dict[str, object]]:
    """The messages, once there are so many."""

    def look() -> list[dict[str, object]] | None:
        messages = node.api.browse(address)
        return messages if len(messages) >= number else None

    messages = eventually(look, f"{number} messages at {node.name}")
    assert len(messages) == number
    return messages


def test_everything_of_a_message_travels(make_node: MakeNode) -> None:
    """D30: and nothing is added to its headers."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.api.commit(
        {"address": "orders", "body": "text", "key": "k", "headers": {"h": ["1", "2"]}, "timestamp": 7,
         "duplicate-id": "own"},
        {"address": "orders", "body-base64": "/w==", "duplicate-id": {"base64": "/v8="}},
        {"address": "orders", "body": None},
    )  # fmt: skip
    text, data, tombstone = arrived(hub, 3)
    assert (text["body"], text["key"], text["headers"], text["timestamp"], text["duplicate-id"]) == (
        "text", "k", {"h": ["1", "2"]}, 7, "own",
    )  # fmt: skip
    assert (data["body-base64"], data["duplicate-id"]) == ("/w==", {"base64": "/v8="})
    assert tombstone["body"] is None


def test_a_stamped_id_is_null_at_the_edge_and_text_at_the_hub(make_node: MakeNode) -> None:
    """And the same through a chain: an ID is stamped of where its message was first stored."""
    hub = make_node("hub").start()
    middle = make_node("middle", rest=bridge_to(hub)).start()
    edge = make_node("edge", rest=bridge_to(middle, "orders-to-middle", connector="middle"))
    edge.rest = edge.rest + '[address-settings."#"]\nauto-create-addresses = true\n'
    edge.start()
    edge.api.make_queue("orders", "keep")
    middle.api.make_queue("orders", "keep")
    for number in range(3):
        edge.api.send("orders", b"%d" % number)
    edge.api.send("orders", b"3", Duplicate_Id="own")
    at_hub = arrived(hub, 4)
    assert [m["duplicate-id"] for m in edge.api.browse("orders")] == [None, None, None, "own"]
    stamped = [message["duplicate-id"] for message in at_hub]
    assert [m["duplicate-id"] for m in middle.api.browse("orders")] == stamped, "the chain keeps them"
    ids = [uuid.UUID(str(text)) for text in stamped[:3]]
    assert [one.version for one in ids] == [8, 8, 8]
    assert all(re.fullmatch(r"[0-9a-f-]{36}", str(text)) for text in stamped[:3])
    assert len(set(ids)) == 3
    assert stamped[3] == "own"
    assert titles(at_hub) == list("0123")


def test_ids_do_not_change_when_the_sender_is_killed(make_node: MakeNode) -> None:
    hub = make_node("hub")
    other = make_node("other").start()
    edge = make_node("edge", rest=bridge_to(hub) + bridge_to(other, "to-other", connector="other")).start()
    edge.api.send("orders", b"x")
    (at_other,) = arrived(other, 1)
    edge.kill()
    edge.start()
    hub.start()
    (at_hub,) = arrived(hub, 1)
    assert at_hub["duplicate-id"] == at_other["duplicate-id"]


def test_one_address_goes_to_two_hubs_each_at_its_own_pace(make_node: MakeNode) -> None:
    near, far = make_node("near").start(), make_node("far")
    rest = bridge_to(near, "to-near", connector="near") + bridge_to(far, "to-far", connector="far")
    edge = make_node("edge", rest=rest).start()
    for number in range(5):
        edge.api.send("orders", b"%d" % number)
    assert titles(arrived(near, 5)) == list("01234")
    eventually(lambda: edge.api.get("/v1/addresses/orders").json["bridges"][1]["lag"] == 0, "near is settled")
    bridges = edge.api.get("/v1/addresses/orders").json["bridges"]
    assert all(set(bridge) == {"name", "state", "next", "lag", "in-flight"} for bridge in bridges)
    assert [(b["name"], b["state"], b["lag"]) for b in bridges] == [
        ("to-far", "CONNECTING", 5),
        ("to-near", "RUNNING", 0),
    ]
    assert edge.api.get("/v1/addresses/orders").json["messages"] == 5, "kept for the far one"
    far.start()
    assert titles(arrived(far, 5)) == list("01234")
    eventually(lambda: edge.api.get("/v1/addresses/orders").json["messages"] == 0, "nobody needs them")


def test_a_target_that_comes_late_gets_everything_in_order(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub)).start()
    for number in range(50):
        edge.api.send("orders", b"%d" % number)
    edge.event("bridge-disconnected")
    hub.start()
    edge.await_state(BRIDGE, "RUNNING", STATE_WITHIN_S)
    assert titles(arrived(hub, 50)) == [f"{number}" for number in range(50)]


@pytest.mark.parametrize("crash", ["link.before-receipt:2", "journal.after-commit:4", "link.after-receipt:1"])
def test_a_receiver_killed_around_its_receipt_gets_nothing_twice(make_node: MakeNode, crash: str) -> None:
    hub = make_node("hub").start(CORE_BRIDGE_CRASH_AT=crash)
    edge = make_node("edge", rest=bridge_to(hub)).start()
    edge.await_state(BRIDGE, "RUNNING")
    for number in range(30):
        edge.api.send("orders", b"%d" % number)
    assert hub.wait() == -9
    hub.start()
    assert titles(arrived(hub, 30)) == [f"{number}" for number in range(30)]
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    assert len(hub.api.browse("orders")) == 30


@pytest.mark.parametrize("crash", ["link.after-batch:3", "source.before-settle:2", "source.after-settle:2"])
def test_a_sender_killed_in_between_sends_nothing_twice(make_node: MakeNode, crash: str) -> None:
    hub = make_node("hub").start()
    edge = make_node("edge", rest=bridge_to(hub)).start(CORE_BRIDGE_CRASH_AT=crash)
    for number in range(30):
        try:
            edge.api.send("orders", b"%d" % number, Duplicate_Id=f"{number}")
        except (OSError, http.client.HTTPException):
            break
    assert edge.wait() == -9
    edge.start()
    for number in range(30):
        edge.api.send("orders", b"%d" % number, Duplicate_Id=f"{number}")
    assert titles(arrived(hub, 30)) == [f"{number}" for number in range(30)]


def test_a_message_of_16_mib_travels(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    large = b"0123456789abcdef" * MIB
    edge.api.send("orders", b"before")
    edge.api.send("orders", large)
    edge.api.send("orders", b"after")
    before, middle, after = _raw(hub, 3)
    assert (before, after) == (b"before", b"after")
    assert middle == large


def _raw(node: Node, number: int) -> list[bytes]:
    eventually(lambda: _next(node) == number, f"{number} messages")
    return [node.api.get(f"/v1/addresses/orders/messages/{position}").body for position in range(number)]


def _next(node: Node) -> int:
    reply = node.api.get("/v1/addresses/orders")
    return int(reply.json["next"]) if reply.status == 200 else 0


def test_what_the_target_refuses_becomes_a_dead_letter_and_the_rest_goes_on(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.api.send("orders", b"a")
    edge.api.send("orders", b"x" * 1025, Duplicate_Id="big-1", Message_Header_Region="EU", Message_Key="k")
    edge.api.send("orders", b"b")
    edge.api.send("orders", b"y" * 1025)
    edge.api.send("orders", b"z" * 1024)
    assert titles(arrived(hub, 3)) == ["a", "b", "z" * 1024]
    first, second = arrived(edge, 2, "dead-letters")
    assert (first["body"], first["duplicate-id"], first["key"]) == ("x" * 1025, "big-1", "k")
    headers = first["headers"]
    assert isinstance(headers, dict)
    assert set(headers) == {"region"} | {
        f"core-bridge-{name}" for name in ("reason", "bridge", "address", "stream", "position")
    }
    assert (headers["region"], headers["core-bridge-bridge"], headers["core-bridge-address"]) == (
        "EU", BRIDGE, "orders",
    )  # fmt: skip
    assert headers["core-bridge-reason"].startswith("MESSAGE_TOO_LARGE")
    assert re.fullmatch(r"journal:[0-9a-f]+:orders:0", headers["core-bridge-stream"])
    assert headers["core-bridge-position"] == "1"
    assert second["body"] == "y" * 1025
    assert uuid.UUID(str(second["duplicate-id"])).version == 8, "its own ID: the stamped one"
    assert edge.bridge_state(BRIDGE) == "RUNNING"
    edge.kill()
    edge.start()
    edge.await_state(BRIDGE, "RUNNING")
    assert len(edge.api.browse("dead-letters")) == 2


def test_without_a_dead_letter_address_the_first_refusal_fails_the_bridge(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub, dead_letter_address='""'))
    start_together(hub, edge)
    edge.api.send("orders", b"x" * 2000)
    assert "MESSAGE_TOO_LARGE" in edge.event("bridge-failed")["reason"]
    assert edge.bridge_state(BRIDGE) == "FAILED"
    assert edge.lag("orders") == 1, "it stays where it is"


def test_a_full_target_is_waited_for_and_never_dead_lettered(make_node: MakeNode) -> None:
    """NOT_NOW: tried again with back-off until there is room."""
    limits = '[address-settings."#"]\nmax-size-bytes = "10KiB"\naddress-full-policy = "FAIL"\n'
    hub = make_node("hub", rest=limits + '[addresses.orders]\nqueues = ["q"]\n')
    edge = make_node("edge", rest=bridge_to(hub, producer_window_size='"8KiB"'))
    start_together(hub, edge)
    for number in range(6):
        edge.api.send("orders", b"%d" % number * 4096)
    eventually(lambda: hub.api.get("/v1/addresses/orders").json["bytes"] >= 10_240, "it is full")
    read: list[str] = []
    while len(read) < 6:
        lease, messages = hub.api.lease("orders", "q", "wait=5000")
        assert lease is not None
        read += [str(message["body"])[:1] for message in messages]
        hub.api.settle("acknowledge", "orders", "q", lease=lease)
    assert read == list("012345")
    assert edge.api.browse("dead-letters") == []


# ------------------------------------------------------------------ which messages, and where to


def test_lists_patterns_and_exclusions_choose_addresses(make_node: MakeNode) -> None:
    hub = make_node("hub").start()
    selects = r"""["invoices", '/orders\..*/', "!orders.test"]"""
    edge = make_node(
        "edge", rest=bridge_to(hub, queue_name=selects, forwarding_address='"edge.{address}"')
    ).start()
    for address in ("invoices", "orders.eu", "orders.test", "others"):
        edge.api.send(address, address.encode())
    eventually(lambda: hub.api.bodies("edge.orders.eu") == ["orders.eu"], "it arrives")
    eventually(lambda: hub.api.bodies("edge.invoices") == ["invoices"], "it arrives")
    edge.api.send("orders.new", b"new")
    eventually(lambda: hub.api.bodies("edge.orders.new") == ["new"], "addresses that come later are taken")
    found = {entry["address"] for entry in hub.api.get("/v1/addresses").json["addresses"]}
    assert found == {"edge.orders.eu", "edge.invoices", "edge.orders.new"}


def test_a_bridge_may_stay_within_its_node(make_node: MakeNode) -> None:
    rest = (
        '[[bridges]]\nname = "copy"\nqueue-name = "orders"\nforwarding-address = "copies"\n'
        'static-connectors = ["journal"]\n'
    )
    node = make_node(rest=rest).start()
    node.api.send("orders", b"x", Duplicate_Id="a")
    (copy,) = arrived(node, 1, "copies")
    assert (copy["body"], copy["duplicate-id"]) == ("x", "a")


def test_a_backlog_is_sent_once_and_in_order_by_a_sender_that_is_killed(make_node: MakeNode) -> None:
    """P1, P4, R25: what was in flight returns to its place."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, producer_window_size='"4KiB"')).start()
    bodies = [f"{number:03}" + "." * 1000 for number in range(200)]
    for body in bodies:
        assert edge.api.send("orders", body.encode()).status == 200
    edge.stop()
    edge.start(CORE_BRIDGE_CRASH_AT="link.after-batch:30")
    hub.start()
    assert edge.wait() == -9
    # How many are stored is chance: answers that it had not read reset the connection at the hub, too.
    assert len(hub.api.browse("orders")) < 200
    edge.start()
    assert titles(arrived(hub, 200)) == bodies
    eventually(lambda: edge.lag("orders") == 0, "all is settled")


def test_an_address_has_one_cache_of_ids_and_one_size_whoever_brings_them(make_node: MakeNode) -> None:
    """D12: none for bridges beside it, under another name."""
    hub = make_node("hub", rest="[address-settings.orders]\nid-cache-size = 2\n")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    for name in ("a", "b", "c"):
        assert edge.api.send("orders", name.encode(), Duplicate_Id=name).status == 200
    arrived(hub, 3)
    shown = {"entries": 2, "capacity": 2}
    assert hub.ops.get("/v1/addresses/orders/id-cache").json == shown | {"persisted": True}
    assert hub.api.get("/v1/addresses/orders").json["id-cache"] == shown
    (of_status,) = hub.ops.get("/v1/status").json["addresses"]
    assert of_status["id-cache"] == shown
    verdicts = [hub.api.send("orders", b"", Duplicate_Id=name).json["verdict"] for name in ("c", "b", "a")]
    assert verdicts == ["duplicate", "duplicate", "stored"]


def test_a_stamped_id_that_a_client_sends_is_an_id_of_its_own(make_node: MakeNode) -> None:
    """D28: a bridge's replay is told by its position, not by an ID that a client could take."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.api.send("orders", b"bridged")
    (message,) = arrived(hub, 1)
    stamped = str(message["duplicate-id"])
    verdicts = [hub.api.send("orders", b"sent", Duplicate_Id=stamped).json["verdict"] for _ in range(2)]
    assert verdicts == ["stored", "duplicate"]


@pytest.mark.parametrize(
    ("checks", "again"), [("true", "duplicate"), ('"auto"', "stored"), ("false", "stored")]
)
def test_a_producer_sends_straight_to_the_hub_what_a_bridge_has_brought(
    make_node: MakeNode, checks: str, again: str
) -> None:
    """D29"""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, check_producer_ids=checks))
    start_together(hub, edge)
    edge.api.send("orders", b"m", Duplicate_Id="own")
    arrived(hub, 1)
    assert hub.api.send("orders", b"m", Duplicate_Id="own").json["verdict"] == again
    assert hub.api.send("orders", b"m", Duplicate_Id="own").json["verdict"] == "duplicate"


def test_producers_ids_are_checked_at_the_target(make_node: MakeNode) -> None:
    """A producer that fails over to another node: the hub rejects its second copy, unless told otherwise."""
    hub = make_node("hub").start()
    names: dict[str, dict[str, str]] = {"one": {}, "two": {}, "three": {"check_producer_ids": '"auto"'}}
    edges = [
        make_node(name, rest=bridge_to(hub, f"{name}-to-hub", **checks)).start()
        for name, checks in names.items()
    ]
    for number, edge in enumerate(edges):
        edge.api.send("orders", b"%d" % number, Duplicate_Id="same")
        edge.api.send("orders", b"own-%d" % number)
        eventually(lambda edge=edge: edge.lag("orders") == 0, "all is settled")  # type: ignore[misc]
    assert hub.api.bodies("orders") == ["0", "own-0", "own-1", "2", "own-2"]
    series = 'core_bridge_duplicates_rejected_total{address="orders",kind="producer"}'
    assert hub.metrics()[series] == 1


def test_without_duplicate_detection_nothing_is_stamped(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, use_duplicate_detection="false"))
    start_together(hub, edge)
    edge.api.send("orders", b"x")
    (message,) = arrived(hub, 1)
    assert message["duplicate-id"] is None


# ------------------------------------------------------------------ who may open a link


LINK_USERS = """
[[acceptor.users]]
name = "edge"
token = "s3cret-edge"
link = true
[[acceptor.users]]
name = "sender"
token = "s3cret-sender"
send = ["#"]
[[acceptor.users]]
name = "reader"
token = "s3cret-reader"
receive = ["#"]
"""


@pytest.mark.parametrize("token", ['""', '"s3cret-wrong"', '"s3cret-sender"'])
def test_a_link_needs_a_token_with_that_right(make_node: MakeNode, token: str) -> None:
    hub = make_node("hub", acceptor=LINK_USERS, token="s3cret-reader").start()
    edge = make_node("edge", rest=bridge_to(hub, connector__token=token))
    edge.spawn()
    edge.event("listening")
    edge.api.send("orders", b"x")
    refused = edge.event("bridge-disconnected")
    assert "refused the credentials (HTTP 40" in refused["reason"], "it is tried again: it may be rotated"
    assert edge.bridge_state(BRIDGE) == "CONNECTING"
    assert hub.api.browse("orders") == []


def test_a_user_with_the_link_right_relays(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor=LINK_USERS, token="s3cret-reader").start()
    variables = {"HUB_TOKEN": "s3cret-edge"}
    edge = make_node(
        "edge", rest=bridge_to(hub, connector__token='"${HUB_TOKEN}"'), variables=variables
    ).start()
    edge.api.send("orders", b"x")
    assert titles(arrived(hub, 1)) == ["x"]


TLS = 'certificate = "{0}/node.pem"\nkey = "{0}/node.key"\n'


def tls_hub(make_node: MakeNode, certificates: Path, more: str = "") -> Node:
    acceptor = TLS.format(certificates) + more
    hub: Node = make_node("hub", scheme="wss", acceptor=acceptor, tls=client_tls(certificates))
    return hub


def test_a_link_over_tls_checks_the_authority_and_the_name(make_node: MakeNode, certificates: Path) -> None:
    hub = tls_hub(make_node, certificates).start()
    ca = {"connector__ca": f'"{certificates}/authority.pem"'}
    by_address = {"connector__url": f'"wss://127.0.0.1:{hub.port}"'}
    good = make_node("good", rest=bridge_to(hub, "good", **ca)).start()
    named = {"connector__server_name": '"localhost"'}
    renamed = make_node("renamed", rest=bridge_to(hub, "renamed", **ca, **by_address, **named)).start()
    for edge in (good, renamed):
        edge.api.send("orders", edge.name.encode())
        edge.await_state(edge.name, "RUNNING")
    assert {str(message["body"]) for message in arrived(hub, 2)} == {"good", "renamed"}
    stranger = make_node("stranger", rest=bridge_to(hub, "stranger")).start_without_waiting()
    wrong_name = make_node(
        "wrong-name", rest=bridge_to(hub, "wrong-name", **ca, **by_address)
    ).start_without_waiting()
    for edge in (stranger, wrong_name):
        trouble = eventually(
            lambda edge=edge: edge.events("bridge-disconnected") + edge.events("bridge-failed"),  # type: ignore[misc]
            f"{edge.name} is refused",
        )
        assert "certificate" in trouble[0]["reason"].lower(), trouble


def test_a_link_over_mutual_tls_is_known_by_its_certificate(make_node: MakeNode, certificates: Path) -> None:
    users = '[[acceptor.users]]\nname = "edge"\ncertificate-name = "orders-service"\n'
    users += 'link = true\nreceive = ["#"]\n'
    hub = tls_hub(make_node, certificates, f'client-ca = "{certificates}/authority.pem"\n{users}')
    hub.tls = client_tls(certificates, "orders-service")
    rest = {
        name: bridge_to(
            hub,
            connector__ca=f'"{certificates}/authority.pem"',
            connector__certificate=f'"{certificates}/{name}.pem"',
            connector__key=f'"{certificates}/{name}.key"',
        )
        for name in ("orders-service", "stranger")
    }
    edge = make_node("edge", rest=rest["orders-service"])
    hub.spawn()
    eventually(lambda: hub.ops.get("/ready").status == 200, "the hub is ready")
    edge.start()
    edge.api.send("orders", b"x")
    assert titles(arrived(hub, 1)) == ["x"]
    other = make_node("other", rest=rest["stranger"]).start_without_waiting()
    assert "(HTTP 401)" in other.event("bridge-disconnected")["reason"]


def test_bytes_that_are_no_text_stay_what_they_are(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    bodies = [bytes(range(256)), b"", b"\x00", "Zürich".encode()]
    for body in bodies:
        edge.api.send("orders", body)
    found = arrived(hub, len(bodies))
    decoded = [
        base64.b64decode(str(m["body-base64"])) if "body-base64" in m else str(m["body"]).encode()
        for m in found
    ]
    assert decoded == bodies
