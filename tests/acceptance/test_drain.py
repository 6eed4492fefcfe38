"""How a node stops: SIGTERM drains and ends with 0, a second signal stops at once, failures end with 1."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.harness.api import HOST, exchange
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, bridge_to, start_together


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_drains_and_ends_with_0(make_node: MakeNode, number: signal.Signals) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.await_state("orders-to-hub", "RUNNING")
    edge.api.send("orders", b"x" * 1000)
    eventually(lambda: edge.lag("orders") == 0, "the link works")
    for _ in range(20):
        edge.api.commit(*({"address": "orders", "body": "x" * 1000} for _ in range(100)))
    edge.signal(number)
    assert edge.wait() == 0
    (stopped,) = edge.events("stopped")
    assert edge.events()[-1] == stopped
    stored = hub.metrics()['core_bridge_messages_stored_total{address="orders"}']
    assert stored + stopped["queued"] == 2001, "what was sent is settled, what was not is still queued"
    edge.start()
    eventually(
        lambda: hub.metrics()['core_bridge_messages_stored_total{address="orders"}'] == 2001,
        "the rest arrives",
    )


def test_the_other_side_of_a_link_may_stop_first(make_node: MakeNode) -> None:
    """R11: a clean stop of the target, and what is sent meanwhile."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.api.send("orders", b"1")
    eventually(lambda: hub.api.bodies("orders") == ["1"], "it arrives")
    assert hub.stop() == 0
    edge.api.send("orders", b"2")
    hub.start()
    eventually(lambda: hub.api.bodies("orders") == ["1", "2"], "the rest arrives")


def test_a_waiting_reader_is_let_go(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.make_queue("orders", "q")
    with closing(node.api.connect()) as reader:
        reader.request("GET", "/v1/addresses/orders/queues/q/messages?wait=60000")
        assert node.ops.get("/ready").status == 200
        before = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - before < 5
        assert reader.getresponse().status in (200, 503)


def test_a_request_under_way_is_finished_and_new_ones_are_told(make_node: MakeNode) -> None:
    node = make_node().start()
    with closing(node.api.connect()) as slow, closing(node.api.connect()) as other:
        assert exchange(other, "GET", "/v1/addresses").status == 200
        slow.putrequest("POST", "/v1/addresses/orders/messages")
        slow.putheader("Content-Length", "10")
        slow.endheaders(b"half ")
        # The node has read its headers once a later request on another connection is answered.
        assert exchange(other, "GET", "/v1/addresses").status == 200
        node.signal()
        ready = node.ops.await_status("/ready", 503)
        assert ready.json["reasons"] == ["the node is stopping"]
        exchange(other, "GET", "/v1/addresses").is_problem(503, "STOPPING")
        slow.send(b"whole")
        response = slow.getresponse()
        assert (response.status, response.read()) == (200, b'{"verdict":"stored","positions":[0,0]}')
        assert node.wait() == 0
    node.start()
    assert node.api.bodies("orders") == ["half whole"]


def test_an_upload_that_does_not_end_is_answered_before_the_node_does(make_node: MakeNode) -> None:
    """It was cut without an answer."""
    node = make_node(node='shutdown-timeout = "2s"').start()
    with closing(node.api.connect()) as slow:
        slow.putrequest("POST", "/v1/addresses/orders/messages")
        slow.putheader("Content-Length", "10")
        slow.endheaders(b"half ")
        assert node.api.get("/v1/addresses").status == 200, "the node has read its headers"
        node.signal()
        response = slow.getresponse()
        assert (response.status, json.loads(response.read())["title"]) == (503, "STOPPING")
    assert node.wait() == 0
    assert node.events("requests-cut") == []
    node.start()
    assert node.api.get("/v1/addresses/orders/messages").status == 404, "nothing was stored"


def test_what_is_held_for_want_of_room_is_answered_at_once(make_node: MakeNode) -> None:
    """It was cut without an answer after half of shutdown-timeout."""
    node = make_node(
        rest='[address-settings."full"]\nmax-size-bytes = "1KiB"\n', node='shutdown-timeout = "20s"'
    ).start()
    assert node.api.send("full", b"x" * 1000).status == 200
    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(node.api.send, "full", b"held") for _ in range(2)]
        eventually(lambda: node.api.send("full", b"x" * 65 * 2**20).status == 413, "the node reads")
        node.signal()
        before = time.monotonic()
        for one in held:
            one.result().is_problem(503, "STOPPING")
        assert node.wait() == 0
        assert time.monotonic() - before < 8, "far from half of shutdown-timeout"
    node.start()
    assert node.api.bodies("full") == ["x" * 1000]


def test_a_second_signal_stops_at_once_and_loses_nothing(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.send("orders", b"durable")
    with closing(node.api.connect()) as slow:
        slow.putrequest("POST", "/v1/addresses/orders/messages")
        slow.putheader("Content-Length", "10")
        slow.endheaders(b"half ")
        assert node.api.get("/v1/addresses").status == 200
        node.signal()
        node.ops.await_status("/ready", 503)
        before = time.monotonic()
        node.signal()
        assert node.wait() == 1
        assert time.monotonic() - before < 2
    node.start()
    assert node.api.bodies("orders") == ["durable"]


def test_shutdown_timeout_bounds_the_drain(make_node: MakeNode) -> None:
    """A target that takes everything and answers nothing does not hold the node."""
    with closing(socket.create_server((HOST, 0))) as silent:
        hub = make_node("hub")
        hub.port = silent.getsockname()[1]
        edge = make_node("edge", rest=bridge_to(hub), node='shutdown-timeout = "1s"').start()
        edge.api.send("orders", b"x")
        before = time.monotonic()
        edge.stop()
        assert time.monotonic() - before < 5
        assert edge.event("stopped")["queued"] == 1


def test_a_port_in_use_ends_with_1_and_is_named(make_node: MakeNode) -> None:
    first = make_node("first").start()
    for attribute in ("port", "operations_port"):
        second = make_node("second")
        setattr(second, attribute, getattr(first, attribute))
        second.write()
        ended = second.run_to_its_end()
        assert (ended.code, ended.out) == (1, "")
        assert str(getattr(first, attribute)) in ended.err
    assert first.api.send("orders", b"x").status == 200


def test_a_data_directory_that_cannot_be_used_ends_with_1(make_node: MakeNode) -> None:
    node = make_node()
    node.data.write_text("a file where the directory should be")
    node.write()
    ended = node.run_to_its_end()
    assert (ended.code, ended.out) == (1, "")
    assert str(node.data) in ended.err


def test_a_damaged_journal_ends_with_5_and_is_left_as_it_is(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.send("orders", b"x")
    assert node.stop() == 0
    journal = node.data / "journal.sqlite"
    damaged = b"no database" + journal.read_bytes()[11:]
    journal.write_bytes(damaged)
    ended = node.run_to_its_end()
    assert ended.code == 5
    assert str(journal) in ended.err
    assert journal.read_bytes() == damaged


def test_every_answer_of_stored_before_a_sigkill_is_there_after_it(make_node: MakeNode) -> None:
    node = make_node().start()
    answered: list[str] = []

    def send_until_it_dies() -> None:
        for number in range(100_000):
            try:
                reply = node.api.send("orders", b"%d" % number, Duplicate_Id=f"{number}")
            except (OSError, http.client.HTTPException):
                return
            if reply.status == 200:
                answered.append(f"{number}")

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_until_it_dies)
        eventually(lambda: len(answered) > 50, "some are stored")
        node.kill()
        sending.result()
    node.start()
    bodies = node.api.bodies("orders")
    assert bodies[: len(answered)] == answered
    assert len(bodies) <= len(answered) + 1
    assert node.api.send("orders", b"again", Duplicate_Id=answered[-1]).json["verdict"] == "duplicate"
