"""A full address is seen before anybody asks: log, metrics, status; and the queue that fills it can go."""

from __future__ import annotations

import json

from tests.harness.api import Api
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode

SMALL = '[address-settings.orders]\nmax-size-bytes = "4KiB"\naddress-full-policy = "FAIL"\n'


def test_a_mistyped_queue_that_fills_an_address_is_seen_named_and_deleted(make_node: MakeNode) -> None:
    node = make_node(rest=SMALL).start()
    file = ("--settings", str(node.file))
    where = ("--address", "orders", *file, "--timeout", "0")
    assert node.api.send("orders", b"first").status == 200
    mistyped = command("receive", *where, "--queue", "bilings")
    assert (mistyped.code, mistyped.out) == (1, "")
    assert "QUEUE_NOT_FOUND" in mistyped.err
    assert mistyped.err.endswith("; --create makes it\n")
    made = command("receive", *where, "--queue", "billing", "--create")
    assert (made.out, made.err) == (
        "first\n",
        "core-bridge: made queue billing of orders, from its earliest message on\n",
    )
    assert command("receive", *where, "--queue", "bilings", "--create").err.startswith(
        "core-bridge: made queue bilings"
    )
    assert command("receive", *where, "--queue", "billing").err == "", "it was there"
    node.event("queue-made", queue="bilings", address="orders", user="anybody")
    assert node.api.send("orders", b"x" * 1000).status == 200
    assert command("receive", *where, "--queue", "billing").code == 0
    stored = 1
    while node.api.send("orders", b"x" * 1000).status == 200:
        stored += 1
    full = node.event("address-full", address="orders")
    assert (full["level"], full["max-bytes"], full["slowest-queue"]) == ("warning", 4096, "bilings")
    assert full["bytes"] >= 4096
    assert node.ops.get("/ready").json == {"ready": True, "reasons": [], "bridges": {}}, "of the contract"
    found = node.metrics()
    assert found['core_bridge_address_bytes{address="orders"}'] >= 4096
    assert found['core_bridge_address_max_bytes{address="orders"}'] == 4096
    assert found['core_bridge_queue_lag_messages{address="orders",queue="billing"}'] == stored - 1
    assert found['core_bridge_queue_lag_messages{address="orders",queue="bilings"}'] == stored
    shown = command("status", *file).out.splitlines()
    (line,) = [line for line in shown if line.startswith("address orders ")]
    assert " max-bytes 4096 " in line
    assert line.endswith(" (full)")
    status = json.loads(command("status", *file, "--format", "json").out)
    (address,) = [address for address in status["addresses"] if address["address"] == "orders"]
    assert {queue["name"]: queue["lag"] for queue in address["queues"]} == {
        "billing": stored - 1,
        "bilings": stored,
    }
    assert node.ops.call("DELETE", "/v1/addresses/orders/queues/bilings").status == 204
    node.event("address-room", address="orders")
    eventually(lambda: node.api.send("orders", b"again").status == 200, "it takes messages again")
    assert len(node.events("address-full")) == len(node.events("address-room")) == 1


def test_deleting_a_queue_is_a_right_of_its_own(make_node: MakeNode) -> None:
    users = "".join(
        f'[[acceptor.users]]\nname = "{name}"\ntoken = "{name}"\n{rights}\n'
        for name, rights in {
            "reader": 'receive = ["#"]',
            "owner": 'receive = ["orders"]\ndelete-queues = ["orders"]',
        }.items()
    )
    node = make_node(acceptor=f'tokens = ["all"]\n{users}').start()
    reader, owner, everything = (Api(node.port, token) for token in ("reader", "owner", "all"))
    for queue in ("a", "b", "c"):
        assert reader.make_queue("orders", queue) == 201
    path = "/v1/addresses/orders/queues/"
    problem = reader.call("DELETE", f"{path}a").is_problem(403, "FORBIDDEN")
    assert problem["detail"] == "reader may not delete queues of orders"
    assert owner.call("DELETE", f"{path}a").status == 204
    node.event("queue-deleted", address="orders", queue="a", user="owner")
    owner.call("DELETE", "/v1/addresses/other/queues/a").is_problem(403, "FORBIDDEN")
    # Another filter decides, too, what the queue's readers do not get.
    assert reader.make_queue("orders", "mine", filter="x = 1") == 201
    assert reader.make_queue("orders", "mine", filter="x = 1") == 200, "it has this filter"
    for condition in ("x = 2", ""):
        problem = reader.call("PUT", f"{path}mine", filter=condition).is_problem(403, "FORBIDDEN")
        assert (problem["key"], problem["found"]) == ("filter", condition)
    assert owner.make_queue("orders", "mine", filter="x = 2") == 200
    changed = node.event("queue-filter-changed", address="orders", queue="mine")
    assert (changed["user"], changed["before"], changed["filter"]) == ("owner", "x = 1", "x = 2")
    assert everything.make_queue("orders", "mine", filter="") == 200
    node.event("queue-filter-changed", user="tokens[0]", before="x = 2", filter="")
    assert len(node.events("queue-filter-changed")) == 2
    assert everything.call("DELETE", f"{path}b").status == 204
    assert node.ops.call("DELETE", f"{path}c").status == 204, "an operator"
    node.ops.call("DELETE", f"{path}c").is_problem(404, "QUEUE_NOT_FOUND")
