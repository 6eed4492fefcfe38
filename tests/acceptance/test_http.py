"""HTTP on nodes with settings of their own, limits, users and certificates, and over a restart.

The calls that every node answers alike are in tests/contracts/http/.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness.api import HOST, Api, Reply, exchange, titles
from tests.harness.certificates import client_tls
from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.node import MakeNode, Node

MIB = 1024 * 1024


@contextlib.contextmanager
def in_the_background(call: Callable[[], Reply]) -> Iterator[Future[Reply]]:
    """A call that the node holds for a while."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


# ------------------------------------------------------------------ queues and leases


def test_every_queue_of_an_address_gets_every_message(make_node: MakeNode) -> None:
    """MULTICAST, and the queues that the settings name are there before anything is sent."""
    node = make_node(
        rest='[addresses.orders]\nrouting-type = "MULTICAST"\nqueues = ["billing", "shipping"]\n'
    )
    node.start()
    node.api.commit(*({"address": "orders", "body": f"{number}"} for number in range(5)))
    for queue in ("billing", "shipping"):
        lease, messages = node.api.lease("orders", queue)
        assert titles(messages) == list("01234")
        assert node.api.settle("acknowledge", "orders", queue, lease=lease).status == 204
    assert node.api.get("/v1/addresses/orders").json["messages"] == 0, "no queue needs them any more"


def test_leases_and_progress_outlast_a_restart(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.make_queue("orders", "q")
    node.api.commit(*({"address": "orders", "body": f"{number}"} for number in range(6)))
    done, _ = node.api.lease("orders", "q", "max=2")
    node.api.settle("acknowledge", "orders", "q", lease=done)
    held, _ = node.api.lease("orders", "q", "max=2")
    node.kill()
    node.start()
    other, messages = node.api.lease("orders", "q")
    assert titles(messages) == ["4", "5"]
    assert node.api.settle("acknowledge", "orders", "q", lease=held).status == 204
    node.api.settle("acknowledge", "orders", "q", lease=done).is_problem(409, "STALE_LEASE")
    assert node.api.settle("release", "orders", "q", lease=other).status == 204
    assert titles(node.api.lease("orders", "q")[1]) == ["4", "5"]


def test_an_address_that_is_not_made_on_demand_is_not_found(make_node: MakeNode) -> None:
    node = make_node(
        rest='[address-settings."#"]\nauto-create-addresses = false\n[addresses.orders]\n'
    ).start()
    assert node.api.send("orders", b"x").status == 200
    node.api.send("ordres", b"x").is_problem(404, "ADDRESS_NOT_FOUND")
    node.api.commit({"address": "ordres", "body": ""}).is_problem(404, "ADDRESS_NOT_FOUND")


# ------------------------------------------------------------------ limits


@pytest.fixture(scope="module")
def small(make_lasting_node: MakeNode) -> Node:
    """A node whose limits are soon reached."""
    return make_lasting_node(
        "small",
        acceptor='max-message-size = "10KiB"\nmax-headers-size = "2KiB"\nmax-duplicate-id-size = 10\n'
        "max-requests = 2\nmax-connections = 4",
        rest='[address-settings."fail.#"]\nmax-size-bytes = "20KiB"\naddress-full-policy = "FAIL"\n'
        '[address-settings."block.#"]\nmax-size-bytes = "20KiB"\n',
    ).start()


def test_a_message_above_max_message_size_is_too_large(small: Node, address: str) -> None:
    assert small.api.send(address, b"x" * 10_240).status == 200
    problem = small.api.send(address, b"x" * 10_241).is_problem(413, "MESSAGE_TOO_LARGE")
    assert (problem["limit"], problem["found"]) == (10_240, 10_241)
    reply = small.api.commit({"address": address, "body": "x" * 10_241})
    assert reply.is_problem(413, "MESSAGE_TOO_LARGE")["key"] == "messages[0].body"


def test_headers_above_max_headers_size_are_too_large(small: Node, address: str) -> None:
    for headers in ({"X_One": "x" * 3000}, {f"X_{number}": "x" * 300 for number in range(10)}):
        small.api.send(address, b"x", **headers).is_problem(431, "HEADERS_TOO_LARGE")


def test_an_id_above_max_duplicate_id_size_is_refused(small: Node, address: str) -> None:
    assert small.api.send(address, b"x", Duplicate_Id="x" * 10).status == 200
    problem = small.api.send(address, b"x", Duplicate_Id="x" * 11).is_problem(400, "INVALID_DUPLICATE_ID")
    assert (problem["limit"], problem["found"]) == (10, 11)


def test_a_full_address_with_policy_fail_answers_at_once(small: Node) -> None:
    for _ in range(2):
        assert small.api.send("fail.a", b"x" * 10_240).status == 200
    before = time.monotonic()
    small.api.send("fail.a", b"x").is_problem(503, "ADDRESS_FULL")
    small.api.commit({"address": "fail.a", "body": "x"}).is_problem(503, "ADDRESS_FULL")
    assert time.monotonic() - before < 2
    assert small.api.send("fail.b", b"x").status == 200, "limits are per address"


def test_a_full_address_with_policy_block_holds_the_post_until_there_is_room(small: Node) -> None:
    small.api.make_queue("block.a", "q")
    for _ in range(2):
        assert small.api.send("block.a", b"x" * 10_240).status == 200
    with in_the_background(lambda: small.api.send("block.a", b"held")) as held:
        lease, _ = small.api.lease("block.a", "q")
        assert not held.done()
        small.api.settle("acknowledge", "block.a", "q", lease=lease)
        assert held.result(10).status == 200
    assert small.api.bodies("block.a")[-1] == "held"


@pytest.mark.parametrize(("acceptor", "bridge"), [("100ms", ""), ("1h", 'call-timeout = "100ms"')])
def test_a_post_that_block_holds_is_refused_after_call_timeout(
    make_node: MakeNode, acceptor: str, bridge: str
) -> None:
    """Of the acceptor, and of a bridge that reads the address; the default is longer than this call waits."""
    node = make_node(
        rest=f'[address-settings."#"]\nmax-size-bytes = "1KiB"\n[connectors.hub]\nurl = "ws://{HOST}:1"\n'
        f'[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\nstatic-connectors = ["hub"]\n{bridge}\n',
        acceptor=f'call-timeout = "{acceptor}"',
    ).start()
    assert node.api.send("orders", b"x" * 1_000).status == 200
    problem = node.api.send("orders", b"held").is_problem(503, "ADDRESS_FULL")
    assert (problem["key"], problem["limit"]) == ("max-size-bytes", 1024)


def test_a_full_address_holds_up_no_other_and_no_reader(make_node: MakeNode) -> None:
    """70 held POSTs of 1 MiB, once: 74 of 76 sends elsewhere heard TOO_BUSY, and a first page took 29 s."""
    node = make_node(
        rest='[address-settings."full.#"]\nmax-size-bytes = "1MiB"\n[addresses.others]\nqueues = ["q"]\n'
        '[addresses."full.a"]\nqueues = ["q"]\n',
        acceptor='max-requests = 80\nmax-held-requests = 30\nmax-held-size = "24MiB"',
    ).start()
    body = b"x" * 1_000_000
    assert [node.api.send("full.a", body).status for _ in range(2)] == [200, 200]
    with ThreadPoolExecutor(70) as pool:
        held = [pool.submit(node.api.send, "full.a", body) for _ in range(70)]
        refused = eventually(lambda: (done := [one for one in held if one.done()])[44:] and done, "45 are")
        assert len(refused) == 45
        for one in refused:
            problem = one.result().is_problem(503, "ADDRESS_FULL")
            assert (problem["key"], problem["limit"]) == ("max-held-size", 24 * 2**20)
        assert [node.api.send("others", body).status for _ in range(76)] == [200] * 76
        lease, messages = node.api.lease("others", "q")
        assert len(messages) > 10
        assert node.api.settle("acknowledge", "others", "q", lease=lease).status == 204
        while sum(one.done() for one in held) < 70:
            lease, _ = node.api.lease("full.a", "q", "wait=1000")
            if lease:
                node.api.settle("acknowledge", "full.a", "q", lease=lease)
    assert sorted(one.result().status for one in held) == [200] * 25 + [503] * 45


def test_no_more_than_max_held_requests_are_held(make_node: MakeNode) -> None:
    """At most half of the sends that may be under way: the others go on."""
    node = make_node(
        rest='[address-settings."full"]\nmax-size-bytes = "1KiB"\n[addresses.full]\nqueues = ["q"]\n',
        acceptor="max-requests = 6",
    ).start()
    assert node.api.send("full", b"x" * 1000).status == 200
    with ThreadPoolExecutor(5) as pool:
        held = [pool.submit(node.api.send, "full", b"x") for _ in range(5)]
        eventually(lambda: sum(one.done() for one in held) == 2, "two are refused")
        problem = next(one for one in held if one.done()).result().is_problem(503, "ADDRESS_FULL")
        assert (problem["key"], problem["limit"], problem["found"]) == ("max-held-requests", 3, 4)
        assert node.api.send("others", b"x").status == 200
        lease, _ = node.api.lease("full", "q")
        node.api.settle("acknowledge", "full", "q", lease=lease)
    assert sorted(one.result().status for one in held) == [200] * 3 + [503] * 2


def test_more_than_max_requests_are_too_busy(small: Node, address: str) -> None:
    """Long polls count; a reader that leaves makes room."""
    small.api.make_queue(address, "q")
    with contextlib.ExitStack() as readers:
        for _ in range(2):
            reader = readers.enter_context(contextlib.closing(small.api.connect()))
            reader.request("GET", f"/v1/addresses/{address}/queues/q/messages?wait=20000")
        busy = small.api.await_status("/v1/addresses", 503)
        assert busy.is_problem(503, "TOO_BUSY")["limit"] == 2
        assert small.ops.get("/ready").status == 200
    small.api.await_status("/v1/addresses", 200, 5)


#: Bodies are held whole, not stored chunk by chunk as they come.
TRANSIT = 'max-transit-size = "8MiB"\nmin-large-message-size = "32MiB"\n'


def unless_stored(reply: Reply) -> Reply | None:
    return None if reply.status == 200 else reply


def test_bodies_on_their_way_have_one_limit(make_node: MakeNode) -> None:
    """What has arrived of them counts, not what they say; one alone is always taken."""
    node = make_node(acceptor=TRANSIT).start()
    path = "/v1/addresses/orders/messages"
    assert node.api.send("orders", b"x" * (12 * MIB)).status == 200
    with contextlib.ExitStack() as uploads:
        slow = [uploads.enter_context(contextlib.closing(node.api.connect())) for _ in range(3)]
        for connection in slow:
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", str(16 * MIB))
            connection.endheaders(b"x")
        slow[0].send(b"x" * (6 * MIB))
        # All that was sent has been read once the node has no room for 3 MiB any more.
        refused = eventually(lambda: unless_stored(node.api.send("orders", b"y" * (3 * MIB))), "6 MiB are")
        problem = refused.is_problem(503, "TOO_BUSY")
        assert (problem["key"], problem["limit"]) == ("max-transit-size", 8 * MIB)
        assert problem["found"] > 8 * MIB
        assert node.api.send("orders", b"small").status == 200
    eventually(lambda: node.api.send("orders", b"z" * (7 * MIB)).status == 200, "aborted ones make room")


def test_one_user_leaves_half_of_it_to_others(make_node: MakeNode) -> None:
    """It took all of it with uploads that do not end, and everybody else was TOO_BUSY."""
    user = '[[acceptor.users]]\nname = "{0}"\ntoken = "{0}"\nsend = ["#"]\n'
    node = make_node(acceptor=TRANSIT + user.format("greedy") + user.format("other")).start()
    greedy, other = Api(node.port, "greedy"), Api(node.port, "other")
    with contextlib.ExitStack() as uploads:
        for _ in range(8):
            slow = uploads.enter_context(contextlib.closing(greedy.connect()))
            slow.putrequest("POST", "/v1/addresses/orders/messages")
            slow.putheader("Authorization", "Bearer greedy")
            slow.putheader("Content-Length", str(16 * MIB))
            with contextlib.suppress(ConnectionError):  # those above half are refused
                slow.endheaders(b"x" * MIB)
        refused = eventually(lambda: unless_stored(greedy.send("orders", b"y" * MIB)), "half is taken")
        problem = refused.is_problem(503, "TOO_BUSY")
        assert (problem["key"], problem["limit"]) == ("max-transit-size", 4 * MIB)
        assert other.send("orders", b"z" * (3 * MIB)).status == 200


def test_pages_on_their_way_have_the_same_limit(make_node: MakeNode) -> None:
    """A page that is not sent for it is not leased either."""
    node = make_node(acceptor=TRANSIT).start()
    for _ in range(4):
        assert node.api.send("orders", b"x" * MIB).status == 200
        assert node.api.send("large", b"x" * (2 * MIB)).status == 200
    node.api.make_queue("orders", "q")
    with contextlib.closing(socket.create_connection((HOST, node.port), timeout=PATIENCE_S)) as stuck:
        stuck.sendall(b"GET /v1/addresses/large/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stuck.recv(10, socket.MSG_PEEK)
        page = node.api.get("/v1/addresses/orders/queues/q/messages")
        assert page.is_problem(503, "TOO_BUSY")["key"] == "max-transit-size"
        raw = node.api.get("/v1/addresses/large/messages/1")
        assert raw.is_problem(503, "TOO_BUSY")["key"] == "max-transit-size"
        assert node.api.get("/v1/addresses/orders").json["queues"][0]["leased"] == 0
    eventually(
        lambda: node.api.get("/v1/addresses/orders/queues/q/messages").status == 200,
        "a reader that leaves makes room",
    )


def test_more_than_max_connections_are_too_busy(small: Node, address: str) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(4):
            connection = open_ones.enter_context(contextlib.closing(small.api.connect()))
            assert exchange(connection, "GET", "/v1/addresses").status == 200
        small.api.get("/v1/addresses").is_problem(503, "TOO_BUSY")
    small.api.await_status("/v1/addresses", 200)


# ------------------------------------------------------------------ who may call


def test_a_browser_may_call_from_allowed_origins_only(make_node: MakeNode) -> None:
    node = make_node(acceptor='allowed-origins = ["https://app.example"]').start()
    allowed = node.api.send("orders", b"x", Origin="https://app.example")
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example")
    for origin in ("https://evil.example", "http://app.example", "https://app.example.evil", "null"):
        node.api.send("orders", b"x", Origin=origin).is_problem(403, "ORIGIN_REFUSED")
    assert len(node.api.browse("orders")) == 1


def test_every_origin_may_call_where_the_settings_say_so(make_node: MakeNode) -> None:
    node = make_node(acceptor='allowed-origins = ["*"]').start()
    assert node.api.send("orders", b"x", Origin="https://any.example").status == 200


USERS = """
tokens = ["${ROOT_TOKEN}"]
[[acceptor.users]]
name = "orders-service"
token = "s3cret-orders"
send = ["orders.#"]
receive = ["results.*"]
"""


def test_tokens_have_every_right_and_users_their_own(make_node: MakeNode) -> None:
    node = make_node(acceptor=USERS, variables={"ROOT_TOKEN": "s3cret-root"}).start()
    anybody, root = Api(node.port), Api(node.port, "s3cret-root")
    user = Api(node.port, "s3cret-orders")
    for refused in (anybody, Api(node.port, "s3cret"), Api(node.port, "")):
        reply = refused.send("orders.eu", b"x")
        reply.is_problem(401, "UNAUTHENTICATED")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert root.send("anything", b"x").status == 200
    assert user.send("orders", b"x").status == 200
    assert user.send("orders.eu.west", b"x").status == 200
    user.send("invoices", b"x").is_problem(403, "FORBIDDEN")
    mixed = ({"address": "orders", "body": "x"}, {"address": "invoices", "body": "x"})
    assert user.commit(*mixed).is_problem(403, "FORBIDDEN")["key"] == "messages[1].address"
    user.get("/v1/addresses/orders/messages").is_problem(403, "FORBIDDEN")
    assert root.send("results.a", b"x").status == 200
    assert titles(user.browse("results.a")) == ["x"]
    assert user.make_queue("results.a", "q") == 201
    user.get("/v1/addresses/results.a.b/messages").is_problem(403, "FORBIDDEN")
    user.get("/v1/link").is_problem(403, "FORBIDDEN")
    seen = {entry["address"] for entry in user.get("/v1/addresses").json["addresses"]}
    assert seen == {"orders", "orders.eu.west", "results.a"}
    assert "s3cret" not in node.log.read_text()


TLS = 'certificate = "{0}/node.pem"\nkey = "{0}/node.key"\n'


def test_tls_protects_the_acceptor(make_node: MakeNode, certificates: Any) -> None:
    node = make_node(scheme="wss", acceptor=TLS.format(certificates), tls=client_tls(certificates)).start()
    assert node.api.send("orders", b"x").status == 200
    assert node.event("listening")["acceptor"] == f"wss://127.0.0.1:{node.port}"
    with pytest.raises((OSError, http.client.HTTPException)):
        Api(node.port).get("/v1/addresses")


CERTIFIED = """client-ca = "{0}/authority.pem"
tokens = ["s3cret"]
[[acceptor.users]]
name = "orders-service"
certificate-name = "orders-service"
send = ["orders.#"]
"""


def test_mutual_tls_gives_the_certificates_user_its_rights(make_node: MakeNode, certificates: Any) -> None:
    acceptor = (TLS + CERTIFIED).format(certificates)
    node = make_node(scheme="wss", acceptor=acceptor, tls=client_tls(certificates)).start()
    known = Api(node.port, "", client_tls(certificates, "orders-service"), "localhost")
    stranger = Api(node.port, "", client_tls(certificates, "stranger"), "localhost")
    assert known.send("orders.eu", b"x").status == 200
    known.send("invoices", b"x").is_problem(403, "FORBIDDEN")
    stranger.send("orders.eu", b"x").is_problem(401, "UNAUTHENTICATED")
    node.api.send("orders.eu", b"x").is_problem(401, "UNAUTHENTICATED")
    token = Api(node.port, "s3cret", client_tls(certificates), "localhost")
    assert token.send("invoices", b"x").status == 200


def test_a_link_is_opened_by_a_websocket_alone(small: Node) -> None:
    small.api.get("/v1/link").is_problem(400, "MALFORMED")
