"""A bridge with a filter between nodes: what crosses, what becomes of the rest, and what operators see."""

from __future__ import annotations

import http.client
import json
import random
from pathlib import Path

import pytest

from bridge.relay.filtering import DOUBTED_AFTER
from tests.acceptance.test_replay_plan import BRIDGE, counts, entry_of, replay, sent_upto, write_plan
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.harness.reports import Report

GOATS = '''"animal = 'goat'"'''
MIB = 1024 * 1024


def send(edge: Node, animal: str, *bodies: str) -> None:
    """One transaction: what follows each other here is next to each other there."""
    messages = [{"address": "orders", "body": body, "headers": {"animal": animal}} for body in bodies]
    assert edge.api.commit(*messages).status == 200


def filtered(edge: Node) -> float:
    return edge.metrics()[f'core_bridge_messages_filtered_total{{bridge="{BRIDGE}"}}']


def covered(edge: Node, *, may_die: bool = False) -> None:
    """Wait until the target covers everything; of what is rejected at the end that is within 10 s.

    `may_die`: the edge is started again where its crash point comes with the last settlement.
    """

    def nothing_waits() -> bool:
        if may_die and edge.process is not None and edge.process.poll() is not None:
            assert edge.wait() == -9
            edge.start()
        return edge.lag("orders") == 0

    eventually(nothing_waits, "everything is covered", 30)


def test_exactly_the_goats_cross_in_order_and_the_monkeys_are_passed_over(make_node: MakeNode) -> None:
    """B4: here the monkeys are covered and counted; they do not stay, and hold nobody up."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS))
    start_together(hub, edge)
    assert (edge.status(BRIDGE)["filtered"], filtered(edge)) == (0, 0), "they are there from the start"
    send(edge, "monkey", *(f"m{number}" for number in range(10)))
    send(edge, "goat", *(f"g{number}" for number in range(10)))
    covered(edge)
    assert hub.api.bodies("orders") == [f"g{number}" for number in range(10)]
    assert (edge.status(BRIDGE)["filtered"], filtered(edge)) == (10, 10)
    assert edge.api.get("/v1/addresses/orders").json["messages"] == 0, "nobody needs them any more"
    send(edge, "monkey", "last")
    edge.stop()  # which covers it, if it was read by then
    edge.start()
    covered(edge)
    assert (edge.stop(), hub.stop()) == (0, 0)
    assert sent_upto(edge) == 21
    assert [line["count"] for line in hub.delivery_lines() if line["bridge"] == BRIDGE][-1] == 0


def test_large_messages_cross_byte_for_byte_where_the_filter_takes_them(make_node: MakeNode) -> None:
    """B5"""
    hub = make_node("hub", acceptor='max-message-size = "16MiB"')
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS), acceptor='max-message-size = "16MiB"')
    start_together(hub, edge)
    chance = random.Random(5)
    bodies = [chance.randbytes(size) for size in (3 * MIB, 10, 5 * MIB, 2 * MIB)]
    for number, body in enumerate(bodies):
        animal = "monkey" if number == 2 else "goat"
        sent = edge.api.send("orders", body, Message_Header_animal=animal)
        assert sent.status == 200, sent
    covered(edge)
    arrived = [hub.api.get(f"/v1/addresses/orders/messages/{position}").body for position in range(3)]
    assert arrived == [bodies[0], bodies[1], bodies[3]]
    assert filtered(edge) == 1


def test_each_bridge_has_its_own_filter_and_sees_where_messages_came_from(make_node: MakeNode) -> None:
    near, far = make_node("near"), make_node("far")
    orders = bridge_to(
        near, "near", '["orders", "invoices"]', "near", filter='''"AMQAddress = 'orders' AND amount > 10"'''
    )
    edge = make_node("edge", rest=orders + bridge_to(far, "far", '"orders"', "far", filter='"amount <= 10"'))
    start_together(near, far, edge)
    for number in (5, 50):
        for address in ("orders", "invoices"):
            edge.api.commit(
                {"address": address, "body": f"{address} {number}", "headers": {"amount": f"{number}"}}
            )
    covered(edge)
    eventually(lambda: edge.lag("invoices") == 0, "invoices are covered", 30)
    assert (near.api.bodies("orders"), near.api.bodies("invoices")) == (["orders 50"], [])
    assert far.api.bodies("orders") == ["orders 5"]


def test_what_the_filter_rejects_becomes_no_dead_letter_of_the_loop_guard(make_node: MakeNode) -> None:
    """The filter stands before it: what is not passed on takes no hop."""
    end, middle = make_node("end"), make_node("middle")
    middle.rest = bridge_to(end, "on", connector="end", filter=GOATS, max_hops="1")
    edge = make_node("edge", rest=bridge_to(middle, connector="middle"))
    start_together(end, middle, edge)
    send(edge, "monkey", "m0", "m1")
    send(edge, "goat", "g0")
    send(edge, "monkey", "m2")
    covered(edge)
    eventually(lambda: middle.lag("orders") == 0, "everything is covered", 30)
    assert middle.api.bodies("dead-letters") == ["g0"]
    assert middle.status("on")["filtered"] == 3


@pytest.mark.parametrize("crash", ["link.after-batch:3", "source.before-settle:2", "source.after-settle:3"])
def test_killed_while_it_filters_the_goats_arrive_once_and_the_logs_chain(
    make_node: MakeNode, crash: str
) -> None:
    """Also the lines that are written of what was sent before name the goats alone."""
    hub = make_node("hub").start()
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS)).start(CORE_BRIDGE_CRASH_AT=crash)
    expected = []
    for number in range(30):
        animal = "goat" if number % 3 else "monkey"
        expected += [f"{number}"] if animal == "goat" else []

        def answered(number: int = number, animal: str = animal) -> bool:
            try:
                sent = edge.api.send(
                    "orders", b"%d" % number, Duplicate_Id=f"{number}", Message_Header_animal=animal
                )
            except (OSError, http.client.HTTPException):
                assert edge.wait() == -9
                edge.start()
                return False
            return sent.status == 200

        eventually(answered, f"{number} is stored", 30)
    covered(edge, may_die=True)
    assert hub.api.bodies("orders") == expected
    assert (edge.stop(), hub.stop()) == (0, 0)
    sent = [line for line in edge.delivery_lines() if line["side"] == "sent"]
    received = [line for line in hub.delivery_lines() if line["bridge"] == BRIDGE]
    for lines in (sent, received):
        lines.sort(key=lambda line: line["from"])
    assert sum(line["count"] for line in sent) == sum(line["count"] for line in received) == len(expected)
    assert sent[-1]["upto"] == received[-1]["upto"]


def test_what_cannot_be_evaluated_is_logged_once_and_counted(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, filter='"animal - 1 = 4"'))
    start_together(hub, edge)
    for number in range(5):
        send(edge, "goat", f"{number}")
    covered(edge)
    status = edge.status(BRIDGE)
    assert (status["filtered"], status["not-evaluated"], status["filter"]) == (5, 5, "animal - 1 = 4")
    assert edge.metrics()[f'core_bridge_messages_not_evaluated_total{{bridge="{BRIDGE}"}}'] == 5
    (event,) = edge.events("filter-not-evaluated")
    assert (event["bridge"], event["address"], event["level"]) == (BRIDGE, "orders", "warning")
    shown = command("status", "--operations", f"http://127.0.0.1:{edge.operations_port}")
    assert " filtered 5 not-evaluated 5" in shown.out
    assert hub.api.bodies("orders") == []


def test_a_filter_that_takes_nothing_is_shown_and_logged_once(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, filter='"amout > 10"'))
    start_together(hub, edge)
    metric = f'core_bridge_filter_doubtful{{bridge="{BRIDGE}"}}'
    assert (edge.metrics()[metric], edge.status(BRIDGE)["filter-doubt"]) == (0, None)
    messages = [{"address": "orders", "body": "x", "headers": {"amount": "12"}}] * DOUBTED_AFTER
    assert edge.api.commit(*messages).status == 200
    covered(edge)
    doubt = edge.status(BRIDGE)["filter-doubt"]
    assert "took none of 1000 messages and names what none of 1000 messages has: amout" in doubt
    assert edge.metrics()[metric] == 1
    (event,) = edge.events("filter-doubtful")
    assert (event["bridge"], event["level"], event["missing"]) == (BRIDGE, "warning", ["amout"])
    shown = command("status", "--operations", f"http://127.0.0.1:{edge.operations_port}")
    assert f"filter {BRIDGE}: {doubt}\n" in shown.out
    assert edge.api.commit({"address": "orders", "body": "x", "headers": {"amout": "12"}}).status == 200
    eventually(lambda: edge.metrics()[metric] == 0, "a message with the name ends the doubt")
    assert edge.status(BRIDGE)["filter-doubt"] is None


def test_another_filter_acts_from_the_next_message_on(make_node: MakeNode) -> None:
    """Design, change of mind; the start says which filter a bridge has."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS))
    start_together(hub, edge)
    assert edge.event("bridge-started")["filter"] == "animal = 'goat'"
    send(edge, "goat", "g0")
    send(edge, "monkey", "m0")
    covered(edge)
    assert edge.stop() == 0
    edge.rest = edge.rest.replace("= 'goat'", "= 'monkey'")
    edge.start()
    send(edge, "goat", "g1")
    send(edge, "monkey", "m1")
    covered(edge)
    assert hub.api.bodies("orders") == ["g0", "m1"]


def test_a_plan_that_names_what_the_filter_rejects_sends_the_rest(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """A replay sends what its bridge would send."""
    hub = make_node("hub")
    retained = '[address-settings."#"]\nretain-time = "1h"\n'
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS) + retained)
    start_together(hub, edge)
    send(edge, "goat", "g0")
    send(edge, "monkey", "m0", "m1")
    send(edge, "goat", "g1")
    covered(edge)
    eventually(lambda: sent_upto(edge) == 4, "it is in the delivery log")
    plan = write_plan(tmp_path / "plan.json", entry_of(edge, [[0, 3]]))
    told = {"sent": 0, "known": 2, "earlier": 0, "gone": 0, "refused": 0, "unknown": 0, "filtered": 2}
    looked = replay(edge, plan, "--dry-run")
    assert (looked.code, counts(looked)) == (1, told), looked
    ended = replay(edge, plan)
    assert (ended.code, counts(ended)) == (1, told), ended
    assert "the bridge's filter does not take 1-2" in ended.err
    forced = replay(edge, plan, "--force")
    assert counts(forced) == told | {"sent": 2, "known": 0}
    assert hub.api.bodies("orders") == ["g0", "g1", "g0", "g1"]
    again = replay(edge, plan)
    assert (again.code, counts(again)["earlier"]) == (0, 4), again


@pytest.mark.spark_long
def test_a_filtered_bridge_reconciles_clean(make_node: MakeNode, tmp_path: Path) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, filter=GOATS))
    start_together(hub, edge)
    for number in range(10):
        send(edge, "monkey" if number % 3 else "goat", f"{number}a", f"{number}b")
    edge.kill()
    edge.start()
    send(edge, "monkey", "last")
    covered(edge)
    assert (edge.stop(), hub.stop()) == (0, 0)
    report = Report.of(tmp_path / "report", [node.data / "delivery-log" for node in (edge, hub)])
    report.assert_clean(BRIDGE, 8)
    assert json.loads(report.plan.read_text())["entries"] == []
