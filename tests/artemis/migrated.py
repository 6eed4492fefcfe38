"""The cases of MigratedCases.java on nodes that run what `core-bridge migrate` makes of the files.

What the command leaves to a person is done here: the transformer is named, and the ports of this test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.migrate.migration import migrate
from tests.artemis.ours import (
    Result,
    numbers_of,
    read,
    restart,
    send,
    send_coloured,
    send_one,
    take_all,
    verdict,
    waiting,
)
from tests.harness.eventually import eventually
from tests.harness.node import Node

#: The files that real brokers run.
ORIGINALS: Final = Path(__file__).parent / "originals"
#: Most messages until an address is full.
LARGEST: Final = 200
#: What a person fills in, and what this test's place demands.
_BY_HAND: Final = {'"transformers:Stamp"': '"tests.harness.transformers:stamp"'}

#: The edge, whose bridges deliver at the hub, and the hub.
Case = Callable[[Node, Node, Result], None]


@dataclass
class MigratedNode(Node):
    """A node that runs migrated settings."""

    text: str = ""

    def write(self) -> Path:
        """Write the migrated settings, with this node's own directory and port of operations."""
        text = self.text.replace("http://127.0.0.1:8161", f"http://127.0.0.1:{self.operations_port}")
        text = text.replace("[node]\n", f'[node]\ndata-directory = "{self.name}-data"\n')
        self.file.write_text(text, "utf-8")
        return self.file


def run(case: str, directory: Path) -> Result:
    """Run one case, its nodes' files in a directory. Raises: AssertionError: it could not be run."""
    result = Result(case)
    hub, edge = MigratedNode("hub", directory), MigratedNode("edge", directory)
    given = {"data": "unused", "hub.port": str(hub.port), "edge.port": str(edge.port)}
    for node in (hub, edge):
        node.text = migrate(ORIGINALS / f"{node.name}.xml", given).text
        for placeholder, chosen in _BY_HAND.items():
            node.text = node.text.replace(placeholder, chosen)
    try:
        if case != "migrated-late-hub":
            hub.start()
        edge.start()
        CASES[case](edge, hub, result)
    finally:
        for node in (edge, hub):
            node.destroy()
            if node.log.exists():
                print(f"--- {node.name}\n{node.log.read_text('utf-8')}")
    return result


# -- the cases -----------------------------------------------------------------------------------------------


def filter_and_transformer(edge: Node, hub: Node, result: Result) -> None:
    send_animals(edge, 0, 20)
    await_count(hub, "goats", "goats", 8)
    result.seen["goats of at most 6 years arrived"], marks = read_marked(hub, "goats", "goats")
    result.seen["with the transformer's mark"] = marks
    result.seen["the other queue has"] = waiting(edge, "animals", "animals.all")
    result.seen["the others' mark"] = read_marked(edge, "animals", "animals.all")[1]
    restart(edge)
    send_animals(edge, 20, 26)
    await_count(hub, "goats", "goats", 3)
    result.seen["arrived after a restart"] = read(hub, "goats", "goats")


def plain_bridge(edge: Node, hub: Node, result: Result) -> None:
    send(edge, "orders", 0, 10)
    await_count(hub, "orders", "orders", 10)
    result.seen["arrived under its own name"] = read(hub, "orders", "orders")
    eventually(lambda: waiting(edge, "orders", "orders") == 0, "all are settled")
    result.seen["left"] = waiting(edge, "orders", "orders")


def late_hub(edge: Node, hub: Node, result: Result) -> None:
    send(edge, "orders", 0, 10)
    send_animals(edge, 0, 4)
    result.seen["orders wait"] = edge.status("orders")["lag"]
    hub.start()
    await_count(hub, "orders", "orders", 10)
    await_count(hub, "goats", "goats", 2)
    result.seen["orders arrived"] = read(hub, "orders", "orders")
    result.seen["goats arrived"] = read(hub, "goats", "goats")


def ids(edge: Node, _hub: Node, result: Result) -> None:
    result.seen["a b a c a c b, a cache of 2"] = [
        verdict(send_one(edge, "ids", 0, {"Duplicate-Id": one})) for one in "abacacb"
    ]
    restart(edge)
    result.seen["b after a restart"] = verdict(send_one(edge, "ids", 0, {"Duplicate-Id": "b"}))


def full_address(edge: Node, _hub: Node, result: Result) -> None:
    taken = 0
    while taken < LARGEST and room(edge, "small.one") == "stored":
        taken += 1
    result.seen["is full at last"] = taken < LARGEST
    result.notes["messages of 4,000 bytes taken"] = taken
    result.seen["kept"] = waiting(edge, "small.one", "small.one") == taken
    result.seen["another address takes"] = room(edge, "ids")
    read(edge, "small.one", "small.one")
    result.seen["takes again when it was read"] = room(edge, "small.one")


def closed_address(edge: Node, _hub: Node, result: Result) -> None:
    for what, address in (("an address that is not made by sending", "closed"), ("one that is", "open")):
        stored = verdict(send_one(edge, address, 0, {})) == "stored"
        result.seen[what] = "there" if stored and edge.api.bodies(address) == ["0"] else "refused"


def filtered_queue(edge: Node, _hub: Node, result: Result) -> None:
    send_coloured(edge, "paint", 0, 6)
    for queue in ("red", "all"):
        result.seen[queue] = read(edge, "paint", f"paint.{queue}")


def divert(edge: Node, _hub: Node, result: Result) -> None:
    for number in range(6):
        region = "us" if number % 3 else "eu"
        assert verdict(send_one(edge, "news", number, {"Message-Header-region": region})) == "stored"
    await_count(edge, "news.copy", "news.eu", 2)
    result.seen["copied"] = read(edge, "news.copy", "news.eu")
    result.seen["at the address itself"] = read(edge, "news", "news.all")


CASES: Final[Mapping[str, Case]] = {
    "migrated-filter-and-transformer": filter_and_transformer,
    "migrated-plain-bridge": plain_bridge,
    "migrated-late-hub": late_hub,
    "migrated-ids": ids,
    "migrated-full-address": full_address,
    "migrated-closed-address": closed_address,
    "migrated-filtered-queue": filtered_queue,
    "migrated-divert": divert,
}


# -- clients -------------------------------------------------------------------------------------------------


def room(node: Node, address: str) -> str:
    """Send a message of 4,000 bytes; returns the node's verdict, `refused` where the address is full."""
    answer = send_one(node, address, 0, {}, 4000)
    if answer.status == 503:
        answer.is_problem(503, "ADDRESS_FULL")
        return "refused"
    return verdict(answer)


def send_animals(node: Node, start: int, upto: int) -> None:
    """Every other one is a goat; each is as old as its number, modulo 10."""
    for number in range(start, upto):
        headers = {
            "Message-Header-animal": "monkey" if number % 2 else "goat",
            "Message-Header-age": str(number % 10),
        }
        assert verdict(send_one(node, "animals", number, headers)) == "stored"


def read_marked(node: Node, address: str, queue: str) -> tuple[list[int], list[str]]:
    """The numbers of all messages that wait in a queue, and the different marks of the transformer."""
    messages = take_all(node, address, queue)
    found = (message.get("headers", {}).get("mark") for message in messages)
    return numbers_of(messages), [*dict.fromkeys(mark for mark in found if mark is not None)]


def await_count(node: Node, address: str, queue: str, count: int) -> None:
    eventually(lambda: waiting(node, address, queue) >= count, f"{count} messages in {queue}")
