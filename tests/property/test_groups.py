"""Chance against commit groups: a command that is refused or blocked leaves its group as it was, a group that
fails leaves the state as it was, and one that is stored leaves the file as the state is.

All commands, decided by the rules as the writer has them decided, without its thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import Mock

import msgspec

from bridge.errors import BridgeError
from bridge.filters import Filter, parse
from bridge.journal.rules.arrivals import LETTER_NAMES, Came
from bridge.journal.rules.commands import (
    BeginCommand,
    Branch,
    BranchCommand,
    BridgeCommand,
    CacheCommand,
    CommitCommand,
    ConfigureCommand,
    DeleteAddressCommand,
    DeleteUnusedCommand,
    DeliverCommand,
    DisownCommand,
    DropLogCommand,
    EndLeaseCommand,
    ForgetCommand,
    ForgetLinesCommand,
    Grant,
    InheritCommand,
    IntakeCommand,
    LeaseCommand,
    MoveCommand,
    Moved,
    NoteCommand,
    OpenCommand,
    QueueCommand,
    SettleCommand,
    WriteCommand,
)
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.dispatch import decide, parts
from bridge.journal.rules.large_bodies import ChunkCommand, DropBodyCommand
from bridge.journal.rules.log_lines import Logbook
from bridge.journal.rules.moves import read_movable
from bridge.journal.rules.owners import EVERY_RIGHT, THIS_NODE, Owner
from bridge.journal.rules.state import PositionState, State
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.large_bodies import stored_chunks
from bridge.journal.values.options import (
    REPLAYED_QUEUE,
    AddressPolicy,
    BridgeQueue,
    JournalOptions,
    UnusedPolicy,
)
from bridge.journal.values.routing import Destination, Placement, Routing, Undo
from bridge.journal.values.store import Acknowledgement, Committed, Sent, Transaction
from bridge.journal.values.views import Intake
from bridge.journal.writer.loading import load_state
from bridge.journal.writer.opening import prepare
from bridge.journal.writer.rows import write_group
from bridge.messages.block import Block, KeptBody
from bridge.messages.message import LargeBody, Message
from bridge.messages.stream_names import forward_log
from bridge.relay.ports import Receipt, StreamState
from dedup.cache import IdCache, Overlay
from dedup.verdict import Verdict
from tests.fakes.routing import Alone
from tests.harness.rounds import rounds
from tests.integration.journal.helpers import ManualClock, batch, text

C = TypeVar("C", bound=WriteCommand)

SEEDS: Final = max(4, rounds(8))
#: One world of two sees no batch that is blocked: there are more until all acts were seen.
SEEDS_MOST: Final = 60
GROUPS: Final = 60
ACTS: Final = {"failed", "CommitCommand blocked", "DeliverCommand blocked"}
REFUSED: Final = {CommitCommand, DeliverCommand, MoveCommand, LeaseCommand, QueueCommand}
ADDRESSES: Final = (*("orders", "tight") * 4, *("full", "shared", "x") * 2, "closed", "y")
QUEUES: Final = ("q", "r", "shared", REPLAYED_QUEUE)
IDS: Final = tuple(b"id-%d" % number for number in range(12))
BRIDGES: Final = ("b", "c", "d")
STREAMS: Final = ("journal:0123456789abcdef:orders:0", "kafka:k:t:0", "kafka:k:t:1")
PEERS: Final = (
    Destination(forward_log("0b", "orders"), "$cluster.0b", only=("q",)),
    Destination(forward_log("0c", "tight"), "$cluster.0c", only=("r",)),
)
UNUSED: Final = UnusedPolicy(
    create_queues=True, delete_queues=True, queues_skip_usage_check=True, queues_message_count=-1,
    delete_created_queues=True, delete_addresses=True, addresses_skip_usage_check=True,
)  # fmt: skip
POLICIES: Final = {
    "full": AddressPolicy(max_size_bytes=600, full_policy="FAIL", id_cache_size=5),
    "tight": AddressPolicy(max_size_bytes=900, id_cache_size=3, unused=UNUSED),
    "shared": AddressPolicy(max_size_bytes=3_000, routing_type="ANYCAST", unused=UNUSED),
    "closed": AddressPolicy(auto_create=False),
    "dead-letters": AddressPolicy(max_size_bytes=2_000, full_policy="FAIL"),
    PEERS[0].address: AddressPolicy(max_size_bytes=700),
}


# -- what is compared --------------------------------------------------------------------------------------


#: What a group says of its commands, beside what it changes.
_OF_COMMANDS: Final = {"decided", "blocked", "blocked_streams", "freed_bytes", "log", "state"}
#: What is found anew from the rest, and what is remembered on purpose: that a batch was not taken.
_DERIVED: Final = {
    "ids_dropped",
    "last_address_id",
    "last_queue_id",
    "oldest_end",
    "has_counts",
    "refused_epoch",
}


def image(value: Any, without: frozenset[str] = frozenset()) -> Any:
    """A value as it is now, all the way down, to be compared."""
    deeper = partial(image, without=without)
    found: Any = value
    match value:
        case IdCache():
            found = value.capacity, value.accepted, tuple(value)
        case Overlay():
            found = tuple(value.added)
        case Filter():
            found = value.text
        case dict():
            found = {key: deeper(one) for key, one in value.items() if not _is_unused(one)}
        case list() | tuple():
            found = tuple(map(deeper, value))
        case set():
            found = frozenset(map(deeper, value))
        case msgspec.Struct():
            found = {name: deeper(getattr(value, name)) for name in value.__struct_fields__}
        case _ if _changes(value):
            fields = [one.name for one in dataclasses.fields(value) if one.name not in without]
            found = {name: deeper(getattr(value, name)) for name in fields}
        case _:
            pass
    return found


def _changes(value: Any) -> bool:
    """Whether it is a part of a group or of a state that rules may change."""
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, (type, WriteCommand))
    return is_dataclass and not type(value).__dataclass_params__.frozen


def _is_unused(value: Any) -> bool:
    """Whether it is an overlay that only was asked."""
    return isinstance(value, Overlay) and not value.added


def group_image(group: Group) -> Any:
    without = frozenset({*_OF_COMMANDS, "refused_epoch"})
    return image(group, without), image(group.state, without)


def log_image(group: Group) -> Any:
    return tuple(group.log.lines), image(group.log.repeated), tuple(group.log.transactions)


def state_image(state: State, *also_without: str) -> Any:
    """By which the writer decides. What is to be trimmed, and when, is looked for again."""
    return image(state, frozenset({*_DERIVED, "to_trim", "retained", "policy", *also_without}))


def differences(before: Any, after: Any, at: str = "") -> Iterable[str]:
    """Where two images differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), f"{at}.{key}")
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{at}[{index}]")
    elif before != after:
        yield f"{at}: {before!r} -> {after!r}"


# -- the world ---------------------------------------------------------------------------------------------


class Chance(Alone):
    """A router that decides by chance, and fails sometimes; it counts what it places."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.turns = 0

    def turn(self, undo: Undo) -> None:
        self.turns += 1
        undo.append(lambda: setattr(self, "turns", self.turns - 1))

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        kind = self.rng.random()
        if kind < 0.3:
            return None
        if kind < 0.35:
            raise LookupError("no such peer")
        places = self.rng.sample(
            [Destination(routing.address), Destination("x"), Destination("full"), *PEERS], 2
        )
        self.turn(routing.undo)
        return [Placement(place, routing.indices) for place in places]

    def onward(self, address: str, name: str, undo: Undo) -> Destination | str:
        self.turn(undo)
        return self.rng.choice((*PEERS, f"QUEUE_GONE: {address}::{name}"))


class World:
    """A journal without its writer's thread, and what has been done to it."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        directory.mkdir()
        self.path = directory / FILE_NAME
        self.options = JournalOptions(
            directory,
            policy=lambda name: POLICIES.get(name, AddressPolicy(max_size_bytes=5_000, id_cache_size=6)),
            addresses={"orders": ("q",)},
            bridges=[BridgeQueue("b", ["orders"], lambda name: name in ("orders", "tight"))],
            persist_id_cache=self.rng.random() < 0.5,
            max_addresses=8,
            max_queues=6,
            router=Chance(self.rng) if self.rng.random() < 0.6 else None,
        )
        prepared = prepare(self.path, self.options, self.clock)
        self.connection, self.state, self.identity = prepared.connection, prepared.state, prepared.identity
        self.leases: list[Acknowledgement] = [Acknowledgement("orders", "q", "no-lease")]
        self.uploads: list[tuple[int, int]] = [(99, 10)]
        self.large_ids = 0
        self.seen: Counter[str] = Counter()
        self.refused: set[type[WriteCommand]] = set()
        self.makers: dict[Callable[[], WriteCommand], int] = {
            self.commit: 12, self.deliver: 10, self.open: 6, self.chunk: 3, self.drop_body: 1, self.settle: 4,
            self.begin: 1, self.move: 5, self.lease: 6, self.end_lease: 3, self.queue: 4, self.bridge: 1,
            self.configure: 1, self.branch: 1, self.forget: 1, self.drop_log: 1, self.disown: 1,
            self.forget_lines: 1, self.cache: 2, self.delete_unused: 1, self.delete_address: 1,
            self.intake: 1, self.note: 1, self.inherit: 1,
        }  # fmt: skip

    # -- groups

    def run_group(self) -> None:
        """Several commands, decided, and stored or not."""
        self.clock.advance(self.rng.choice((0, 1, 40)))
        if self.state.intake is not Intake.OPEN and self.rng.random() < 0.6:
            self.run_part([self.made(IntakeCommand, intake=Intake.OPEN)])
        made = self.rng.choices(list(self.makers), list(self.makers.values()), k=self.rng.randint(1, 5))
        for part in parts([make() for make in made], probe=False):
            self.run_part(part)

    def run_part(self, commands: Sequence[WriteCommand]) -> None:
        before, turns = state_image(self.state), self.turns
        group = self.group()
        for command in commands:
            self.decide(group, command)
        if self.rng.random() < 0.2:
            self.fail(group, before)
            assert self.turns == turns, "a failed group has taken turns"
            return
        if group.changes_anything:
            write_group(group, self.connection)
        group.stored()
        self.options = group.options
        for command in group.decided:
            self.answered(command)
        stored = load_state(self.connection, self.options)
        left_out = (
            "uploads",
            "loose_bodies",
            "reserved",
            *(() if self.options.persist_id_cache else ("cache",)),
        )
        found = list(differences(state_image(stored, *left_out), state_image(self.state, *left_out)))
        assert not found, f"not as the file has it: {found}"
        kept = self.connection.execute("SELECT large_id FROM blocks WHERE large_id IS NOT NULL").fetchall()
        assert all(stored_chunks(self.connection, large_id)[0] for (large_id,) in kept), (
            "a body without chunks"
        )

    @property
    def turns(self) -> int:
        """What the router has placed; 0: there is none."""
        router = self.options.router
        return router.turns if isinstance(router, Chance) else 0

    def group(self) -> Group:
        now_ms = self.clock.wall_ms()
        log = Logbook(True, self.identity.line_writer("node"), now_ms, self.state.lines)
        return Group(self.state, self.options, self.identity.incarnation, now_ms, log, lease_now_ms=now_ms)

    def fail(self, group: Group, before: Any) -> None:
        """The group is written, and rolled back, as when COMMIT fails."""
        if group.changes_anything:
            connection = Mock(wraps=self.connection)
            connection.execute = self.without_commit
            write_group(group, connection)
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        group.take_back()
        loaded = load_state(self.connection, self.options, self.state)
        self.state = loaded.carrying(self.state, ids=not self.options.persist_id_cache)
        found = [one for one in differences(before, state_image(self.state)) if not is_let_go(group, one)]
        assert not found, f"a failed group with {group.decided} has changed {found}"
        self.seen["failed"] += 1

    def without_commit(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor | None:
        return None if sql == "COMMIT" else self.connection.execute(sql, parameters)

    def decide(self, group: Group, command: WriteCommand) -> None:
        before, log, turns = group_image(group), log_image(group), self.turns
        decide(group, self.connection, command)
        kind = outcome(group, command)
        self.seen[f"{type(command).__name__} {kind}"] += 1
        if kind == "done":
            return
        self.refused.add(type(command))
        assert self.turns == turns, f"{kind}: {command} has taken a turn"
        found = list(differences(before, group_image(group)))
        if kind != "duplicate":
            found += differences(log, log_image(group))
        assert not found, f"{kind}: {command} has changed {found}"

    def answered(self, command: WriteCommand) -> None:
        if isinstance(command, LeaseCommand) and isinstance(command.result, Grant):
            self.leases.append(Acknowledgement(command.address, command.queue, command.lease))

    # -- commands

    def made(self, kind: type[C], **fields: Any) -> C:
        return kind(future=Mock(spec=asyncio.Future), **fields)

    def address(self) -> str:
        return self.rng.choice(ADDRESSES)

    def known(self) -> str:
        """An address that is there, mostly."""
        return self.rng.choice([*self.state.addresses, "nowhere"])

    def id(self) -> bytes | None:
        return self.rng.choice((None, *IDS))

    def body(self) -> str:
        return "." * self.rng.choice((1, 50, 300, 700, 950))

    def commit(self) -> WriteCommand:
        rng = self.rng
        sent = [
            Sent.of(self.address(), text(self.body()), self.id()) for _ in range(rng.choice((0, 1, 1, 2, 3)))
        ]
        acknowledge = [self.lease_of()] if not sent or rng.random() < 0.2 else []
        large: KeptBody | None = None
        if len(sent) == 1 and rng.random() < 0.2:
            large_id, size = rng.choice(self.uploads)
            large = KeptBody(large_id, LargeBody(size, b"d" * 16))
            sent = [Sent.of(sent[0].address, Message(large.body), sent[0].duplicate_id)]
        transaction = Transaction(
            sent,
            self.id() if rng.random() < 0.3 else None,
            rng.choice(("reject", "skip")),
            acknowledge,
            plain=len(sent) == 1 and not acknowledge and rng.random() < 0.5,
            large=large,
        )
        return self.made(CommitCommand, transaction=transaction)

    def lease_of(self) -> Acknowledgement:
        lease = self.rng.choice(self.leases[-4:])
        upto = None if self.rng.random() < 0.7 else self.state.sequence - 2
        return msgspec.structs.replace(lease, upto=upto)

    def deliver(self) -> WriteCommand:
        rng = self.rng
        opened = [key for key, one in self.state.positions.items() if one.epoch and not one.moved_to]
        bridge, stream = rng.choice(opened or [("b", STREAMS[0])])
        position = self.state.positions.get((bridge, stream), PositionState(None, "", 0, 1))
        start = max((position.next or 0) - rng.choice((0, 0, 0, 1)), 0) + rng.choice((0, 0, 0, 0, 0, 0, 1))
        bodies = {start + index: self.body() for index in range(rng.randint(0, 4))}
        ids = {place: rng.choice(IDS).decode() for place in bodies if rng.random() < 0.4}
        some = batch(bodies, start + len(bodies) + rng.choice((0, 1)), start, ids, stream)
        if some.block is not None and rng.random() < 0.5:
            named = some.block.for_queues(tuple((1, self.names()) for _ in range(some.block.count)))
            some = dataclasses.replace(some, block=named)
        if some.block is not None and rng.random() < 0.05:
            some = dataclasses.replace(some, block=damaged(some.block))
        return self.made(
            DeliverCommand,
            bridge=bridge,
            address=self.address(),
            batch=some,
            run="run",
            epoch=position.epoch - (rng.random() < 0.05),
            check_ids=rng.random() < 0.5,
            present=frozenset({start}) if rng.random() < 0.1 else frozenset(),
            came=rng.choice(list(Came)),
        )

    def names(self) -> tuple[str, ...]:
        names = [*QUEUES[:3], "gone", "0.0/0b/q", *LETTER_NAMES]
        return tuple(self.rng.sample(names, self.rng.choice((0, 1, 2, 3))))

    def open(self) -> WriteCommand:
        bridge, previous = self.rng.sample(BRIDGES, 2)
        owner = self.rng.choice((Owner(EVERY_RIGHT), Owner(THIS_NODE, "n"), Owner("user:u", "n")))
        return self.made(
            OpenCommand,
            bridge=bridge,
            stream=self.rng.choice(STREAMS),
            previous=previous if self.rng.random() < 0.1 else "",
            owner=owner,
        )

    def chunk(self) -> WriteCommand:
        if self.rng.random() < 0.6:
            self.large_ids += 1
            large_id, number = self.large_ids, 0
        else:
            large_id, number = self.rng.choice(self.uploads)[0], self.rng.choice((1, 2))
        chunk = b"c" * self.rng.choice((0, 100, 700))
        if number == 0 and chunk:
            self.uploads.append((large_id, len(chunk)))
        return self.made(
            ChunkCommand,
            large_id=large_id,
            number=number,
            chunk=chunk,
            address=self.address(),
            whole_size=len(chunk),
            from_client=self.rng.random() < 0.5,
        )

    def drop_body(self) -> WriteCommand:
        return self.made(DropBodyCommand, large_id=self.rng.choice(self.uploads)[0])

    def settle(self) -> WriteCommand:
        address = self.state.addresses["orders" if self.rng.random() < 0.7 else self.known_there()]
        queue = address.queues.get("$bridge.b")
        start = (0 if queue is None else queue.cursor.next) + self.rng.choice((0, 0, 1))
        upto = max(start, address.next - self.rng.choice((0, 0, 1)))
        return self.made(
            SettleCommand,
            bridge="b",
            address=address.name,
            target="t",
            batch=batch({}, upto, start, stream=address.stream(self.identity.incarnation)),
            store="s",
            committed=0,
            duplicates=0,
            recovered=False,
        )

    def known_there(self) -> str:
        return self.rng.choice(list(self.state.addresses))

    def begin(self) -> WriteCommand:
        name = self.known()
        end = self.state.addresses[name].next if name in self.state.addresses else 0
        return self.made(
            BeginCommand, bridge="b", address=name, target="t", stream=f"journal:i:{name}:0",
            at=max(end - self.rng.choice((-1, 0, 1)), 0), store="s",
        )  # fmt: skip

    def move(self) -> WriteCommand:
        name = self.known()
        address = self.state.addresses.get(name)
        queue = self.rng.choice([*(address.queues if address else ()), REPLAYED_QUEUE])
        to = Destination(self.address())
        movable = read_movable(self.connection, (name, queue), to, self.identity.incarnation).messages
        places = [*map(Destination, ADDRESSES), *PEERS, Destination("orders", only=("q",))]
        messages: list[Moved] = []
        for one in movable:
            if messages and self.rng.random() < 0.3:
                continue
            learns = one.block.count == 1 and self.rng.random() < 0.5
            messages.append(dataclasses.replace(one, to=self.rng.choice(places), learns_ids=learns))
        lease = self.rng.choice(self.leases).lease if self.rng.random() < 0.3 else ""
        return self.made(MoveCommand, address=name, queue=queue, messages=messages, lease=lease)

    def lease(self) -> WriteCommand:
        self.large_ids += 1
        return self.made(
            LeaseCommand,
            address=self.rng.choice((self.known(), self.address())),
            queue=self.rng.choice(QUEUES),
            lease=f"lease-{self.large_ids}",
            most=self.rng.choice((1, 5)),
            most_bytes=10_000,
            lease_ms=self.rng.choice((1, 1_000)),
            reserves=self.rng.random() < 0.3,
        )

    def end_lease(self) -> WriteCommand:
        return self.made(EndLeaseCommand, acknowledgement=self.lease_of(), settle=self.rng.random() < 0.5)

    def queue(self) -> WriteCommand:
        return self.made(
            QueueCommand,
            action=self.rng.choice(("create", "create", "delete")),
            address=self.rng.choice((self.known(), self.address())),
            queue=self.rng.choice(QUEUES[:3]),
            start=self.rng.choice(("earliest", "latest", 3)),
            filter=parse(self.rng.choice(("", "", "colour = 'red'"))),
            keeps_filter=self.rng.random() < 0.5,
            automatic=self.rng.random() < 0.5,
            may_change_filter=self.rng.random() < 0.5,
        )

    def bridge(self) -> WriteCommand:
        name = self.rng.choice(BRIDGES)
        bridge = BridgeQueue(name, ["orders"], lambda address: address in ("orders", "y"))
        return self.made(BridgeCommand, action=self.rng.choice(("add", "put", "remove")), bridge=bridge)

    def configure(self) -> WriteCommand:
        size = self.rng.choice((2, 6))
        policies = {**POLICIES, "tight": dataclasses.replace(POLICIES["tight"], id_cache_size=size)}
        other = AddressPolicy(max_size_bytes=5_000, id_cache_size=6)
        options = dataclasses.replace(
            self.options,
            policy=lambda name: policies.get(name, other),
            addresses={"orders": ("q",), "declared": ()} if size == 2 else {"orders": ("q",)},
        )
        return self.made(ConfigureCommand, options=options)

    def branch(self) -> WriteCommand:
        branches = [
            Branch(queue.bridge, address.name, address.trimmed, "s")
            for address in self.state.addresses.values()
            for queue in address.queues.values()
            if queue.bridge is not None
        ]
        if branches and self.rng.random() < 0.5:
            branches.pop()
        return self.made(BranchCommand, incarnation=self.identity.incarnation, branches=branches)

    def forget(self) -> WriteCommand:
        bridge, address = self.rng.choice(BRIDGES), self.rng.choice((None, self.known()))
        return self.made(ForgetCommand, bridge=bridge, address=address, really=self.rng.random() < 0.7)

    def drop_log(self) -> WriteCommand:
        peer = self.rng.choice(PEERS)
        return self.made(DropLogCommand, address=peer.address, bridge=peer.bridge)

    def disown(self) -> WriteCommand:
        return self.made(DisownCommand, bridge=self.rng.choice(BRIDGES), really=self.rng.random() < 0.5)

    def forget_lines(self) -> WriteCommand:
        return self.made(ForgetLinesCommand, upto=self.state.lines)

    def cache(self) -> WriteCommand:
        return self.made(CacheCommand, address=self.known(), capacity=self.rng.choice((None, 2, 8)))

    def delete_unused(self) -> WriteCommand:
        return self.made(
            DeleteUnusedCommand, address=self.known(), queue=self.rng.choice((None, *QUEUES[:3]))
        )

    def delete_address(self) -> WriteCommand:
        return self.made(DeleteAddressCommand, address=self.known())

    def intake(self) -> WriteCommand:
        return self.made(IntakeCommand, intake=self.rng.choice((*Intake, Intake.OPEN, Intake.OPEN)))

    def note(self) -> WriteCommand:
        return self.made(NoteCommand, name="n", value=self.rng.choice((None, "v")))

    def inherit(self) -> WriteCommand:
        position = (self.rng.choice(BRIDGES), self.rng.choice(STREAMS), 5, "run", 0, 1, "user:u", "n")
        ids = self.rng.sample(IDS, self.rng.randint(0, 6))
        return self.made(InheritCommand, positions=[position], address=self.address(), ids=ids)


def is_let_go(group: Group, difference: str) -> bool:
    """Whether it is what nobody wants any more: that stays so, whatever becomes of the group."""
    drops = any(isinstance(one, DropBodyCommand) for one in group.decided)
    releases = any(isinstance(one, EndLeaseCommand) and not one.settle for one in group.decided)
    is_upload = difference.startswith((".uploads", ".loose_bodies"))
    return (drops and is_upload) or (releases and ".reserved." in difference)


def damaged(block: Block) -> Block:
    """A block whose messages cannot be read."""
    return dataclasses.replace(block, body=block.body[:-1] + b"\xc1")


def outcome(group: Group, command: WriteCommand) -> str:
    """What a decision has come to."""
    if any(command is blocked[0] for blocked in group.blocked):
        return "blocked"
    match command.result:
        case Committed(stored=False) | Receipt(verdict=Verdict.DUPLICATE):
            return "duplicate"
        case Receipt(verdict=Verdict.REFUSED | Verdict.NOT_NOW):
            return "not taken"
        case StreamState() | Receipt() | Committed():
            return "done"
    if isinstance(command.error, BridgeError):
        return "duplicate" if command.error.code == "DUPLICATE_ID_REJECTED" else "refused"
    return "done"


def test_what_is_refused_or_fails_leaves_nothing_and_what_is_stored_is_what_is_decided_by(
    tmp_path: Path,
) -> None:
    """R27: in random orders, over all commands."""
    seen: Counter[str] = Counter()
    refused: set[type[WriteCommand]] = set()
    base = random.Random().randrange(2**32)
    for turn in range(SEEDS_MOST):
        if turn >= SEEDS and seen.keys() >= ACTS and refused >= REFUSED:
            break
        seed = f"{base}:{turn}"
        world = World(tmp_path / str(turn), seed)
        try:
            for _ in range(GROUPS):
                world.run_group()
        except BaseException as error:
            error.add_note(f"World(tmp_path, {seed!r})")
            raise
        finally:
            world.connection.close()
        seen += world.seen
        refused |= world.refused
    assert seen.keys() >= ACTS
    assert refused >= REFUSED
