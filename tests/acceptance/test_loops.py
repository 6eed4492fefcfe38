"""The loop guard between nodes: what comes round is a dead letter where it would set out again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

#: One file for all nodes of a chain or ring: only where the next one listens differs.
ONE_FILE = """
[connectors.next]
url = "${NEXT:-ws://127.0.0.1:1}"

[[bridges]]
name = "onward"
queue-name = "orders"
static-connectors = ["next"]
retry-interval = 200
"""


def chain(make_node: MakeNode, *names: str, rest: str = ONE_FILE) -> list[Node]:
    """Nodes with one file, each with the one behind it as the next."""
    nodes = [make_node(name, rest=rest) for name in names]
    for node, following in pairwise(nodes):
        node.variables["NEXT"] = following.url
    return nodes


def ring(make_node: MakeNode, *names: str, rest: str = ONE_FILE) -> list[Node]:
    nodes = chain(make_node, *names, rest=rest)
    nodes[-1].variables["NEXT"] = nodes[0].url
    return nodes


def letters(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ops.get("/v1/dead-letters").json["dead-letters"]
    return found


def dead_letters(node: Node, number: int) -> list[dict[str, Any]]:
    """So many dead letters, awaited."""
    eventually(lambda: len(letters(node)) >= number, f"{number} letters at {node.name}")
    found = letters(node)
    assert len(found) == number
    return found


def settled(*nodes: Node, address: str = "orders") -> None:
    """Wait until no bridge has anything left to do with what has come so far."""

    def nothing_left() -> bool:
        return all(node.lag(address) == 0 for node in nodes)

    eventually(nothing_left, "nothing is left")


def send(node: Node, *bodies: str, address: str = "orders") -> None:
    assert node.api.commit(*({"address": address, "body": body} for body in bodies)).status == 200


def test_two_nodes_with_one_file_make_dead_letters_of_what_comes_back(
    make_node: MakeNode,
) -> None:
    a, b = ring(make_node, "a", "b")
    start_together(a, b)
    send(a, "one", "two")
    found = dead_letters(a, 2)
    assert [letter["reason"].split(":")[0] for letter in found] == ["LOOP", "LOOP"]
    assert {(letter["bridge"], letter["address"]) for letter in found} == {("onward", "orders")}
    assert [message["body"] for message in a.api.browse("dead-letters")] == ["one", "two"]
    settled(a, b)
    assert (a.api.bodies("orders"), b.api.bodies("orders")) == ([], [])
    assert (a.bridge_state("onward"), b.bridge_state("onward")) == ("RUNNING", "RUNNING")
    assert letters(b) == []
    # What enters at the other end goes round, too, and a dead letter stays one over a restart.
    send(b, "three")
    assert len(dead_letters(b, 1)) == 1
    a.stop()
    a.start()
    settled(a, b)
    assert (len(letters(a)), len(letters(b))) == (2, 1)


def test_bridges_of_different_names_make_dead_letters_of_what_comes_back(make_node: MakeNode) -> None:
    a, b = make_node("a"), make_node("b")
    a.rest = bridge_to(b, "there", connector="b")
    b.rest = bridge_to(a, "back", connector="a")
    start_together(a, b)
    a.api.make_queue("orders", "audit", **{"from": "earliest"})
    send(a, "one")
    (letter,) = dead_letters(a, 1)
    assert letter["bridge"] == "there"
    assert letters(b) == []
    assert a.api.bodies("orders") == ["one", "one"]


def test_a_ring_of_three_goes_round_once(make_node: MakeNode) -> None:
    a, b, c = ring(make_node, "a", "b", "c")
    start_together(a, b, c)
    for node in (a, b, c):
        node.api.make_queue("orders", "audit", **{"from": "earliest"})
    send(a, *(f"m{n}" for n in range(50)))
    assert {letter["reason"].split(":")[0] for letter in dead_letters(a, 50)} == {"LOOP"}
    settled(a, b, c)
    assert [len(node.api.bodies("orders")) for node in (a, b, c)] == [100, 50, 50]
    assert letters(b) == letters(c) == []


def test_a_chain_with_one_file_is_no_loop(make_node: MakeNode) -> None:
    """Names are equal, stores are not."""
    a, b, c = chain(make_node, "a", "b", "c")
    start_together(a, b, c)
    send(a, "one", "two")
    eventually(lambda: c.api.bodies("orders") == ["one", "two"], "both have come to the end")
    send(b, "three")
    eventually(lambda: c.api.bodies("orders") == ["one", "two", "three"], "what entered on the way, too")
    assert letters(a) == letters(b) == letters(c) == []


def test_what_another_bridge_brings_back_on_purpose_arrives_once(make_node: MakeNode) -> None:
    a, b = make_node("a"), make_node("b")
    a.rest = bridge_to(b, "there", connector="b")
    b.rest = bridge_to(a, "back", connector="a", forwarding_address='"returned"')
    start_together(a, b)
    send(a, "one", "two")
    eventually(lambda: a.api.bodies("returned") == ["one", "two"], "both are back")
    settled(a, b)
    assert a.api.bodies("returned") == ["one", "two"]
    assert letters(a) == letters(b) == []


def test_what_a_bridges_filter_passes_over_is_no_loop(make_node: MakeNode) -> None:
    """The filter comes first: what comes round has already passed this bridge, and is not asked for again."""
    a, b = make_node("a"), make_node("b")
    a.rest = bridge_to(b, "there", connector="b", filter="\"animal = 'goat'\"")
    start_together(a, b)
    goat = {"address": "orders", "body": "goat", "headers": {"animal": "goat"}}
    assert a.api.commit(goat).status == 200
    eventually(lambda: b.api.bodies("orders") == ["goat"], "it has come")
    for node in (a, b):
        node.stop()
    a.rest = bridge_to(b, "there", connector="b", filter="\"animal = 'monkey'\"")
    b.rest = bridge_to(a, "back", connector="a")
    start_together(a, b)
    settled(a, b)
    eventually(lambda: a.lag("orders") == 0 and a.status("there")["filtered"] == 1, "it is passed over")
    assert (letters(a), a.status("there")["refused"]) == ([], 0)


RETURNING = {
    "to another address": ({"forwarding_address": '"returned"'}, ["m"], 0),
    "to its own address": ({}, [], 0),
    "to its own address, IDs unchecked": ({"check_producer_ids": '"auto"'}, [], 1),
    "to its own address, at least once": ({"use_duplicate_detection": "false"}, [], 1),
}


@pytest.mark.parametrize("how", RETURNING)
def test_a_message_that_returns_with_its_producers_id_is_lost_nowhere(make_node: MakeNode, how: str) -> None:
    """B26: its own address has it already; where it is taken again there, the loop guard has it."""
    keys, returned, looped = RETURNING[how]
    both = {key: value for key, value in keys.items() if key == "use_duplicate_detection"}
    a, b = make_node("a"), make_node("b")
    a.rest = bridge_to(b, "there", connector="b", **both)
    b.rest = bridge_to(a, "back", connector="a", **keys)
    start_together(a, b)
    a.api.make_queue("orders", "q")
    assert a.api.send("orders", b"m", Duplicate_Id="own").json["verdict"] == "stored"
    dead_letters(a, looped)
    settled(a, b)
    eventually(lambda: a.api.bodies("returned") == returned, "it is back")
    assert a.api.bodies("orders") == ["m"] * (1 + looped)
    assert letters(b) == []
    assert a.api.send("orders", b"m", Duplicate_Id="own").json["verdict"] == "duplicate"


def test_max_hops_ends_a_chain_and_what_entered_on_the_way_goes_on(make_node: MakeNode) -> None:
    a, b, c = chain(make_node, "a", "b", "c", rest=f"{ONE_FILE}max-hops = 1\n")
    start_together(a, b, c)
    send(a, "too far")
    (letter,) = dead_letters(b, 1)
    assert letter["reason"] == "TOO_MANY_HOPS: bridges that the message has passed: 1; max-hops is 1"
    send(b, "near enough")
    eventually(lambda: c.api.bodies("orders") == ["near enough"], "it has come")
    settled(a, b)
    assert len(letters(b)) == 1


def test_without_an_address_for_dead_letters_the_source_keeps_what_came_back(make_node: MakeNode) -> None:
    a, b = ring(make_node, "a", "b", rest=f'{ONE_FILE}dead-letter-address = ""\n')
    start_together(a, b)
    send(a, "one")
    a.await_state("onward", "FAILED")
    assert "LOOP" in a.event("bridge-failed")["reason"]
    assert (a.lag("orders"), a.api.bodies("orders")) == (1, ["one"])


def test_a_letter_that_came_round_comes_round_again_when_it_is_sent_again(make_node: MakeNode) -> None:
    """A person may ask for it; the ring turns once more at most."""
    a, b = ring(make_node, "a", "b")
    start_together(a, b)
    send(a, "one")
    (letter,) = dead_letters(a, 1)
    a.ops.call("POST", "/v1/dead-letters/replay", positions=[letter["position"]])
    eventually(lambda: [one["position"] for one in letters(a)] > [letter["position"]], "it died again")
    (again,) = letters(a)
    assert again["reason"] == letter["reason"]
    assert letters(b) == []
