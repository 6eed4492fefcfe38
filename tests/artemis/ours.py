"""The cases of Cases.java on nodes of core bridge, real processes over HTTP, with results of the same shape.

``python -m tests.artemis.ours [CASE ...]`` prints a JSON line a case; without names, of all that are built.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.harness.api import Reply
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, made_nodes

#: Clients that send one ID at once, and how often.
PARALLEL: Final = 16
ROUNDS: Final = 30
#: Longest wait of a reader for its next message, in ms.
WAIT_MS: Final = 200


#: Queues and addresses come with their first use, and go when they are not used any more.
_GOES_BY_ITSELF: Final = """
[address-settings."#"]
auto-create-queues = true
auto-delete-queues = true
auto-delete-queues-delay = 0
auto-delete-addresses = true
auto-delete-addresses-delay = 0
"""


@dataclass
class Result:
    """What a case has shown: `seen` is compared, `notes` are only shown."""

    case: str
    seen: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def run(case: str, directory: Path) -> Result:
    """Run one case, its nodes' files in `directory`. Raises: AssertionError: it could not be run."""
    result = Result(case)
    with made_nodes(directory) as make:
        CASES[case](make, result)
    return result


# -- the cases -----------------------------------------------------------------------------------------------


def fqqn_bridge(make: MakeNode, result: Result) -> None:
    hub, news = hub_node(make), '[addresses.news]\nqueues = ["sub1", "sub2"]\n'
    edge = make("edge", news + bridge(hub, "own", "news::sub1")).start()
    send(edge, "news", 0, 10)
    result.seen["news::sub1 arrived"] = arrived(hub, 10)
    restart(edge)
    send(edge, "news", 10, 15)
    result.seen["news::sub1 arrived after a restart"] = arrived(hub, 5)
    result.seen["left in sub2"] = waiting(edge, "news", "sub2")

    restart_without_waiting(edge, news + bridge(hub, "wrong", "wrong::sub1"))
    result.notes["wrong::sub1"] = why_not_running(edge, "wrong")
    if edge.process is None:
        edge.rest = news
        edge.start()
    send(edge, "news", 15, 19)
    result.seen["wrong::sub1 arrived"] = read(hub, "in", "in")
    result.seen["left in sub1"] = waiting(edge, "news", "sub1")

    restart_without_waiting(edge, news + bridge(hub, "later", "news::later"))
    result.notes["news::later"] = why_not_running(edge, "later")
    edge.api.make_queue("news", "later", from_="latest")
    send(edge, "news", 19, 22)
    result.seen["news::later, made later, arrived"] = arrived(hub, 3)
    eventually(lambda: waiting(edge, "news", "later") == 0, "the bridge settles what arrived")
    result.seen["left in later"] = waiting(edge, "news", "later")


def anycast_turns(make: MakeNode, result: Result) -> None:
    hub = hub_node(make)
    edge = make("edge", '[addresses.orders]\nrouting-type = "ANYCAST"\n' + bridge(hub, "bridge", "orders"))
    edge.start()
    shares: list[list[int]] = [[], [], []]
    for upto in (150, 300):
        with readers(edge, "orders", "orders", shares):
            send(edge, "orders", upto - 150, upto)
            await_taken(hub, shares, upto)
            eventually(lambda: waiting(edge, "orders", "orders") == 0, "all are acknowledged")
        restart(edge)
    at_target = read(hub, "in", "in")
    result.seen["each message once"] = sorted(sum(shares, at_target)) == list(range(300))
    result.seen["the bridge's share ascends at the target"] = ascends(at_target)
    result.seen["each reader's share ascends"] = all(map(ascends, shares))
    result.seen["each got more than half of a quarter"] = all(
        len(one) > 300 / 8 for one in (at_target, *shares)
    )
    result.seen["left"] = waiting(edge, "orders", "orders")
    result.notes["three readers' shares"] = [len(share) for share in shares]
    result.notes["the bridge's share"] = len(at_target)


def filtered_queue(make: MakeNode, result: Result) -> None:
    edge = make("edge").start()
    filter_queue(edge, "paint", "filtered", "color = 'red'")
    edge.api.make_queue("paint", "all")
    send_coloured(edge, "paint", 0, 10)
    restart(edge)
    filter_queue(edge, "paint", "filtered", "color = 'blue'")
    send_coloured(edge, "paint", 10, 14)
    restart(edge)
    result.seen["stored as red, arrived as blue"] = read(edge, "paint", "filtered")
    send_coloured(edge, "paint", 14, 16)
    result.seen["arrived after a restart"] = read(edge, "paint", "filtered")
    result.seen["unfiltered"] = read(edge, "paint", "all")

    filter_queue(edge, "narrow", "narrow", "color = 'blue'")
    restart(edge)
    red_with_id = {"Message-Header-color": "red", "Duplicate-Id": "k"}
    result.notes["answer where no filter takes it"] = verdict(send_one(edge, "narrow", 0, red_with_id))
    result.seen["messages that no filter takes, stored"] = waiting(edge, "narrow", "narrow")
    filter_queue(edge, "narrow", "narrow", "color = 'red'")
    result.seen["its ID again, when a filter takes it"] = verdict(send_one(edge, "narrow", 0, red_with_id))


def filtered_bridge(make: MakeNode, result: Result) -> None:
    hub = hub_node(make)
    reds = bridge(hub, "reds", "paint::shared", filter="\"color = 'red'\"")
    edge = make("edge", '[addresses.paint]\nqueues = ["shared"]\n' + reds).start()
    send_coloured(edge, "paint", 0, 10)
    at_target = arrived(hub, 5)
    restart(edge)
    send_coloured(edge, "paint", 10, 20)
    result.seen["arrived"] = at_target + arrived(hub, 5)
    result.seen["the reader got"] = read(edge, "paint", "shared")
    result.seen["left"] = waiting(edge, "paint", "shared")


def ids_as_properties(make: MakeNode, result: Result) -> None:
    edge = make("edge").start()
    edge.api.make_queue("orders", "orders")
    kinds: dict[str, Mapping[str, object]] = {
        "_AMQ_DUPL_ID": {"_AMQ_DUPL_ID": "k1"},
        "_HQ_DUPL_ID": {"_HQ_DUPL_ID": "k2"},
        "both, different": {"_AMQ_DUPL_ID": "k3", "_HQ_DUPL_ID": "k4"},
        "UTF-8 bytes of the known text": {
            "_AMQ_DUPL_ID": {"base64": base64.b64encode(b"k1").decode("ascii")}
        },
    }
    for time in range(3):
        if time == 2:
            restart(edge)
        for kind, headers in kinds.items():
            answer = edge.api.commit({"address": "orders", "body": "0", "headers": headers})
            result.seen.setdefault(kind, []).append(verdict(answer))
    result.seen["stored"] = waiting(edge, "orders", "orders")


def parallel_ids(make: MakeNode, result: Result) -> None:
    edge = make("edge").start()
    edge.api.make_queue("orders", "orders")
    barrier = threading.Barrier(PARALLEL)

    def sent(number: int) -> None:
        barrier.wait()
        assert send_one(edge, "orders", 0, {"Duplicate-Id": f"round-{number}"}).status == 200

    more = 0
    with ThreadPoolExecutor(PARALLEL) as clients:
        for number in range(ROUNDS):
            before = waiting(edge, "orders", "orders")
            for done in [clients.submit(sent, number) for _ in range(PARALLEL)]:
                done.result()
            more += waiting(edge, "orders", "orders") - before > 1
    result.seen["each ID once"] = more == 0
    result.notes["rounds"] = ROUNDS
    result.notes["rounds with more than one"] = more
    result.notes["stored"] = waiting(edge, "orders", "orders")
    restart(edge)
    again = send_one(edge, "orders", 0, {"Duplicate-Id": f"round-{ROUNDS - 1}"})
    result.seen["the last ID again after a restart"] = verdict(again)


def queue_later(make: MakeNode, result: Result) -> None:
    edge = make("edge").start()
    edge.api.make_queue("news", "first")
    send(edge, "news", 0, 5)
    edge.api.make_queue("news", "later", from_="latest")
    edge.api.make_queue("news", "by-default")
    restart(edge)
    send(edge, "news", 5, 10)
    result.seen["first"] = read(edge, "news", "first")
    result.seen["made later, from what follows"] = read(edge, "news", "later")
    result.seen["made later, by default"] = read(edge, "news", "by-default")


def anycast_queue_later(make: MakeNode, result: Result) -> None:
    edge = make("edge", '[addresses.orders]\nrouting-type = "ANYCAST"\n').start()
    send(edge, "orders", 0, 4)
    answer = edge.api.call("PUT", "/v1/addresses/orders/queues/second")
    restart(edge)
    send(edge, "orders", 4, 10)
    result.seen["second queue"] = "refused" if 400 <= answer.status < 500 else "taken"
    result.notes["refused with"] = detail(answer)
    result.seen["in the first queue"] = waiting(edge, "orders", "orders")
    result.seen["in the second queue"] = waiting(edge, "orders", "second")


def deleted_queue(make: MakeNode, result: Result) -> None:
    edge, with_id = make("edge").start(), {"Duplicate-Id": "k"}
    edge.api.make_queue("news", "gone")
    edge.api.make_queue("news", "kept")
    send(edge, "news", 0, 3)
    send_one(edge, "news", 0, with_id)
    result.seen["deleted while messages wait"] = delete(edge, "news", "gone", result)
    restart(edge)
    result.seen["the other queue has"] = waiting(edge, "news", "kept")
    result.seen["ID after one of two was deleted"] = verdict(send_one(edge, "news", 0, with_id))
    edge.api.make_queue("news", "gone", from_="latest")
    result.seen["made again, it has"] = waiting(edge, "news", "gone")
    delete(edge, "news", "gone", result)
    delete(edge, "news", "kept", result)
    restart(edge)
    edge.api.make_queue("news", "kept", from_="latest")
    result.seen["ID after the last was deleted"] = verdict(send_one(edge, "news", 0, with_id))


def deleted_queue_of_bridge(make: MakeNode, result: Result) -> None:
    hub = hub_node(make)
    edge = make("edge", '[addresses.news]\nqueues = ["sub1"]\n' + bridge(hub, "bridge", "news::sub1")).start()
    result.seen["deleted"] = delete(edge, "news", "sub1", result)
    restart(edge)
    send(edge, "news", 0, 3)
    result.seen["arrived"] = arrived(hub, 3)


def auto_delete(make: MakeNode, result: Result) -> None:
    """With the settings that are Artemis's defaults. Here a reader makes the queue, and not the send."""
    edge, with_id = make("edge", _GOES_BY_ITSELF).start(), {"Duplicate-Id": "k"}
    result.seen["sent to an unknown address"] = verdict(send_one(edge, "auto", 0, with_id))
    lease, _ = edge.api.lease("auto", "auto")
    edge.api.settle("release", "auto", "auto", lease=lease)
    restart(edge)
    result.seen["the queue with a message, after a restart"] = there(waiting(edge, "auto", "auto") == 1)
    result.seen["its reader got"] = len(read(edge, "auto", "auto"))
    eventually(lambda: "auto" not in queues(edge, "auto"), "the queue goes")
    result.seen["the queue when its reader has left"] = "gone"
    eventually(lambda: edge.api.get("/v1/addresses/auto").status == 404, "the address goes")
    restart(edge)
    result.seen["the address then, after a restart"] = there(edge.api.get("/v1/addresses/auto").status == 200)
    result.seen["its ID again"] = verdict(send_one(edge, "auto", 0, with_id))


def auto_delete_conditions(make: MakeNode, result: Result) -> None:
    """Here a reader makes the automatic queues, before the messages come that it is to get."""
    few = "[address-settings.few]\nauto-delete-queues-message-count = 2\n"
    edge = make("edge", _GOES_BY_ITSELF + few).start()
    edge.api.make_queue("news", "kept")
    edge.api.lease("news", "sub")
    for number in range(3):
        assert verdict(send_one(edge, "news", number, {"Duplicate-Id": f"k{number}"})) == "stored"
    result.seen["its reader got"] = read(edge, "news", "sub")
    eventually(lambda: "sub" not in queues(edge, "news"), "the queue goes")
    result.seen["the other queue has"] = waiting(edge, "news", "kept")
    again = send_one(edge, "news", 0, {"Duplicate-Id": "k0"})
    result.seen["an ID, while the other is there"] = verdict(again)
    send(edge, "news", 3, 5)
    restart(edge)
    send(edge, "news", 5, 6)
    result.seen["its reader comes back later and gets"] = read(edge, "news", "sub")
    result.seen["the reader of the other got"] = read(edge, "news", "kept")
    looked(edge, "first")
    result.seen["the other, made by an administrator"] = there("kept" in queues(edge, "news"))

    send(edge, "few", 0, 4)
    result.seen["of four, one reader got"] = read_one(edge, "few", "few")
    looked(edge, "second")
    result.seen["with more messages than the count"] = there("few" in queues(edge, "few"))
    result.seen["another reader got"] = read_one(edge, "few", "few")
    eventually(lambda: "few" not in queues(edge, "few"), "the queue goes")
    result.seen["with as many"] = "gone"
    edge.api.make_queue("few", "few")
    result.seen["made again, it has"] = waiting(edge, "few", "few")


CASES: Final[Mapping[str, Callable[[MakeNode, Result], None]]] = {
    "fqqn-bridge": fqqn_bridge,
    "anycast-turns": anycast_turns,
    "filtered-queue": filtered_queue,
    "filtered-bridge": filtered_bridge,
    "ids-as-properties": ids_as_properties,
    "parallel-ids": parallel_ids,
    "queue-later": queue_later,
    "anycast-queue-later": anycast_queue_later,
    "deleted-queue": deleted_queue,
    "deleted-queue-of-bridge": deleted_queue_of_bridge,
    "auto-delete": auto_delete,
    "auto-delete-conditions": auto_delete_conditions,
}


# -- nodes and clients ---------------------------------------------------------------------------------------


def hub_node(make: MakeNode) -> Node:
    """Where bridges deliver: a node with the queue `in` of the address `in`."""
    return make("hub", '[addresses.in]\nqueues = ["in"]\n').start()


def bridge(hub: Node, name: str, queue_name: str, **keys: str) -> str:
    return bridge_to(hub, name, f'"{queue_name}"', forwarding_address='"in"', **keys)


def restart(node: Node) -> None:
    node.stop()
    node.start()


def restart_without_waiting(node: Node, rest: str) -> None:
    """Start it again with other tables; it may refuse them."""
    node.stop()
    node.rest = rest
    node.spawn()


def why_not_running(node: Node, name: str) -> str:
    """Why a bridge does not run, as its status says; or why the node ended, as it said last."""
    process = node.process
    assert process is not None

    def look() -> str:
        if process.poll() is not None:
            node.wait()
            return " ".join(node.log.read_text("utf-8").replace(f"{node.file}: ", "").splitlines()[-2:])
        shown = {one["name"]: one for one in node.ops.get("/v1/status").json.get("bridges", [])}
        return str(shown.get(name, {}).get("reason") or "")

    return eventually(look, f"the reason of {name}")


def send_one(node: Node, address: str, number: int, headers: Mapping[str, str], size: int = 0) -> Reply:
    """One message, whose body is its number, and spaces up to a size."""
    return node.api.call("POST", f"/v1/addresses/{address}/messages", (b"%d" % number).ljust(size), headers)


def send(node: Node, address: str, start: int, upto: int) -> None:
    for number in range(start, upto):
        assert verdict(send_one(node, address, number, {})) == "stored"


def send_coloured(node: Node, address: str, start: int, upto: int) -> None:
    """Even numbers are red, odd ones blue."""
    for number in range(start, upto):
        color = "blue" if number % 2 else "red"
        assert verdict(send_one(node, address, number, {"Message-Header-color": color})) == "stored"


def verdict(answer: Reply) -> str:
    """`stored`, `duplicate` or `refused`."""
    if answer.status == 200:
        return str(answer.json["verdict"])
    assert 400 <= answer.status < 500, answer
    return "duplicate" if answer.json["title"] == "DUPLICATE_ID_REJECTED" else "refused"


def detail(answer: Reply) -> str:
    return str(answer.json["detail"]) if answer.status >= 400 else ""


def filter_queue(node: Node, address: str, queue: str, condition: str) -> None:
    """Make a queue with a filter, or give it another one."""
    assert node.api.make_queue(address, queue, filter=condition) in (200, 201)


def delete(node: Node, address: str, queue: str, result: Result) -> str:
    answer = node.api.call("DELETE", f"/v1/addresses/{address}/queues/{queue}")
    if answer.status == 204:
        return "deleted"
    result.notes["refused with"] = detail(answer)
    return verdict(answer)


def looked(node: Node, address: str) -> None:
    """Whatever may go by now has gone: a queue that may go is made, read and gone."""
    node.api.lease(address, "queue")
    eventually(lambda: "queue" not in queues(node, address), "it goes")


def read_one(node: Node, address: str, queue: str) -> list[int]:
    lease, messages = node.api.lease(address, queue, "max=1")
    assert node.api.settle("acknowledge", address, queue, lease=lease).status == 204
    return [int(message["body"]) for message in messages]


def queues(node: Node, address: str) -> dict[str, Any]:
    """The queues of an address by name, as the node shows them."""
    answer = node.api.get(f"/v1/addresses/{address}")
    return {} if answer.status == 404 else {queue["name"]: queue for queue in answer.json["queues"]}


def waiting(node: Node, address: str, queue: str) -> int:
    """Messages that wait in a queue, or that a reader has; 0 where there is no such queue."""
    return int(queues(node, address).get(queue, {"lag": 0})["lag"])


def take(node: Node, address: str, queue: str, query: str) -> list[dict[str, Any]]:
    """A page, acknowledged."""
    lease, messages = node.api.lease(address, queue, query)
    if lease is not None:
        assert node.api.settle("acknowledge", address, queue, lease=lease).status == 204
    return messages


def take_all(node: Node, address: str, queue: str) -> list[dict[str, Any]]:
    """All messages that wait in a queue, acknowledged."""
    messages: list[dict[str, Any]] = []
    while page := take(node, address, queue, "max=1000"):
        messages += page
    return messages


def numbers_of(messages: Iterable[Mapping[str, Any]]) -> list[int]:
    """The numbers that are the messages' bodies."""
    return [int(message["body"]) for message in messages]


def read(node: Node, address: str, queue: str) -> list[int]:
    """The numbers of all messages that wait in a queue, acknowledged."""
    return numbers_of(take_all(node, address, queue))


def arrived(hub: Node, number: int) -> list[int]:
    """All that wait at the target, once there are so many."""
    eventually(lambda: waiting(hub, "in", "in") >= number, f"{number} messages arrive")
    return read(hub, "in", "in")


def await_taken(hub: Node, shares: Sequence[Sequence[int]], number: int) -> None:
    """Return once readers have, and the target has, so many in all."""
    eventually(lambda: sum(map(len, shares)) + waiting(hub, "in", "in") >= number, f"{number} are taken")


@contextlib.contextmanager
def readers(node: Node, address: str, queue: str, shares: Sequence[list[int]]) -> Iterator[None]:
    """Readers, one a share, each of which takes one message at a time until the block ends."""
    over = threading.Event()

    def reader(share: list[int]) -> None:
        while not over.is_set():
            share += numbers_of(take(node, address, queue, f"max=1&wait={WAIT_MS}"))

    with ThreadPoolExecutor(len(shares)) as threads:
        done = [threads.submit(reader, share) for share in shares]
        try:
            yield
        finally:
            over.set()
        for one in done:
            one.result()


def ascends(numbers: Sequence[int]) -> bool:
    return list(numbers) == sorted(set(numbers))


def there(is_there: bool) -> str:
    return "there" if is_there else "gone"


def main(names: Sequence[str]) -> None:
    for case in names or CASES:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
            result = run(case, Path(directory))
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
