"""No peer reaches further than its rights over a link, and nothing that comes over one stops a bridge."""

from __future__ import annotations

import asyncio

from bridge.link.frames import Hello
from bridge.link.node_target import NodeTarget
from bridge.link.socket import Endpoint
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.hostile.peer import Peer, message

MIB = 1024 * 1024
STREAM = "journal:0123456789abcdef:orders:0"
NODE_A, NODE_B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
USERS = "".join(
    f'[[acceptor.users]]\nname = "{name}"\ntoken = "s3cret-{name}"\nlink = true\nsend = ["orders.#"]\n'
    for name in ("a", "b")
)
ADMIN = 'tokens = ["s3cret-admin"]\n'


def opened(hub: Node, user: str, node: str, bridge: str = "a-to-hub", previous: str = "") -> list[object]:
    """What the user gets when its node opens the stream; the connection is let go."""
    peer = Peer(hub.port, f"s3cret-{user}")
    assert peer.hello(node_id=node, bridge=bridge, previous=previous)[0] == "WELCOME"
    answer = peer.open(STREAM)
    if answer[0] == "OPENED" and answer[2] is None:
        assert peer.deliver(upto=10, runs=[[0, 0]])[2] == "stored"
    peer.close()
    return answer


def test_positions_belong_to_the_user_and_the_node_that_wrote_them(make_node: MakeNode) -> None:
    """Whoever could cover another's stream could make its messages vanish as duplicates."""
    hub = make_node("hub", acceptor=ADMIN + USERS, token="s3cret-admin").start()
    assert opened(hub, "a", NODE_A)[0] == "OPENED"
    hub.kill()
    hub.start()
    refusals = [
        opened(hub, "b", NODE_A),
        opened(hub, "a", NODE_B),
        opened(hub, "admin", NODE_B),
        opened(hub, "b", NODE_B, bridge="b-to-hub", previous="a-to-hub"),
    ]
    for refused in refusals:
        assert refused[:2] == ["CLOSE", "TARGET_REFUSED"], refused
        assert refused[3] is True
        assert f"belongs to user:a, node {NODE_A}" in str(refused[2])
        assert "core-bridge forget --owner a-to-hub" in str(refused[2])
    assert opened(hub, "a", NODE_A)[2] == 10
    assert opened(hub, "admin", NODE_A)[2] == 10, "who may do everything acts for every user of the node"
    assert opened(hub, "a", NODE_A, bridge="renamed", previous="a-to-hub")[2] == 10


def test_a_user_without_send_delivers_over_links_only_and_is_named(make_node: MakeNode) -> None:
    """As such users did before `send` counted for links; one with an empty `send` delivers nowhere."""
    users = '[[acceptor.users]]\nname = "a"\ntoken = "s3cret-a"\nlink = true\n'
    users += '[[acceptor.users]]\nname = "b"\ntoken = "s3cret-b"\nlink = true\nsend = []\n'
    hub = make_node("hub", acceptor=ADMIN + users, token="s3cret-admin").start()
    assert opened(hub, "a", NODE_A)[0] == "OPENED"
    refused = opened(hub, "b", NODE_B, bridge="b-to-hub")
    assert refused[:2] == ["CLOSE", "TARGET_REFUSED"]
    assert "FORBIDDEN: b may not send to orders" in str(refused[2])
    hub.token = "s3cret-a"
    assert hub.api.send("orders", b"x").status == 403
    assert [event["user"] for event in hub.events("link-unlimited")] == ["a"]


def test_an_operator_hands_positions_on(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor=ADMIN + USERS, token="s3cret-admin").start()
    assert opened(hub, "a", NODE_A)[0] == "OPENED"
    assert hub.stop() == 0
    forgot = command("forget", "--owner", "a-to-hub", "--yes", "--settings", str(hub.file), cwd=hub.directory)
    assert forgot.code == 0, forgot
    assert f"{STREAM}: forgets that it belongs to user:a, node {NODE_A}" in forgot.out + forgot.err
    unknown = command("forget", "--owner", "nobody", "--yes", "--settings", str(hub.file), cwd=hub.directory)
    assert unknown.code != 0
    assert "no bridge nobody has delivered here" in unknown.err
    hub.start()
    assert opened(hub, "b", NODE_B)[2] == 10
    assert opened(hub, "a", NODE_A)[0] == "CLOSE"


def test_a_rotated_token_is_the_same_user(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor=ADMIN + USERS, token="s3cret-admin").start()
    assert opened(hub, "a", NODE_A)[0] == "OPENED"
    assert hub.stop() == 0
    hub.acceptor = hub.acceptor.replace('s3cret-a"', 's3cret-new"')
    hub.start()
    assert opened(hub, "new", NODE_A)[2] == 10


def test_a_bridge_without_the_right_to_send_fails_and_says_so(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor=ADMIN + USERS, token="s3cret-admin")
    edge = make_node("edge", rest=bridge_to(hub, queue_name='"payments"', connector__token='"s3cret-a"'))
    hub.start()
    edge.spawn()
    edge.event("listening")
    edge.api.send("payments", b"x")
    reason = edge.event("bridge-failed")["reason"]
    assert reason == "TARGET_REFUSED: FORBIDDEN: a may not send to payments"
    assert hub.api.browse("payments") == []


# -- dead letters ------------------------------------------------------------------------------------------

FORGED = {
    "Message-Header-core-bridge-reason": "WHY: so",
    "Message-Header-core-bridge-bridge": "orders-to-hub",
    "Message-Header-core-bridge-address": "no such name!",
    "Message-Header-core-bridge-stream": STREAM,
    "Message-Header-core-bridge-position": "1",
}


def test_a_letter_that_a_client_wrote_is_none(make_node: MakeNode) -> None:
    """A replay goes by what letters say: what stands in them was written by the node."""
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.api.send("orders", b"x" * 1025)
    eventually(lambda: len(edge.api.browse("dead-letters")) == 1, "it is a dead letter")
    posted = edge.api.call("POST", "/v1/addresses/dead-letters/messages", b"forged", FORGED)
    assert posted.status == 200
    listed = edge.ops.get("/v1/dead-letters").json
    assert len(listed["dead-letters"]) == 1, listed
    replayed = edge.ops.call("POST", "/v1/dead-letters/replay", positions="all")
    assert replayed.status == 200
    eventually(lambda: len(edge.ops.get("/v1/dead-letters").json["dead-letters"]) == 1, "it dies again")
    edge.api.send("orders", b"after")
    eventually(lambda: hub.api.bodies("orders") == ["after"], "the bridge goes on")
    assert edge.bridge_state("orders-to-hub") == "RUNNING"
    addresses = [one["address"] for one in edge.api.get("/v1/addresses").json["addresses"]]
    assert not any("no such name" in address for address in addresses)


def test_a_pattern_never_means_the_bridges_own_dead_letters(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub, queue_name="'/.*/'"))
    start_together(hub, edge)
    edge.api.send("orders", b"x" * 1025)
    eventually(lambda: len(edge.api.browse("dead-letters")) == 1, "it is a dead letter")
    edge.api.send("orders", b"after")
    eventually(lambda: hub.api.bodies("orders") == ["after"], "the bridge goes on")
    assert edge.bridge_state("orders-to-hub") == "RUNNING"
    assert hub.api.get("/v1/addresses/dead-letters").status == 404


# -- what a batch weighs -----------------------------------------------------------------------------------


def stored(node: Node, address: str) -> int:
    reply = node.api.get(f"/v1/addresses/{address}")
    return int(reply.json["messages"]) if reply.status == 200 else 0


def test_small_messages_that_came_by_turns_fit_into_frames(make_node: MakeNode) -> None:
    """Each has a place of origin of its own, which is 25 times as long as it is."""
    hub = make_node("hub").start()
    name, count, blocks = "p" * 240, 10_000, 10
    edge = make_node("edge", rest=bridge_to(hub, queue_name=f'"{name}"')).start()
    edge.await_state("orders-to-hub", "RUNNING")
    assert edge.ops.call("POST", "/v1/bridges/orders-to-hub/pause").status == 200
    peer = Peer(edge.port)
    peer.hello()
    peer.open(f"journal:aa:{name}:0", name)
    for number in range(blocks):
        places = range(number * count, (number + 1) * count)
        receipt = peer.deliver(
            number=number, from_=places[0], upto=places[-1] + 1, runs=[[places[0], places[-1]]],
            elements=[message(b"1234")] * count,
            origins=[[f"journal:aa:{'q' * 240}:0", 2 * place, 2 * place] for place in places],
        )  # fmt: skip
        assert receipt[2] == "stored"
    peer.close()
    assert edge.ops.call("POST", "/v1/bridges/orders-to-hub/resume").status == 200
    eventually(lambda: stored(hub, name) == count * blocks, "all arrive")
    assert not edge.events("bridge-failed")


async def test_letters_of_one_stream_reach_a_node_however_many_there_are(make_node: MakeNode) -> None:
    """A bridge from Kafka stores dead letters at its target, over links of their own."""
    hub = make_node("hub").start()
    endpoint = Endpoint(hub.url)

    def target(name: str) -> NodeTarget:
        hello = Hello(
            version=1, node_id=NODE_A, node_name="edge", store="s", bridge=name, check_producer_ids=False,
            use_duplicate_detection=True, producer_window=MIB, check_period_ms=-1, connection_ttl_ms=-1,
        )  # fmt: skip
        return NodeTarget(endpoint, hello, call_timeout_ms=5_000)

    number = 25
    block = pack([encode_message(Message(b"m%d" % place)) for place in range(2 * number)])
    runs = ((0, 2 * number - 1),)
    batch = Batch("kafka:c:t:0", 0, 2 * number, runs, block.stamped("kafka:c:t:0", runs))
    for _ in range(2):  # the second time as a process that has just started
        letters = DeadLetters("k", "dead-letters", target)
        for place in range(0, 2 * number, 2):
            refused = Receipt(batch.stream, Verdict.REFUSED, 0, place, "WHY: so")
            await letters.store_letter(batch, refused, "orders")
    found = await asyncio.to_thread(hub.api.bodies, "dead-letters")
    assert found == [f"m{place}" for place in range(0, 2 * number, 2)]
