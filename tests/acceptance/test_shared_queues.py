"""Bridges that read a queue which others read, too."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to

BRIDGE = "billing-to-hub"
QUEUE = ("orders", "billing")
NUMBERS = [str(number) for number in range(30)]


def bridge(hub: Node, queue_name: str = "orders::billing", **keys: str) -> str:
    return bridge_to(hub, BRIDGE, queue_name=f'"{queue_name}"', forwarding_address='"in"', **keys)


def pair(make_node: MakeNode, **options: Any) -> tuple[Node, Node]:
    """An edge with the bridge, and the hub, which runs."""
    hub = make_node("hub").start()
    return make_node("edge", rest=bridge(hub, **options)), hub


def send(node: Node, *bodies: str, address: str = "orders") -> None:
    assert node.api.commit(*({"address": address, "body": body} for body in bodies)).status == 200


def taken(node: Node, most: int = 1000, queue: tuple[str, str] = QUEUE) -> list[str]:
    """What a reader gets, acknowledged."""
    lease, messages = node.api.lease(*queue, f"max={most}")
    if lease is None:
        return []
    assert node.api.settle("acknowledge", *queue, lease=lease).status == 204
    return [message["body"] for message in messages]


def arrive(hub: Node, count: int) -> list[str]:
    """So many messages at the hub, awaited, in their order."""
    found = eventually(lambda: len(b := hub.api.bodies("in")) >= count and b, f"{count} messages arrive")
    assert isinstance(found, list)
    return found


def test_a_fully_qualified_name_is_that_queue_and_not_the_address(make_node: MakeNode) -> None:
    edge, hub = pair(make_node)
    edge.start()
    assert edge.api.make_queue("orders", "billing") == 201
    assert edge.api.make_queue("orders", "audit") == 201
    send(edge, *NUMBERS)
    assert arrive(hub, len(NUMBERS)) == NUMBERS
    assert taken(edge, queue=("orders", "audit")) == NUMBERS, "another queue has its own"
    assert taken(edge) == [], "nothing is left of this one"
    queue = next(q for q in edge.api.get("/v1/addresses/orders").json["queues"] if q["name"] == "billing")
    assert queue["lag"] == 0


def test_a_queue_that_is_not_there_yet_is_a_reason_and_the_bridge_starts_when_it_comes(
    make_node: MakeNode,
) -> None:
    edge, hub = pair(make_node)
    edge.start()
    reason = eventually(lambda: edge.status(BRIDGE)["reason"], "the bridge says what it waits for")
    assert "there is no queue orders::billing yet" in reason
    send(edge, "before")
    assert edge.api.make_queue("orders", "billing") == 201
    assert arrive(hub, 1) == ["before"]
    eventually(lambda: not edge.status(BRIDGE)["reason"], "the reason has gone")


def test_a_queue_of_another_address_is_refused(make_node: MakeNode) -> None:
    edge, _ = pair(make_node, queue_name="wrong::billing")
    plain = edge.rest
    edge.rest += '\n[addresses.orders]\nqueues = ["billing"]\n'
    ended = edge.run_to_its_end(settings=edge.write())
    assert ended.code == 2
    assert "queue-name" in ended.err
    assert "must name the queue's address: orders::billing" in ended.err
    edge.rest = ""
    edge.start()
    assert edge.api.make_queue("orders", "billing") == 201
    edge.stop()
    edge.rest = plain
    edge.start_listening()
    reason = edge.await_failed(BRIDGE)
    assert "there is no address wrong; the queue is orders::billing" in reason


def test_a_plain_name_that_only_a_queue_has_is_that_queue(make_node: MakeNode) -> None:
    edge, hub = pair(make_node, queue_name="billing")
    edge.rest += '\n[addresses.orders]\nqueues = ["billing"]\n'
    edge.start()
    send(edge, *NUMBERS)
    assert arrive(hub, len(NUMBERS)) == NUMBERS


def test_readers_and_the_bridge_share_the_messages(make_node: MakeNode) -> None:
    edge, hub = pair(make_node)
    edge.rest += '\n[addresses.orders]\nqueues = ["billing"]\n'
    hub.stop()
    edge.start()
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/pause")
    send(edge, *NUMBERS)
    lease, messages = edge.api.lease(*QUEUE, "max=10")
    assert [message["body"] for message in messages] == NUMBERS[:10]
    hub.start()
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/resume")
    assert arrive(hub, 20) == NUMBERS[10:], "what is leased stays"
    assert edge.api.settle("release", *QUEUE, lease=lease).status == 204
    assert arrive(hub, 30) == NUMBERS[10:] + NUMBERS[:10], "and comes behind, once it is free"


def test_kills_between_a_queue_and_the_hub_neither_lose_nor_double(make_node: MakeNode) -> None:
    edge, hub = pair(make_node)
    edge.rest += '\n[addresses.orders]\nqueues = ["billing"]\n'
    hub.stop()
    edge.start()
    send(edge, *NUMBERS)
    edge.kill()
    for point in ("journal.before-commit", "journal.after-commit", "source.before-settle"):
        hub.start()
        edge.crash(point)  # the first commit is that of the move, until it has succeeded
        hub.kill()
    edge.start()
    hub.start()
    assert arrive(hub, len(NUMBERS)) == NUMBERS
    assert taken(edge) == []


@pytest.mark.parametrize("in_doubt", ["dead-letter", "requeue"])
def test_what_a_forgotten_bridge_has_taken_goes_back_to_its_queue_through_kills(
    make_node: MakeNode, in_doubt: str
) -> None:
    edge, hub = pair(make_node)
    queues = '[addresses.orders]\nqueues = ["billing", "audit"]\n'
    edge.rest += queues
    edge.start()
    send(edge, *NUMBERS)
    assert arrive(hub, len(NUMBERS)) == NUMBERS
    for _ in range(4):  # a line that has carried much takes much
        send(edge, *["." * 2000] * 500)
    eventually(lambda: edge.status(BRIDGE)["lag"] == 0, "all is confirmed")
    hub.pause()
    bodies = [str(number) for number in range(100, 2600)]
    for start in range(0, len(bodies), 500):
        send(edge, *bodies[start : start + 500])
    log = f"/v1/addresses/$bridge.{BRIDGE}%2Forders"
    # It takes no more than its line needs, and more than goes back in one transaction.
    eventually(lambda: edge.api.get(log).json["bridges"][0]["lag"] > 1000, "it has taken many")
    edge.kill()
    hub.kill()
    edge.rest = queues
    forget = ("forget", "--settings", str(edge.write()), "--bridge", BRIDGE, "--in-doubt", in_doubt)
    said = command(*forget, "--dry-run", cwd=edge.directory).out
    there = re.search(r"\d{4} messages ", said)
    assert there is not None, said
    assert "orders::billing" in said
    for point in ("journal.before-commit", "journal.after-commit", "journal.before-commit"):
        crash = {"CORE_BRIDGE_CRASH_AT": f"{point}:1"}
        assert command(*forget, cwd=edge.directory, variables=crash).code == -signal.SIGKILL
    said = command(*forget, "--dry-run", cwd=edge.directory).out
    assert "orders::billing" in said
    assert there[0] not in said  # a part of them has gone back
    assert command(*forget, cwd=edge.directory).code == 0
    edge.start()
    if in_doubt == "dead-letter":
        assert edge.ops.call("POST", "/v1/dead-letters/replay", positions="all").status == 200
    found = [body for _ in range(3) for body in taken(edge)]
    assert sorted(found, key=int) == bodies, "each once; those that go back come behind those that stayed"
    assert edge.api.get(log).status == 404


def anycast(make_node: MakeNode) -> tuple[Node, Node]:
    edge, hub = pair(make_node, queue_name="orders")
    edge.rest += '\n[addresses.orders]\nrouting-type = "ANYCAST"\n'
    return edge, hub


def test_a_bridge_and_readers_of_an_anycast_address_take_turns(make_node: MakeNode) -> None:
    edge, hub = anycast(make_node)
    edge.start()
    described = edge.api.get("/v1/addresses/orders").json
    assert described["routing-type"] == "ANYCAST"
    assert [queue["name"] for queue in described["queues"]] == ["orders"]
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/pause")
    send(edge, *NUMBERS)
    assert taken(edge, 10, ("orders", "orders")) == NUMBERS[:10]
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/resume")
    assert arrive(hub, 20) == NUMBERS[10:]
    assert taken(edge, queue=("orders", "orders")) == []


def test_an_anycast_address_has_one_queue_that_stays(make_node: MakeNode) -> None:
    edge, _ = anycast(make_node)
    edge.start()
    assert edge.api.make_queue("orders", "orders") == 200
    problem = edge.api.call("PUT", "/v1/addresses/orders/queues/other").is_problem(409, "CONFLICT")
    assert "it has one queue, of its own name" in problem["detail"]
    problem = edge.api.call("DELETE", "/v1/addresses/orders/queues/orders").is_problem(409, "CONFLICT")
    assert "goes with the address" in problem["detail"]
    problem = edge.ops.call("DELETE", "/v1/addresses/orders").is_problem(409, "CONFLICT")
    assert f"orders is read by the bridges {BRIDGE}" in problem["detail"]


def test_an_address_becomes_anycast_when_nothing_waits_for_others(make_node: MakeNode) -> None:
    edge, hub = pair(make_node, queue_name="orders")
    edge.start()
    hub.stop()
    send(edge, *NUMBERS)
    edge.stop()
    edge.rest += '\n[addresses.orders]\nrouting-type = "ANYCAST"\n'
    ended = edge.run_to_its_end(settings=edge.write())
    assert ended.code != 0
    assert "orders cannot become ANYCAST, messages wait for the bridge" in ended.err
    edge.rest = edge.rest.replace('"ANYCAST"', '"MULTICAST"')
    hub.start()
    edge.start()
    assert arrive(hub, len(NUMBERS)) == NUMBERS
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    edge.stop()
    edge.rest = edge.rest.replace('"MULTICAST"', '"ANYCAST"')
    edge.start()
    send(edge, "new")
    assert arrive(hub, 31)[30:] == ["new"]
    assert taken(edge, queue=("orders", "orders")) == []


def test_what_waits_in_a_shared_queue_is_the_bridges_lag(make_node: MakeNode) -> None:
    edge, hub = anycast(make_node)
    hub.stop()
    edge.start()
    send(edge, *NUMBERS)
    assert edge.status(BRIDGE)["lag"] == len(NUMBERS)
    assert edge.metrics()[f'core_bridge_lag_messages{{bridge="{BRIDGE}"}}'] == len(NUMBERS)
    hub.start()
    assert arrive(hub, len(NUMBERS)) == NUMBERS
    eventually(lambda: edge.status(BRIDGE)["lag"] == 0, "nothing waits")


def test_two_bridges_share_a_queue(make_node: MakeNode) -> None:
    hub = make_node("hub").start()
    rest = "".join(
        bridge_to(hub, name, queue_name='"orders::billing"', connector=name, forwarding_address=f'"{name}"')
        for name in ("one", "two")
    )
    edge = make_node("edge", rest=f'{rest}\n[addresses.orders]\nqueues = ["billing"]\n').start()
    for number in NUMBERS:
        send(edge, number)
    found = eventually(
        lambda: len(both := hub.api.bodies("one") + hub.api.bodies("two")) >= len(NUMBERS) and both,
        "all arrive",
    )
    assert isinstance(found, list)
    assert sorted(found, key=int) == NUMBERS, "each once"
    for name in ("one", "two"):
        assert hub.api.bodies(name) == sorted(hub.api.bodies(name), key=int), "in order"


@pytest.mark.parametrize(
    ("setting", "declared", "becomes"),
    [
        ("PASS", "ANYCAST", "ANYCAST"),
        ("PASS", "MULTICAST", "MULTICAST"),
        ("STRIP", "ANYCAST", "MULTICAST"),
        ("ANYCAST", "MULTICAST", "ANYCAST"),
        ("MULTICAST", "ANYCAST", "MULTICAST"),
    ],
)
def test_an_address_made_at_the_target_has_the_bridges_routing_type(
    make_node: MakeNode, setting: str, declared: str, becomes: str
) -> None:
    """B27. One that is there keeps its type, and gets the messages all the same."""
    edge, hub = pair(make_node, queue_name="orders", routing_type=f'"{setting}"')
    edge.rest += f'\n[addresses.orders]\nrouting-type = "{declared}"\n'
    edge.start()
    send(edge, "one")
    assert arrive(hub, 1) == ["one"]
    assert hub.api.get("/v1/addresses/in").json["routing-type"] == becomes
    edge.stop()
    edge.rest = edge.rest.replace(f'routing-type = "{setting}"', 'routing-type = "ANYCAST"')
    edge.start()
    send(edge, "two")
    assert arrive(hub, 2) == ["one", "two"]
    assert hub.api.get("/v1/addresses/in").json["routing-type"] == becomes


def test_what_a_bridges_filter_rejects_stays_for_the_readers(make_node: MakeNode) -> None:
    edge, hub = pair(make_node, filter="\"colour = 'red'\"")
    edge.rest += '\n[addresses.orders]\nqueues = ["billing"]\n'
    edge.start()
    messages = [
        {
            "address": "orders",
            "body": number,
            "headers": {"colour": "red" if int(number) % 3 == 0 else "blue"},
        }
        for number in NUMBERS
    ]
    assert edge.api.commit(*messages).status == 200
    red, blue = NUMBERS[::3], [number for number in NUMBERS if int(number) % 3]
    assert arrive(hub, len(red)) == red
    edge.kill()
    edge.start()
    assert edge.api.commit(*messages).status == 200
    assert arrive(hub, 2 * len(red)) == red + red, "behind what it has left before"
    assert taken(edge) == blue + blue
