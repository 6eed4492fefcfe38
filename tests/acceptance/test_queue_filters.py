"""Queues with filters over HTTP: settings, callers, metrics, SIGKILL and restarts."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.harness.api import Api, titles
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node

DECLARED = """
[addresses.orders]
queues = ["all", {{ name = "eu", filter = "region = '{region}'" }}]
"""


def send(api: Api, body: str, region: str) -> bool:
    return api.commit({"address": "orders", "body": body, "headers": {"region": region}}).status == 200


def take(api: Api, queue: str) -> list[str]:
    """Read and settle until there is nothing left."""
    found: list[str] = []
    while (leased := api.lease("orders", queue, "max=7"))[0] is not None:
        found += titles(leased[1])
        assert api.settle("acknowledge", "orders", queue, lease=leased[0]).status == 204
    return found


def queue(node: Node, name: str) -> dict[str, Any]:
    queues: list[dict[str, Any]] = node.api.get("/v1/addresses/orders").json["queues"]
    return next(one for one in queues if one["name"] == name)


def test_a_declared_queue_gets_what_its_filter_takes_and_another_filter_after_a_restart(
    make_node: MakeNode,
) -> None:
    node = make_node(rest=DECLARED.format(region="eu")).start()
    for number in range(6):
        assert send(node.api, f"{number}", "eu" if number % 2 == 0 else "us")
    assert queue(node, "eu") == queue(node, "eu") | {"lag": 3, "filter": "region = 'eu'"}
    assert "filter" not in queue(node, "all")
    lag = 'core_bridge_queue_lag_messages{address="orders",queue="%s"}'
    assert [node.metrics()[lag % name] for name in ("all", "eu")] == [6, 3]
    node.stop()
    node.rest = DECLARED.format(region="us")
    node.start()
    for number in range(6, 8):
        assert send(node.api, f"{number}", "eu" if number % 2 == 0 else "us")
    assert take(node.api, "eu") == ["0", "2", "4", "7"], "what was stored stays as it was addressed"
    assert take(node.api, "all") == list("01234567")
    assert node.api.get("/v1/addresses/orders").json["messages"] == 0


def test_a_killed_node_keeps_each_queue_to_its_filter(make_node: MakeNode) -> None:
    """P10: everything that was answered is in the queues that take it, once and in order."""
    node = make_node(rest=DECLARED.format(region="eu")).start()
    answered: list[str] = []
    read: list[str] = []

    def send_until_it_dies() -> None:
        for number in range(100_000):
            try:
                if send(node.api, f"{number}", "eu" if number % 3 == 0 else "us"):
                    answered.append(f"{number}")
            except (OSError, http.client.HTTPException):
                return

    for _ in range(3):
        answered.clear()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send_until_it_dies)
            eventually(lambda: len(answered) > 20, "some are stored")
            lease, messages = node.api.lease("orders", "eu", "max=3")
            read = titles(messages)
            assert node.api.settle("acknowledge", "orders", "eu", lease=lease).status == 204
            node.kill()
            sending.result()
        node.start()
        every = take(node.api, "all")
        assert every[: len(answered)] == answered
        assert len(every) <= len(answered) + 1
        assert [*read, *take(node.api, "eu")] == [body for body in every if int(body) % 3 == 0]
        assert (queue(node, "eu")["lag"], queue(node, "all")["lag"]) == (0, 0)
        described = node.api.get("/v1/addresses/orders").json
        assert (described["messages"], queue(node, "eu")["next"]) == (0, described["next"])


def test_a_caller_makes_a_queue_with_a_filter_and_changes_it(make_node: MakeNode) -> None:
    node = make_node().start()
    assert node.api.make_queue("orders", "q", filter="region = 'eu'") == 201
    assert node.api.make_queue("orders", "q") == 200
    send(node.api, "0", "eu")
    assert node.api.make_queue("orders", "q", filter="region = 'us'") == 200
    send(node.api, "1", "eu")
    send(node.api, "2", "us")
    assert take(node.api, "q") == ["0", "2"]
    assert node.api.make_queue("orders", "q", filter="") == 200
    assert "filter" not in queue(node, "q")
    refused = node.api.call("PUT", "/v1/addresses/new/queues/q", filter="region = ")
    problem = refused.is_problem(400, "FILTER_REFUSED")
    assert (problem["key"], problem["line"], problem["column"]) == ("filter", 1, 9)
    assert node.api.get("/v1/addresses/new").status == 404


def test_what_a_filter_cannot_evaluate_is_counted_and_logged_once_a_filter(make_node: MakeNode) -> None:
    """Artemis logs AMQ224006 for each message."""
    node = make_node(
        rest='[addresses.orders]\nqueues = ["all", { name = "sum", filter = "region - 1 = 4" }]\n'
    ).start()
    series = 'core_bridge_queue_messages_not_evaluated_total{address="orders",queue="%s"}'
    assert node.metrics()[series % "sum"] == 0
    for _ in range(3):
        assert send(node.api, "0", "eu")
    assert node.metrics()[series % "sum"] == 3
    assert series % "all" not in node.metrics()
    event = node.event("queue-filter-not-evaluated", address="orders", queue="sum")
    assert (event["level"], event["count"]) == ("warning", 1)
    assert len(node.events("queue-filter-not-evaluated")) == 1
    assert node.api.make_queue("orders", "sum", filter="region - 2 = 4") == 200
    assert send(node.api, "1", "eu")
    eventually(lambda: len(node.events("queue-filter-not-evaluated")) == 2, "it has another filter")
    assert node.metrics()[series % "sum"] == 4
    assert node.api.call("DELETE", "/v1/addresses/orders/queues/sum").status == 204
    assert series % "sum" not in node.metrics()
    assert take(node.api, "all") == ["0", "0", "0", "1"]


def test_what_no_queue_takes_is_said(make_node: MakeNode) -> None:
    """D45: it is stored, with its ID, and trimmed at once."""
    node = make_node(
        rest='[addresses.orders]\nqueues = [{ name = "eu", filter = "region = \'eu\'" }]\n'
    ).start()
    for region in ("eu", "us", "asia"):
        send(node.api, region, region)
    assert node.metrics()['core_bridge_messages_unrouted_total{address="orders"}'] == 2
    (address,) = node.ops.get("/v1/status").json["addresses"]
    assert address["unrouted"] == 2
    assert (
        node.api.commit({"address": "orders", "body": "x", "duplicate-id": "a"}).json["verdict"] == "stored"
    )
    assert node.api.commit({"address": "orders", "body": "x", "duplicate-id": "a"}).status == 409
    assert take(node.api, "eu") == ["eu"]


def test_a_condition_of_a_broker_xml_finds_the_header_of_a_post(make_node: MakeNode) -> None:
    # HTTP's header names have no case; those of a transaction have.
    node = make_node(
        rest='[addresses.orders]\nqueues = [{ name = "pool", filter = "EVENT_TARGET = \'POOL\'" }]\n'
    ).start()
    for name, value in (("EVENT_TARGET", "POOL"), ("event_target", "POOL"), ("EVENT_TARGET", "HALL")):
        headers = {f"Message-Header-{name}": value}
        assert node.api.call("POST", "/v1/addresses/orders/messages", name.encode(), headers).status == 200
    for headers in (
        {"EVENT_TARGET": "POOL"},
        {"EVENT_TARGET": "HALL", "event_target": "POOL"},
        {"Event_Target": "POOL"},
    ):
        assert (
            node.api.commit({"address": "orders", "body": "+".join(headers), "headers": headers}).status
            == 200
        )
    assert take(node.api, "pool") == ["EVENT_TARGET", "event_target", "EVENT_TARGET"]


def test_a_refused_condition_is_found_before_anything_is_opened(make_node: MakeNode) -> None:
    node = make_node(rest='[addresses.orders]\nqueues = ["all", { name = "eu", filter = "region =" }, 5]\n')
    ended = command("validate", "--settings", str(node.write()), cwd=node.directory)
    assert ended.code == 2
    where = "addresses.orders.queues[1].filter (eu): is refused: line 1, column 9: expected"
    assert where in ended.out + ended.err
    assert "addresses.orders.queues[2]: must be a name in quotes, or a table" in ended.out + ended.err
    assert not node.data.exists()


def test_receive_makes_a_queue_with_a_filter(make_node: MakeNode) -> None:
    node = make_node().start()
    send(node.api, "before", "eu")
    receive = ("receive", "--url", f"http://127.0.0.1:{node.port}", "--address", "orders", "--timeout", "0.2")
    first = command(*receive, "--queue", "eu", "--filter", "region = 'eu'", cwd=node.directory)
    assert (first.code, first.out) == (0, "")
    assert "made queue eu of orders, with its filter, from now on" in first.err
    send(node.api, "1", "us")
    send(node.api, "2", "eu")
    again = command(*receive, "--queue", "eu", "--filter", "region = 'us'", cwd=node.directory)
    assert (again.code, again.out) == (0, "2\n")
    assert command(*receive, "--filter", "region = 'eu'", cwd=node.directory).code == 2
