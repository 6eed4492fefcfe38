"""The cases of ClusterCases.java on clusters of core bridge, real processes, with results of the same shape.

``python -m tests.artemis.clusters [CASE ...]`` prints a JSON line a case; without names, of all.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.artemis.ours import Result
from tests.cluster import rig
from tests.cluster.rig import MADE, Cluster, delete_queue, make_queue, reading
from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.node import Node

#: How often a case is run in which Artemis loses messages.
ROUNDS: Final = 20
RED: Final = "color = 'red'"
#: Longest wait of one request of a reader, in ms: less than the rig's reader-timeout.
WAIT_MS: Final = 500


def run(case: str, directory: Path) -> Result:
    """Run one case, its nodes' files in `directory`. Raises: AssertionError: it could not be run."""
    result = Result(case)
    CASES[case](directory, result)
    return result


# -- the cases -----------------------------------------------------------------------------------------------


def strict(directory: Path, result: Result) -> None:
    with cluster_of(directory, 3, "STRICT", anycast={"jobs": (0, 1)}) as cluster:
        cluster.await_place(0, 1, "jobs", "jobs")
        cluster.await_place(1, 0, "jobs", "jobs")
        send(cluster[0], "jobs", 0, 10)
        await_settled(cluster)
        result.seen["one queue of turns, 10 to n0: n0 has"] = read(cluster[0], "jobs", "jobs")
        result.seen["one queue of turns, 10 to n0: n1 has"] = read(cluster[1], "jobs", "jobs")
        result.seen["acknowledged over the link"] = acknowledged(cluster[0])
        send(cluster[1], "jobs", 10, 20)
        await_settled(cluster)
        result.seen["10 more to n1: n0 has"] = read(cluster[0], "jobs", "jobs")
        result.seen["10 more to n1: n1 has"] = read(cluster[1], "jobs", "jobs")

        cluster.make_queues("news", "q", 2, 1, 0)
        send(cluster[0], "news", 0, 9)
        await_settled(cluster)
        for node in (2, 1, 0):
            found = read(cluster[node], "news", "q")
            result.seen[f"places made at n2, n1, n0; 9 to n0: n{node} has"] = found
        with idle(cluster[1], "news", "q"):
            cluster.await_place(0, 1, "news", "q", readers=1)
            send(cluster[0], "news", 0, 12)
            await_settled(cluster)
            result.seen["a reader at n1 alone, 12 to n0: shares"] = counts(cluster, "news", "q")


def on_demand(directory: Path, result: Result) -> None:
    both, there = ("nowhere", "there", "here", "both", "late"), ("untyped", "typed")
    anycast = dict.fromkeys(both, (0, 1)) | dict.fromkeys(there, (1,))
    with cluster_of(directory, 2, "ON_DEMAND", anycast=anycast) as cluster:
        for address in anycast:
            cluster.await_place(0, 1, address, address, readers=0)
        send(cluster[0], "nowhere", 0, 10)
        await_settled(cluster)
        result.seen["no reader: shares"] = counts(cluster, "nowhere", "nowhere")
        result.seen["reader at n1 alone: shares"] = shares(cluster, "there", 1)
        result.seen["reader at n0 alone: shares"] = shares(cluster, "here", 0)
        result.seen["readers at both: shares"] = shares(cluster, "both", 0, 1)
        send(cluster[0], "late", 0, 10)
        with idle(cluster[1], "late", "late"):
            cluster.await_place(0, 1, "late", "late", readers=1)
            send(cluster[0], "late", 10, 11)
            await_settled(cluster)
            result.seen["a reader that came to n1 later: shares"] = counts(cluster, "late", "late")
        cluster.make_queues("news", "q", 1)
        for address, queue in (("news", "q"), *((kind, kind) for kind in there)):
            send(cluster[0], address, 0, 10)
            await_settled(cluster)
            kind = f"ANYCAST, {address} message" if queue != "q" else "MULTICAST"
            rest = ", no reader" if queue == "q" else ""
            result.seen[f"{kind}, the queue at n1 alone{rest}: shares"] = counts(cluster, address, queue)


def shares(cluster: Cluster, address: str, *readers: int) -> list[int]:
    """Messages at each node of ten sent to n0, with readers at these."""
    with contextlib.ExitStack() as stack:
        for node in readers:
            stack.enter_context(idle(cluster[node], address, address))
            cluster.await_place(1 - node, node, address, address, readers=1)
        send(cluster[0], address, 0, 10)
        await_settled(cluster)
        return counts(cluster, address, address)


def off(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "OFF", anycast={"both": (0, 1), "there": (1,)}) as cluster:
        cluster.await_place(0, 1, "both", "both", readers=0)
        cluster.await_place(0, 1, "there", "there", readers=0)
        result.seen["ANYCAST at both, reader at n1 alone: shares"] = shares(cluster, "both", 1)
        send(cluster[0], "there", 0, 10)
        await_settled(cluster)
        found = counts(cluster, "there", "there")
        result.seen["ANYCAST, the queue at n1 alone: shares"] = found
        cluster.make_queues("news", "q", 0, 1)
        cluster.make_queues("news", "only-there", 1)
        send(cluster[0], "news", 0, 10)
        await_settled(cluster)
        result.seen["MULTICAST name at both, no reader: shares"] = counts(cluster, "news", "q")
        result.seen["MULTICAST name at n1 alone: shares"] = counts(cluster, "news", "only-there")


def off_with_redistribution(directory: Path, result: Result) -> None:
    mode, delay = "OFF_WITH_REDISTRIBUTION", redistributed(0)
    with cluster_of(directory, 2, mode, delay, anycast={"jobs": (0, 1)}) as cluster:
        cluster.await_place(0, 1, "jobs", "jobs")
        with reading(cluster[1], "jobs", "jobs") as there:
            cluster.await_place(0, 1, "jobs", "jobs", readers=1)
            with idle(cluster[0], "jobs", "jobs"):
                cluster.await_place(1, 0, "jobs", "jobs", readers=1)
                send(cluster[0], "jobs", 0, 4)
                await_settled(cluster)
                result.seen["ANYCAST, readers at both: n0 has"] = rig.waiting(cluster[0], "jobs", "jobs")
            there.await_found(4)
            moved = [int(body) for body in there.found]
            result.seen["the reader at n0 leaves: the one at n1 gets"] = moved
            result.seen["left at n0"] = rig.waiting(cluster[0], "jobs", "jobs")
        cluster.make_queues("news", "q", 0, 1)
        with idle(cluster[0], "news", "q"), idle(cluster[1], "news", "q"):
            cluster.await_place(0, 1, "news", "q", readers=1)
            cluster.await_place(1, 0, "news", "q", readers=1)
            send(cluster[0], "news", 0, 10)
            await_settled(cluster)
            found = counts(cluster, "news", "q")
            result.seen["MULTICAST name at both, readers at both: shares"] = found


def multicast(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "STRICT") as cluster:
        for number in range(3):
            make_queue(cluster[0], "news", f"here-{number}")
            cluster.make_queues("news", f"there-{number}", 1)
        cluster.make_queues("news", "shared", 0, 1)
        cluster.make_queues("news", "filtered", 1, filter=RED)
        send_coloured(cluster[0], "news", 0, 10)
        await_settled(cluster)
        for index, names in enumerate(("here", "there")):
            found = [len(read(cluster[index], "news", f"{names}-{number}")) for number in range(3)]
            result.seen[f"three names at n{index}: each has"] = found
        result.seen["a name at both: n0 has"] = read(cluster[0], "news", "shared")
        result.seen["a name at both: n1 has"] = read(cluster[1], "news", "shared")
        result.seen["a filtered name at n1 has"] = read(cluster[1], "news", "filtered")
        result.seen["acknowledged over the link"] = acknowledged(cluster[0])


def redistribution(directory: Path, result: Result) -> None:
    addresses = ("jobs", "held", "canary", "never")
    rest = redistributed(1500) + "[address-settings.never]\nredistribution-delay = -1\n"
    anycast = dict.fromkeys(addresses, (0, 1))
    with cluster_of(directory, 2, "ON_DEMAND", rest, anycast=anycast) as cluster:
        for address in addresses:
            cluster.await_place(0, 1, address, address, readers=0)
        send(cluster[0], "jobs", 0, 20)
        begun = time.monotonic()
        with reading(cluster[1], "jobs", "jobs") as there:
            there.await_found(1)
            result.notes["the first came after, in ms"] = int((time.monotonic() - begun) * 1000)
            there.await_found(20)
        result.seen["reader at n1 alone, 20 at n0: it gets"] = [int(body) for body in there.found]
        result.seen["left at n0"] = rig.waiting(cluster[0], "jobs", "jobs")
        cluster.make_queues("news", "sub", 0, 1)
        send(cluster[0], "news", 0, 20)
        with reading(cluster[1], "news", "sub") as there:
            there.await_found(20)
        moved = [int(body) for body in there.found]
        result.seen["a MULTICAST name, 20 at n0: the reader at n1 gets"] = moved

        send(cluster[0], "never", 0, 20)
        with (
            idle(cluster[0], "held", "held") as here,
            reading(cluster[1], "never", "never") as never,
        ):
            cluster.await_place(1, 0, "held", "held", readers=1)
            send(cluster[0], "held", 0, 20)
            here.await_held()
            with reading(cluster[1], "held", "held") as held:
                cluster.await_place(0, 1, "held", "held", readers=1)
                canary(cluster)
                result.seen["a reader at n0 that takes none: the one at n1 gets"] = len(held.found)
                result.seen["redistribution-delay -1: the reader at n1 gets"] = len(never.found)


def redistribution_filter(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "ON_DEMAND", redistributed(0), anycast={"canary": (0, 1)}) as cluster:
        cluster.await_place(0, 1, "canary", "canary", readers=0)
        cluster.make_queues("filtered", "filtered", 0)
        cluster.make_queues("filtered", "filtered", 1, filter=RED)
        send_coloured(cluster[0], "filtered", 0, 20)
        with reading(cluster[1], "filtered", "filtered") as there:
            canary(cluster)
            canary(cluster)
        what = "the queue at n1 takes every other message"
        result.seen[f"{what}: its reader gets"] = sorted(int(body) for body in there.found)
        result.seen[f"{what}: left at n0"] = read(cluster[0], "filtered", "filtered")


def canary(cluster: Cluster) -> None:
    """Return once a message that was sent now, and waits for the delay, has been moved."""
    send(cluster[0], "canary", 0, 1)
    with reading(cluster[1], "canary", "canary") as there:
        there.await_found(1)
    await_settled(cluster)
    cluster.await_place(0, 1, "canary", "canary", readers=0)


def killed_node(directory: Path, result: Result) -> None:
    with cluster_of(directory, 3, "STRICT") as cluster:
        cluster.make_queues("news", "shared", 0, 1, 2)
        cluster.make_queues("news", "only", 1)
        peer, other = cluster.uuid(1), cluster.uuid(2)
        cluster[1].kill()
        cluster.await_unreachable(0, 1)
        send(cluster[0], "news", 0, 10)
        eventually(lambda: parked(cluster[0], other) == 0, "what is for n2 has arrived")
        result.seen["parked at n0 for n1"] = parked(cluster[0], peer)
        both = [rig.waiting(cluster[node], "news", "shared") for node in (0, 2)]
        result.seen["a name at all three: n0 and n2 have"] = both
        cluster.start(1)
        eventually(lambda: parked(cluster[0], peer) == 0, "what was parked arrives")
        result.seen["n1 is back: the name that only it has has"] = read(cluster[1], "news", "only")
        found = rig.waiting(cluster[1], "news", "shared")
        result.seen["n1 is back: the shared name has there"] = found
        read(cluster[0], "news", "shared")
        read(cluster[2], "news", "shared")
        cluster.await_place(0, 1, "news", "shared")
        send(cluster[0], "news", 10, 16)
        await_settled(cluster)
        result.seen["6 more: shares of the shared name"] = counts(cluster, "news", "shared")


def redistribution_killed_node(directory: Path, result: Result) -> None:
    anycast = {"jobs": (0, 1, 2)}
    with cluster_of(directory, 3, "ON_DEMAND", redistributed(0), anycast=anycast) as cluster:
        for node in (1, 2):
            cluster.await_place(0, node, "jobs", "jobs", readers=0)
        with idle(cluster[0], "jobs", "jobs") as here:
            send(cluster[0], "jobs", 0, 20)
            here.await_held()
            peer = cluster.uuid(1)
            with idle(cluster[1], "jobs", "jobs"), reading(cluster[2], "jobs", "jobs") as there:
                cluster.await_place(0, 1, "jobs", "jobs", readers=1)
                cluster.await_place(0, 2, "jobs", "jobs", readers=1)
                cluster[1].kill()
                cluster.await_unreachable(0, 1)
                here.close()
                eventually(
                    lambda: (
                        rig.waiting(cluster[0], "jobs", "jobs") == 0 == parked(cluster[0], cluster.uuid(2))
                    ),
                    "the queue at n0 empties",
                )
                what = "the reader at n0 leaves: the live one at n2 gets"
                eventually(lambda: rig.waiting(cluster[2], "jobs", "jobs") == 0, "n2's reader has all")
                result.seen[what] = len(there.found)
                result.seen["parked at n0 for the dead n1"] = parked(cluster[0], peer)


def clean_stop(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "ON_DEMAND") as cluster:
        cluster.make_queues("news", "only", 1)
        peer = cluster.uuid(1)
        operate(cluster[0], peer, "pause")
        send(cluster[0], "news", 0, 5)
        result.seen["parked before the stop"] = parked(cluster[0], peer)
        cluster[1].stop()
        cluster.await_no_place(0, 1, "news", "only")
        send(cluster[0], "news", 5, 10)
        result.seen["sent after it"] = "stored"
        result.seen["parked after it"] = parked(cluster[0], peer)
        cluster.start(1)
        operate(cluster[0], peer, "resume")
        eventually(lambda: rig.waiting(cluster[1], "news", "only") >= 5, "what was parked arrives")
        await_settled(cluster)
        make_queue(cluster[0], "news", "made-now")
        result.seen["n1 is back: its queue has"] = read(cluster[1], "news", "only")
        found = rig.waiting(cluster[0], "news", "made-now")
        result.seen["of those sent after the stop still there at n0"] = found


def deleted_queue(directory: Path, result: Result) -> None:
    def meanwhile(cluster: Cluster, address: str) -> None:
        delete_queue(cluster[1], address, "q")

    _crossing(directory, result, meanwhile)


def remade_queue(directory: Path, result: Result) -> None:
    def meanwhile(cluster: Cluster, address: str) -> None:
        delete_queue(cluster[1], address, "q")
        make_queue(cluster[1], address, "q")

    _crossing(directory, result, meanwhile)


def deleted_queue_elsewhere(directory: Path, result: Result) -> None:
    def meanwhile(cluster: Cluster, address: str) -> None:
        delete_queue(cluster[1], address, "q")
        make_queue(cluster[2], address, "q")
        cluster.await_place(1, 2, address, "q")
        cluster.await_place(0, 2, address, "q")

    _crossing(directory, result, meanwhile)


def _crossing(directory: Path, result: Result, meanwhile: Callable[[Cluster, str], None]) -> None:
    """Ten messages to n0 for a queue that only n1 has; the step is done while they wait on the link."""
    lost, where = [], []
    with cluster_of(directory, 3, "ON_DEMAND") as cluster:
        peer = cluster.uuid(1)
        for number in range(ROUNDS):
            address = f"news.{number}"
            cluster.make_queues(address, "q", 1)
            operate(cluster[0], peer, "pause")
            send(cluster[0], address, 0, 10)
            assert parked(cluster[0], peer) == 10
            meanwhile(cluster, address)
            operate(cluster[0], peer, "resume")
            await_settled(cluster)
            letters = [
                one
                for node in cluster.nodes
                for one in node.ops.get("/v1/dead-letters?max=1000").json["dead-letters"]
                if one["address"] == address
            ]
            found = counts(cluster, address, "q")
            lost.append(10 - sum(found) - len(letters))
            where.append((*found, len(letters)))
    result.seen["lost"] = any(lost)
    result.notes["lost of 10, by round"] = lost
    result.notes["at n0, n1, n2, and dead letters"] = [
        "-".join(map(str, one)) for one in dict.fromkeys(where)
    ]


def scale_down(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "ON_DEMAND") as cluster:
        make_queue(cluster[0], "news", "q1")
        make_queue(cluster[0], "news", "q2")
        cluster.make_queues("news", "own", 1)
        peer = cluster.uuid(1)
        operate(cluster[0], peer, "pause")
        send(cluster[0], "news", 0, 10)
        result.seen["parked for the heir"] = parked(cluster[0], peer)
        result.seen["read of q2 before"] = read(cluster[0], "news", "q2", 4)
        operate(cluster[0], peer, "resume")
        drain(cluster, 0, 1)
        for queue in ("q1", "q2"):
            result.seen[f"the heir's {queue} has"] = read(cluster[1], "news", queue)
        result.seen["the heir's own queue has"] = read(cluster[1], "news", "own")


def scale_down_parked(directory: Path, result: Result) -> None:
    _parked(directory, result, (0, 1))


def scale_down_parked_heir_lacks(directory: Path, result: Result) -> None:
    _parked(directory, result, (0,))


def _parked(directory: Path, result: Result, holders: Sequence[int]) -> None:
    """n2 has 20 parked, all for the leaver n0, or half of them for the heir n1."""
    lost = []
    for number in range(ROUNDS):
        home = directory / f"round-{number}"
        home.mkdir()
        with cluster_of(home, 3, "STRICT") as cluster:
            cluster.make_queues("news", "q", *holders, seen_by=2)
            peers = [cluster.uuid(0), cluster.uuid(1)]
            for peer in peers:
                operate(cluster[2], peer, "pause")
            send(cluster[2], "news", 0, 20)
            assert sum(parked(cluster[2], peer) for peer in peers) == 20
            drain(cluster, 0, 1)
            for peer in peers:
                operate(cluster[2], peer, "resume")
            # Bridges of a leaver end: that none waits does not say that all have arrived.
            with contextlib.suppress(AssertionError):
                eventually(lambda: rig.waiting(cluster[1], "news", "q") == 20, "all arrive")
            found = read(cluster[1], "news", "q")
            lost.append(20 - len(set(found)))
            assert len(found) == len(set(found)), f"doubled: {found}"
    result.seen["lost"] = any(lost)
    result.notes["lost of 20, by round"] = lost


def scale_down_ids(directory: Path, result: Result) -> None:
    with cluster_of(directory, 2, "ON_DEMAND") as cluster:
        make_queue(cluster[0], "orders", "q")
        for number in range(6):
            assert _verdict(cluster[0], number) == "stored"
        result.seen["consumed before"] = read(cluster[0], "orders", "q", 3)
        drain(cluster, 0, 1)
        verdicts = [_verdict(cluster[1], number) for number in range(6)]
        result.seen["IDs of consumed messages, sent again to the heir"] = verdicts[:3]
        result.seen["IDs of moved messages, sent again to the heir"] = verdicts[3:]


def _verdict(node: Node, number: int) -> str:
    headers = {"Duplicate-Id": f"id-{number}"}
    reply = node.api.call("POST", "/v1/addresses/orders/messages", b"%d" % number, headers)
    assert reply.status == 200, reply.body
    return str(reply.json["verdict"])


CASES: Final[Mapping[str, Callable[[Path, Result], None]]] = {
    "strict": strict,
    "on-demand": on_demand,
    "off": off,
    "off-with-redistribution": off_with_redistribution,
    "multicast": multicast,
    "redistribution": redistribution,
    "redistribution-filter": redistribution_filter,
    "killed-node": killed_node,
    "redistribution-killed-node": redistribution_killed_node,
    "clean-stop": clean_stop,
    "deleted-queue": deleted_queue,
    "remade-queue": remade_queue,
    "deleted-queue-elsewhere": deleted_queue_elsewhere,
    "scale-down": scale_down,
    "scale-down-parked": scale_down_parked,
    "scale-down-parked-heir-lacks": scale_down_parked_heir_lacks,
    "scale-down-ids": scale_down_ids,
}


# -- clusters and clients ------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster_of(
    directory: Path, count: int, balancing: str, rest: str = "", anycast: Mapping[str, Sequence[int]] = {}
) -> Iterator[Cluster]:
    """Nodes that reach each other, until the block ends; ANYCAST addresses at these from the start."""
    own = {
        node: "".join(
            f'[addresses.{address}]\nrouting-type = "ANYCAST"\n'
            for address, holders in anycast.items()
            if node in holders
        )
        for node in range(count)
    }
    connection = f'message-load-balancing = "{balancing}"'
    cluster = Cluster(directory, count, connection=connection, rest=rest, own=own)
    try:
        cluster.start()
        cluster.await_members()
        yield cluster
    finally:
        MADE.remove(cluster)
        cluster.end()


def redistributed(delay_ms: int) -> str:
    return f'[address-settings."#"]\nredistribution-delay = {delay_ms}\n'


def send(node: Node, address: str, start: int, upto: int) -> None:
    rig.send(node, address, rig.numbers(upto - start, start))


def send_coloured(node: Node, address: str, start: int, upto: int) -> None:
    """Even numbers are red, odd ones blue."""
    for number in range(start, upto):
        color = "blue" if number % 2 else "red"
        rig.send(node, address, [str(number)], **{"Message-Header-color": color})


def read(node: Node, address: str, queue: str, most: int = 1000) -> list[int]:
    """What waits in a queue, so many at most, acknowledged."""
    return [int(body) for body in rig.read(node, address, queue, most=most)]


def counts(cluster: Cluster, address: str, queue: str) -> list[int]:
    """By node, the messages of a queue, those of readers included."""
    return [rig.waiting(node, address, queue) for node in cluster.nodes]


def operate(node: Node, peer: str, verb: str) -> None:
    """Pause or resume a node's link to another."""
    reply = node.ops.call("POST", f"/v1/bridges/$cluster.{peer}/{verb}")
    assert reply.status == 200, reply.body


def parked(node: Node, peer: str) -> int:
    """Messages that wait at a node for another, by its UUID."""
    return int(node.status(f"$cluster.{peer}")["lag"])


def _links(node: Node) -> list[dict[str, Any]]:
    bridges = node.ops.get("/v1/status").json["bridges"]
    return [one for one in bridges if one["name"].startswith("$cluster.")]


def _backlogs(node: Node) -> list[int]:
    return [one["lag"] for one in _links(node)]


def acknowledged(node: Node) -> int:
    """Messages that others have acknowledged to this node."""
    return sum(one["acknowledged"] for one in _links(node))


def await_settled(cluster: Cluster) -> None:
    """Return once nothing waits for another node."""
    up = [node for node in cluster.nodes if node.process is not None]
    eventually(lambda: not any(any(_backlogs(node)) for node in up), "nothing waits for another node")


def drain(cluster: Cluster, leaver: int, heir: int) -> None:
    """Hand all that a node has to another, until it is done."""
    ops = cluster[leaver].ops
    reply = ops.call("POST", "/v1/cluster/drain", to=f"n{heir}")
    assert reply.status == 200, reply.body
    eventually(lambda: ops.get("/v1/cluster/drain").json["phase"] == "DONE", "the drain is done")


class Idle:
    """A reader that takes one message at most, and settles none until `close`, which gives it back."""

    def __init__(self, node: Node, address: str, queue: str) -> None:
        self._where = (node, address, queue)
        self._over = threading.Event()
        self._held = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"idle reader of {address}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        node, address, queue = self._where
        lease: str | None = None
        # A killed node is not read any more: its reader is gone with it.
        with contextlib.suppress(OSError, http.client.HTTPException):
            while lease is None and not self._over.is_set():
                lease, _ = node.api.lease(address, queue, f"max=1&wait={WAIT_MS}")
            self._held.set()
            self._over.wait()
            if lease is not None:
                node.api.settle("release", address, queue, lease=lease)

    def await_held(self) -> None:
        """Wait until it has its one message."""
        assert self._held.wait(PATIENCE_S)

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def idle(node: Node, address: str, queue: str) -> Iterator[Idle]:
    """Such a reader, while the block lasts."""
    reader = Idle(node, address, queue)
    try:
        yield reader
    finally:
        reader.close()


def main(names: Sequence[str]) -> None:
    for case in names or CASES:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
            result = run(case, Path(directory))
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
