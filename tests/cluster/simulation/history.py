"""Random histories: producers, readers, kills, cuts and late notices, in an order that one seed gives."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec
import structlog

from bridge.errors import BridgeError, TargetUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.rules import moves
from bridge.journal.rules.commands import DeleteAddressCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.values.store import Acknowledgement, Page, Sent, Transaction
from bridge.journal.values.stored_block import END
from bridge.link.frames import Hello
from bridge.link.socket import Endpoint
from bridge.messages.message import Message
from bridge.settings.clusters import ClusterConnection
from bridge.settings.model import Settings
from cluster import decisions, extension, peers, redistribution
from cluster.contacts import Address, Own
from cluster.decisions import DrainRequest
from cluster.exchange import Conversation
from cluster.handover import AnyCall
from cluster.peers import Peer, Peers
from tests.cluster.shape import Shape
from tests.cluster.simulation.checks import Bad, Ledger, body_of
from tests.cluster.simulation.journal import AFTER_COMMIT, BEFORE_COMMIT, Commits, Killed
from tests.cluster.simulation.link import Link, LinkTarget
from tests.cluster.simulation.node import KINDS, PEER, SHARED, RecordingRouter, SimNode
from tests.cluster.simulation.rules import rules_off
from tests.fakes.virtual_time import VirtualLoop

STEP_S: Final = 0.05
STEPS: Final = 900
#: Rounds in which nothing fails any more and everything has to come to rest.
ROUNDS: Final = 600
LEASE_MS: Final = 4_500
#: Steps that a producer waits for an answer, and a reader between two requests.
ANSWER_STEPS: Final = 40
ASK_STEPS: Final = 20
#: Messages of a MoveCommand and commands in a row: few, so that others come in between.
MOVED_AT_ONCE: Final = 3
COMMANDS_AT_ONCE: Final = 2
READERS_MOST: Final = 6
READER_TIMEOUT_MS: Final = 3_000
#: At least `READER_TIMEOUT_MS` (design, section 7).
REDISTRIBUTION_DELAY_MS: Final = 3_500
RETRY_MS: Final = 200
#: So that a message of a transaction is often alone in its batch, and some are not.
BATCH_BYTES: Final = 80
#: Cycles of the event loop in which an answer that has left the writer reaches its link.
_LAST_CYCLES: Final = 12
#: Rounds of notices that answer notices.
_ECHOES: Final = 2_000


@dataclass
class Producer:
    """A client that sends one transaction at a time, and repeats it until it knows the verdict."""

    at: str
    todo: int
    #: The transaction whose verdict it does not know: address and bodies.
    doubt: tuple[str, tuple[str, ...]] | None = None
    asked: bool = False
    #: The step until which it waits for an answer.
    until: int = 0


@dataclass(eq=False)
class Reader:
    """A client that reads one queue."""

    at: str
    address: str
    queue: str
    lease: Page | None = None
    #: The step before which it asks for nothing.
    not_before: int = 0


@dataclass(frozen=True)
class Outcome:
    """How one seed ended."""

    seed: int
    #: Empty: all checks passed.
    error: str
    stats: Counter[str] = field(default_factory=Counter)


class Simulation:
    """One seed's history."""

    def __init__(
        self, seed: int, directory: Path, without: Iterable[str] = (), shape: Shape | None = None
    ) -> None:
        """`shape`: one in which neighbours cannot reach each other for a while, now and then; None: any, as
        chance has it, whose links are only cut.
        """
        self.r = r = random.Random(seed)
        self.without = frozenset(without)
        self.now = 0
        self.quiet = False
        self.stats: Counter[str] = Counter()
        mesh = r.random() < 0.75
        self.mode = r.choice(("STRICT", "ON_DEMAND", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"))
        count = r.choice((3, 3, 4, 5))
        self.severs = shape is not None
        self.shape = shape or (Shape("mesh", count) if mesh else Shape("chain", count, 8))
        names = [f"n{index}" for index in range(self.shape.nodes)]
        self.nodes = {
            name: SimNode(name, directory / name, self._settings(name, names, directory)) for name in names
        }
        self.by_directory = {node.directory: node for node in self.nodes.values()}
        self.wanted: dict[str, list[tuple[str, str]]] = {}
        for index, name in enumerate(names):
            queues = [("s.p", f"u{index}")] if r.random() < 0.6 else []
            shared = (("s.w", "s.w"), ("s.v", "s.v"), ("s.p", "s"))
            self.wanted[name] = queues + [one for one in shared if r.random() < 0.7 or index == 0]
        self.links: list[Link] = []
        #: Two neighbours that cannot reach each other now; empty: all can.
        self.severed: frozenset[str] = frozenset()
        self.producers = [Producer(r.choice(names), r.randint(8, 16)) for _ in range(3)]
        self.readers: list[Reader] = []
        self.bodies = 0
        self.ledger = Ledger(self.nodes)
        self.commits = Commits(self._committed)
        self.drains = r.choice((0, 1, 2, 2)) if self.shape.kind == "mesh" and len(names) > 3 else 0

    def _settings(self, name: str, names: list[str], directory: Path) -> Settings:
        index = names.index(name)
        contacts = [one for place, one in enumerate(names) if self.shape.linked(index, place)]
        connection = {
            "name": "simulation",
            "address": SHARED,
            "connector-ref": name,
            "static-connectors": contacts,
            "allow-direct-connections-only": self.shape.is_direct,
            "message-load-balancing": self.mode,
            "max-hops": self.shape.max_hops,
            "reader-timeout": f"{READER_TIMEOUT_MS}ms",
            "retry-interval": RETRY_MS,
            "max-retry-interval": RETRY_MS,
        }
        return Settings.model_validate(
            {
                "node": {"name": name, "data-directory": str(directory / name)},
                "connectors": {one: {"url": f"ws://{one}:61616"} for one in names},
                "cluster-connections": [connection],
                "address-settings": {f"{SHARED}#": {"redistribution-delay": f"{REDISTRIBUTION_DELAY_MS}ms"}},
            }
        )

    # -- nodes -------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        for node in self.nodes.values():
            await self._open(node)
            for address, queue in self.wanted[node.name]:
                node.do(self._make_queue(node, address, queue))
            await asyncio.sleep(0)
            self._turn(node)
        await asyncio.sleep(0)
        for node in self.nodes.values():
            await node.join()

    async def _open(self, node: SimNode) -> None:
        await node.open(lambda: self._submitted(node), self._late_s)

    def _late_s(self) -> float:
        """How late the result of a read comes."""
        return 0 if self.quiet or self.r.random() < 0.7 else STEP_S * self.r.randint(1, 4)

    def _submitted(self, node: SimNode) -> None:
        """A command waits. Most groups are committed at once, others stay open for a while."""
        if self.quiet or self.r.random() < 0.6:
            asyncio.get_running_loop().call_soon(self._turn, node, node.life)

    def _turn(self, node: SimNode, life: int | None = None) -> None:
        if not node.alive or node.is_dying or life not in (None, node.life):
            return
        try:
            node.journal.turn()
        except Killed:
            node.is_dying = True
            node.hold(asyncio.create_task(self._die_soon(node)))

    def _committed(self, directory: Path, group: Group, connection: sqlite3.Connection) -> None:
        self.ledger.committed(self.by_directory[directory], group, connection)

    def _kill(self, node: SimNode) -> None:
        """Kill a node: now, or within its next commit."""
        point = self.r.choice(("", BEFORE_COMMIT, AFTER_COMMIT))
        if point:
            self.commits.dies_at.setdefault(node.directory, point)
        else:
            self._die(node)

    async def _die_soon(self, node: SimNode) -> None:
        """Let receipts arrive that had left when the process ended; then it is seen that it has."""
        for _ in range(_LAST_CYCLES):
            await asyncio.sleep(0)
        for link in self.links:
            if link.receiver == node.name and not link.is_down:
                while self.r.random() < 0.7 and link.bring_back():
                    pass
        node.forget_task(asyncio.current_task())
        self._die(node)

    def _die(self, node: SimNode) -> None:
        point = self.commits.dies_at.pop(node.directory, "")
        self.stats["kills" + (f" {point}" if point else "")] += 1
        for link in self.links:
            if link.receiver == node.name:
                link.cut(TargetUnavailable(f"{node.name} is down"))
                link.noticed = True
            elif link.sender == node.name:
                link.cut(TargetUnavailable(f"{node.name} is down"))
        self.stats["placed elsewhere"] += node.router.routed
        self.stats["rerouted"] += node.router.rerouted
        self.stats["too many hops"] += node.router.hops_exceeded
        node.kill()
        self.readers = [one for one in self.readers if one.at != node.name]

    async def _restart(self, node: SimNode) -> None:
        await node.bury()
        await self._open(node)
        await node.join()
        self.stats["restarts"] += 1

    def _alive(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.alive]

    def _at(self, url: str) -> SimNode:
        return next(node for node in self.nodes.values() if url == f"ws://{node.name}:61616")

    # -- links -------------------------------------------------------------------------------------------

    def peer_target(
        self, _node: str, endpoint: Endpoint, hello: Hello, *, correspondent: Conversation, **_how: object
    ) -> LinkTarget:
        """Stands for `cluster.peers.PeerTarget`."""
        return LinkTarget(lambda: self._dial(hello, self._at(endpoint.url), correspondent))

    def _dial(self, hello: Hello, peer: SimNode, out: Conversation) -> Link:
        if not self.quiet and self.r.random() < 0.1:
            raise TargetUnavailable(f"{peer.name} does not answer")
        if self.severed == {hello.node_name, peer.name}:
            raise TargetUnavailable(f"there is no way to {peer.name}")
        link = peer.accept(hello, out)
        self.links.append(link)
        self.stats["links"] += 1
        return link

    def contacts(
        self, connection: ClusterConnection, _peers: Peers, _own: Own, found: Callable[..., Awaitable[None]]
    ) -> SimpleNamespace:
        """Stands for `cluster.contacts.Contacts`: each address is answered at once."""

        known: list[Address] = []

        async def turn() -> None:
            while known:
                one = known.pop(0)
                node = self._at(one.url)
                await found(Peer(node.uuid, node.name, one.url, one.connector, static=True), connection)
            await asyncio.Event().wait()

        def begin(addresses: list[Address], _discovered: Address | None) -> None:
            known.extend(addresses)

        return SimpleNamespace(connection=connection, failed="", begin=begin, turn=turn)

    async def post(self, endpoint: Endpoint, _path: str, body: bytes, *_how: object) -> bytes:
        """Stands for `bridge.link.socket.post`: calls and answers can be lost."""
        node = self._at(endpoint.url)
        lost = TargetUnavailable(f"{node.name} does not answer")
        if not node.listens or node.is_dying or (not self.quiet and self.r.random() < 0.1):
            raise lost
        decisions = node.extension._decisions
        call = msgspec.msgpack.decode(body, type=AnyCall)
        work = node.do(decisions._be_heir(call, PEER))
        await asyncio.wait((work,))
        if work.cancelled() or work.exception() is not None or (not self.quiet and self.r.random() < 0.1):
            raise lost
        return msgspec.msgpack.encode(work.result())

    async def _links(self, _node: SimNode) -> None:
        """One step of some links."""
        up = [link for link in self.links if not link.is_down]
        for _ in range(3):
            if up:
                link = self.r.choice(up)
                x = self.r.random()
                if x < (0.1 if len(link.frames) > 1 else 0.01):
                    self.stats["cuts"] += 1
                    self._cut(link)
                elif x < 0.4 and link.frames:
                    link.carry()
                elif x > 0.6:
                    link.bring_back()
        down = [link for link in self.links if link.is_down]
        if down and self.r.random() < 0.15:
            link = self.r.choice(down)
            if link.noticed:
                self.links.remove(link)
            elif link.frames and self.r.random() < 0.8:
                self._arrive_late(link)
            else:
                await link.notice()

    def _cut(self, link: Link) -> None:
        link.cut(TargetUnavailable("the link was cut"))
        if self.r.random() < 0.3:
            link.frames.clear()
            link.to_receiver.clear()
        while self.r.random() < 0.5 and link.frames:
            self._arrive_late(link)

    def _arrive_late(self, link: Link) -> None:
        """A frame of a link that the sender has lost arrives all the same, perhaps before earlier ones."""
        if link.frames and not link.noticed:
            self.stats["late frames"] += 1
            link.carry(self.r.randrange(len(link.frames)))

    async def _sever(self, _node: SimNode) -> None:
        """Two neighbours cannot reach each other from here on, or can again."""
        up = [link for link in self.links if not link.is_down]
        if self.severed or not up:
            self.severed = frozenset()
            return
        link = self.r.choice(up)
        self.severed = frozenset((link.sender, link.receiver))
        self.stats["severed"] += 1
        for one in up:
            if self.severed == {one.sender, one.receiver}:
                self._cut(one)
                await one.notice()

    # -- topology ----------------------------------------------------------------------------------------

    def _hear(self, link: Link, *, by_sender: bool) -> None:
        """Let a notice arrive, at the sender of the link or at its receiver."""
        node = self.nodes[link.sender if by_sender else link.receiver]
        conversation, notices = (link.out, link.to_sender) if by_sender else (link.back, link.to_receiver)
        body = notices.popleft()
        try:
            conversation.noticed(body)
        except BridgeError as error:
            self.stats[f"notice refused: {error.code}"] += 1
            if self.quiet:
                raise Bad(f"topology: {node.name} refuses a notice: {error}") from error
            self._cut(link)
        self._check_versions(node)

    def _check_versions(self, node: SimNode) -> None:
        """What a node knows of another never goes back to an older record."""
        for uuid_, record in node.exchange.topology.records.items():
            known = node.known.get(uuid_)
            if known is not None and record.version < known:
                raise Bad(f"topology: {node.name} knew {known} of {record.name}, and has {record.version}")
            node.known[uuid_] = record.version

    def _heard_by(self) -> list[tuple[Link, bool]]:
        found = []
        for link in self.links:
            if link.to_receiver and not link.noticed:
                found.append((link, False))
            if link.to_sender and not link.is_down:
                found.append((link, True))
        return found

    # -- drains ------------------------------------------------------------------------------------------

    async def _begin_drain(self, node: SimNode) -> None:
        staying = [
            one for one in self.nodes.values() if not one.gone and (not one.alive or one.drain is None)
        ]
        others = [one for one in self._alive() if one is not node]
        if not self.drains or self.now < 100 or len(staying) < 3 or node.drain is not None or not others:
            return
        heir = self.r.choice(others)
        request = DrainRequest(heir.uuid, lease_timeout=self.r.choice((1_000, 60_000)))
        node.do(self._ask_for_drain(node, request))

    async def _ask_for_drain(self, node: SimNode, request: DrainRequest) -> None:
        try:
            await node.extension._decisions._begin_drain(request, PEER)
        except BridgeError as error:
            self.stats[f"drain: {error.code}"] += 1
        else:
            self.drains -= 1
            self.stats["drains"] += 1

    async def _stop_drained(self, _node: SimNode) -> None:
        """An operator stops a node whose drain is DONE."""
        for node in self._alive():
            if node.has_drained and not node.is_dying:
                self._turn(node)
                if node.alive and not node.is_dying:
                    node.gone = True
                    self._die(node)
                    self.stats["drained"] += 1
                return

    def _heir(self, node: SimNode) -> SimNode:
        """Who answers a client of the node, once it has drained."""
        while node.gone or (node.alive and node.has_drained):
            state = node.drain
            assert state is not None
            node = next(one for one in self.nodes.values() if one.uuid == state.heir)
        return node

    # -- producers ---------------------------------------------------------------------------------------

    def _produce(self, producer: Producer) -> None:
        if producer.asked:
            if self.now < producer.until:
                return
            producer.asked = False  # no answer came: it does not know
            if "sticky-producer" in self.without:
                producer.at = self.r.choice(list(self.nodes))
        if producer.doubt is None:
            if not producer.todo:
                return
            producer.todo -= 1
            count = self.r.choice((1, 1, 2, 4))
            bodies = tuple(f"m{self.bodies + number}" for number in range(1, count + 1))
            self.bodies += count
            producer.doubt = (self.r.choice(list(KINDS)), bodies)
            if self.r.random() < 0.2:
                producer.at = self.r.choice(list(self.nodes))
        node = self._heir(self.nodes[producer.at])
        producer.at = node.name
        if node.alive:
            producer.asked, producer.until = True, self.now + ANSWER_STEPS
            node.do(self._send(node, producer, producer.doubt))

    async def _send(self, node: SimNode, producer: Producer, doubt: tuple[str, tuple[str, ...]]) -> None:
        address, bodies = doubt
        messages = [Sent.of(address, Message(body.encode()), body.encode()) for body in bodies]
        try:
            await node.journal.commit(Transaction(messages, on_duplicate="skip"))
        except BridgeError as error:
            self.stats[f"send: {error.code}"] += 1
            if producer.doubt == doubt:
                producer.asked = False
            return
        if not self.quiet and self.r.random() < 0.08:
            return  # the answer is lost
        if producer.doubt == doubt:
            producer.doubt, producer.asked = None, False

    # -- readers -----------------------------------------------------------------------------------------

    def _attach(self, node: SimNode) -> Reader | None:
        queues = sorted(node.queues())
        if not queues or len(self.readers) >= READERS_MOST:
            return None
        self.readers.append(Reader(node.name, *self.r.choice(queues)))
        return self.readers[-1]

    def _read(self, reader: Reader, *, stays: bool = False) -> None:
        node = self.nodes[reader.at]
        if not (self.quiet or stays) and self.r.random() < 0.05:
            self.readers.remove(reader)  # it goes, its lease open
            return
        if not node.alive or self.now < reader.not_before:
            return
        reader.not_before = self.now + ASK_STEPS
        if reader.lease is None:
            node.do(self._take(node, reader))
        elif self.quiet or self.r.random() < 0.8:
            node.do(self._acknowledge(node, reader, reader.lease))

    async def _take(self, node: SimNode, reader: Reader) -> None:
        try:
            page = await node.journal.lease(
                reader.address, reader.queue, most=self.r.randint(1, 3), wait_ms=0, lease_ms=LEASE_MS,
                most_bytes=END,
            )  # fmt: skip
        except BridgeError as error:
            self.stats[f"lease: {error.code}"] += 1
            if reader in self.readers:
                self.readers.remove(reader)
            return
        if page.lease is None or (not self.quiet and self.r.random() < 0.05):
            return  # nothing there, or the answer is lost: then the lease runs out
        self.ledger.leases[page.lease] = [(one.position, body_of(one.message)) for one in page.messages]
        reader.lease, reader.not_before = page, 0

    async def _acknowledge(self, node: SimNode, reader: Reader, page: Page) -> None:
        assert page.lease is not None
        upto = self.r.choice((None, None, page.messages[0].position))
        try:
            await node.journal.acknowledge(Acknowledgement(reader.address, reader.queue, page.lease, upto))
        except BridgeError as error:
            self.stats[f"acknowledge: {error.code}"] += 1
        if self.quiet or self.r.random() > 0.05:
            reader.lease, reader.not_before = None, 0

    # -- queues ------------------------------------------------------------------------------------------

    async def _make_queue(self, node: SimNode, address: str, queue: str) -> None:
        try:
            if KINDS[address] == "ANYCAST":
                queue = address
            await node.journal.create_queue(address, queue, "latest")
        except BridgeError as error:
            self.stats[f"create: {error.code}"] += 1

    async def _change_queues(self, node: SimNode) -> None:
        """Delete an empty queue, or make one again that is gone."""
        there = set(node.queues())
        gone = [one for one in self.wanted[node.name] if one not in there]
        if gone and self.r.random() < 0.5:
            node.do(self._make_queue(node, *self.r.choice(gone)))
            self.stats["queues made again"] += 1
            return
        self._turn(node)
        if not node.alive:
            return
        waiting = self.ledger.waiting_at(node)
        for address, queue in self.r.sample(sorted(there), len(there)):
            if (address, queue) in waiting or self._is_in_doubt(node, address):
                continue
            node.do(self._delete(node, address, queue))
            self.readers = [
                one for one in self.readers if (one.at, one.address, one.queue) != (node.name, address, queue)
            ]
            self.stats["queues deleted"] += 1
            return

    def _is_in_doubt(self, node: SimNode, address: str) -> bool:
        """Whether the address's ID cache may still be asked: it goes with an ANYCAST queue."""
        return any(one.at == node.name and one.doubt and one.doubt[0] == address for one in self.producers)

    async def _delete(self, node: SimNode, address: str, queue: str) -> None:
        # In a group of its own, at once: what waits in the queue now was looked at.
        try:
            if KINDS[address] == "ANYCAST":
                deleting = node.journal.send(DeleteAddressCommand, address=address).future
            else:
                deleting = asyncio.ensure_future(node.journal.delete_queue(address, queue))
                await asyncio.sleep(0)
            self._turn(node)
            await deleting
        except BridgeError as error:
            self.stats[f"delete: {error.code}"] += 1

    # -- the run -----------------------------------------------------------------------------------------

    async def _step(self) -> None:
        r, self.now = self.r, self.now + 1
        dead = [node for node in self.nodes.values() if not node.alive and not node.gone]
        if self._alive()[1:] and len(dead) < len(self.nodes) - 1 and r.random() < 0.006:
            self._kill(r.choice(self._alive()))
        elif dead and (r.random() < 0.03 or not self._alive()):
            await self._restart(r.choice(dead))
        node = r.choice(self._alive() or list(self.nodes.values()))
        if not node.alive:
            return
        if r.random() < 0.15:
            self._turn(node)
        actions = self._actions()
        (action,) = r.choices(list(actions), list(actions.values()))
        await action(node)

    def _actions(self) -> dict[Callable[[SimNode], Coroutine[Any, Any, None]], float]:
        """What a step does, and how often."""
        return {
            self._links: 45,
            self._some_read: 18,
            self._some_produce: 10,
            self._some_hear: 20,
            self._some_redistribute: 4,
            self._some_attach: 2,
            self._begin_drain: 0.7,
            self._stop_drained: 2,
            self._change_queues: 0.5,
        } | ({self._sever: 1.5} if self.severs else {})

    async def _some_produce(self, _node: SimNode) -> None:
        self._produce(self.r.choice(self.producers))

    async def _some_read(self, _node: SimNode) -> None:
        if self.readers:
            self._read(self.r.choice(self.readers))

    async def _some_attach(self, node: SimNode) -> None:
        self._attach(node)

    async def _some_hear(self, _node: SimNode) -> None:
        for _ in range(self.r.choice((3, 30, 60))):
            if heard_by := self._heard_by():
                link, by_sender = self.r.choice(heard_by)
                self._hear(link, by_sender=by_sender)

    async def _some_redistribute(self, node: SimNode) -> None:
        due = sorted(key for key, _ in node.redistribution._without_readers())
        if due and node.alive and self.r.random() < 0.5:  # a reader comes while messages are moved
            self.readers.append(Reader(node.name, *self.r.choice(due)))
            self._read(self.readers[-1], stays=True)

    async def _round(self) -> None:
        """Everything goes on a little, and nothing fails."""
        self.now += 1
        for node in self.nodes.values():
            if not node.alive and not node.gone:
                await self._restart(node)
        await self._carry_all()
        self._hear_all()
        for node in self._alive():
            self._turn(node)
        if self.now % 20 == 0:
            await self._stop_drained(self._alive()[0])

    async def _carry_all(self) -> None:
        """Every frame arrives, clients ask, and every answer comes back."""
        for link in list(self.links):
            if link.is_down and not link.noticed:
                await link.notice()
            if link.is_down:
                self.links.remove(link)
            while link.frames and not link.is_down:
                link.carry()
        for producer in self.producers:
            self._produce(producer)
        for reader in list(self.readers):
            self._read(reader)
        await asyncio.sleep(0)
        for link in self.links:
            while link.bring_back():
                pass

    def _hear_all(self) -> None:
        for _ in range(_ECHOES):
            heard_by = self._heard_by()
            for one in heard_by:
                if one in self._heard_by():  # else an earlier notice has ended the link
                    self._hear(one[0], by_sender=one[1])
            if not heard_by:
                return
        raise Bad("topology: notices answer each other for ever")

    def _ensure_readers(self) -> None:
        """One place of each queue has a reader; where some messages cannot go there, all of them have one."""
        every = self.mode == "STRICT" or not self.shape.reaches_all
        places: dict[tuple[str, str], list[str]] = {}
        for node in self._alive():
            for key in node.queues() if node.drain is None else ():
                places.setdefault(key, []).append(node.name)
        kept: dict[tuple[str, str, str], Reader] = {}
        for one in self.readers:
            if one.at in places.get((one.address, one.queue), ()):
                kept.setdefault((one.address, one.queue, one.at if every else ""), one)
        for key, names in places.items():
            for at in names if every else [self.r.choice(names)]:
                kept.setdefault((*key, at if every else ""), Reader(at, *key))
        self.readers = list(kept.values())

    async def run(self) -> None:
        """The history, and its end. Raises: Bad."""
        await self.begin()
        for number in range(STEPS):
            await self._step()
            await asyncio.sleep(STEP_S)
            self._check_bridges()
            if number % 60 == 59:
                self.ledger.conserve()
        self.quiet, self.severed = True, frozenset()
        self.commits.dies_at.clear()
        for number in range(ROUNDS):
            await self._round()
            await asyncio.sleep(STEP_S)
            self._check_bridges()
            if number % 20 == 19:
                self._ensure_readers()
                if self._is_done(self.ledger.conserve()):
                    break
        else:
            raise Bad(f"stuck: {self._left()}")
        if not self.shape.has_other_ways:
            self.ledger.order()
        await self._agree()

    def _check_bridges(self) -> None:
        for node in self._alive():
            if node.failed:
                raise Bad(f"bridge: {node.name}: {node.failed}")

    def _is_done(self, waiting: Counter[tuple[str, str]]) -> bool:
        idle = not any(one.todo or one.doubt for one in self.producers)
        return idle and not waiting and all(node.drain is None for node in self._alive())

    async def _agree(self) -> None:
        """Once nothing changes any more, every node knows every other's newest record."""
        self.readers = []
        for _ in range(90):
            await self._round()
            await asyncio.sleep(STEP_S)
        for node in self._alive():
            records = node.exchange.topology.records
            for other in self._alive():
                own = other.exchange.topology.records[other.uuid]
                if records.get(other.uuid) != own:
                    raise Bad(f"topology: {node.name} has {records.get(other.uuid)} of {other.name}: {own}")
                if not node.exchange.topology.reachable(other.uuid):
                    raise Bad(f"topology: {node.name} has no way to {other.name}")

    def _left(self) -> str:
        waiting = {node.name: sorted(self.ledger.waiting_at(node)) for node in self.nodes.values()}
        drains = {node.name: (node.drain, node.extension._decisions.drain.waits) for node in self._alive()}
        doubts = [one.doubt for one in self.producers if one.doubt or one.todo]
        return f"{waiting}, producers {doubts}, drains {drains}"

    async def end(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                self._die(node)
        for node in self.nodes.values():
            await node.bury()


async def _run(simulation: Simulation) -> str:
    try:
        await simulation.run()
    except Bad as error:
        return str(error)
    finally:
        simulation.quiet = True
        await simulation.end()
        for link in simulation.links:
            await asyncio.gather(*(one.work for one in link.answers), return_exceptions=True)
    return ""


def run(seed: int, directory: Path, without: Iterable[str] = (), shape: Shape | None = None) -> Outcome:
    """Run one seed, in a directory that is empty. `shape`: as in `Simulation`."""
    ids = random.Random(f"ids {seed}")
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:

        def small_batches(_most_bytes: int, large_bytes: int, stamp: bool) -> Cutter:
            return Cutter(BATCH_BYTES, large_bytes, stamp)

        with (
            asyncio.Runner(loop_factory=VirtualLoop) as runner,
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
            patch.object(random, "random", random.Random(f"waits {seed}").random),
            patch.object(moves, "MOVE_MESSAGES", MOVED_AT_ONCE),
            patch.object(extension, "ClusterRouter", RecordingRouter),
            patch.object(redistribution, "COMMANDS_AT_ONCE", COMMANDS_AT_ONCE),
            rules_off(without),
        ):

            async def main() -> Outcome:
                simulation = Simulation(seed, directory, without, shape)
                with (
                    simulation.commits.watched(),
                    patch.object(peers, "PeerTarget", simulation.peer_target),
                    patch.object(
                        peers, "Cutter", lambda _most, large, stamp: Cutter(BATCH_BYTES, large, stamp)
                    ),
                    patch.object(extension, "Contacts", simulation.contacts),
                    patch.object(decisions, "post", simulation.post),
                ):
                    error = await _run(simulation)
                simulation.stats["moves"] = simulation.ledger.moves
                simulation.stats["dead letters"] = simulation.ledger.dead_letters()
                simulation.stats["messages"] = len(simulation.ledger.entered)
                return Outcome(seed, error, simulation.stats)

            return runner.run(main())
    finally:
        structlog.configure(**before)
