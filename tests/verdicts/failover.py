"""A bridge that fails over between stores which are put back, copied, or begin empty: as it really is.

Like `tests.verdicts.world`, but with one stream and several nodes as targets. The world keeps sets of
positions and nothing else: what each store has, what the bridge has seen it confirm, what the source still
has. It follows docs/guarantees.md ("Another target than last time") and shares nothing with `bridge.relay` or
`dedup.reconcile`.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tests.verdicts.messages import Line, Shape

#: Most steps of a history.
STEPS: Final = 24
#: One in so many histories has none of the troubles.
UNTROUBLED: Final = 5


@dataclass(slots=True)
class Disk:
    """What a store keeps, and loses together when it is put back."""

    #: How often it has each position's message.
    copies: Counter[int] = field(default_factory=Counter)
    #: The first position not covered; None: it knows nothing of the stream.
    next: int | None = None
    #: As of `tests.verdicts.world.Target`.
    session: str = "s0"
    number: int = 0
    after: tuple[str, int] | None = None
    #: Lines that there were when it was backed up.
    lines: int = 0


@dataclass(slots=True)
class Hub:
    """A store that the bridge may go to."""

    name: str
    disk: Disk = field(default_factory=Disk)
    #: Earlier states of the disk: backups, and what there was when it was replaced.
    backups: list[Disk] = field(default_factory=list)
    #: How often another state has taken the disk's place.
    life: int = 0
    #: The bridge cannot come back to it: another one, which began empty, stands in its place.
    is_gone: bool = False
    #: What the bridge has seen it confirm, and has not seen it lose.
    confirmed: set[int] = field(default_factory=set)


class FailoverWorld:
    """One bridge, its source, and its stores."""

    def __init__(self, shape: Shape, *, passes_gaps: bool) -> None:
        self.shape = shape
        self.passes_gaps = passes_gaps
        source = f"kafka:src-{shape.number}:t-{shape.number}:0"
        self.stream = source if shape.is_kafka_source else f"journal:{shape.number:x}.0:{shape.address}:0"
        self.hubs: list[Hub] = []
        self.add_hub()
        self.at = self.hubs[0]
        #: One beyond the last position; those with a message, and those of them that are gone at the source.
        self.end = 0
        self.messages: set[int] = set()
        self.gone: set[int] = set()
        #: Below it the bridge knows every position as confirmed by a store, or as passed over.
        self.upto = 0
        #: Positions that were confirmed by a store that lost them, and have to come to it again.
        self.owed: set[int] = set()
        #: The bridge has failed, and waits for a person.
        self.is_stopped = False
        self.lines: list[Line] = []
        #: Lines that are gone with a disk, by `Line.order`.
        self.lost_lines: set[int] = set()
        #: Something went wrong, at a store or on the way.
        self.is_troubled = False
        self._sessions = 0

    # -- the source ----------------------------------------------------------------------------------------

    def produce(self, count: int, *, holes: int = 0) -> None:
        """So many messages, and behind them positions without one."""
        self.messages |= set(range(self.end, self.end + count))
        self.end += count + holes

    def trim(self, below: int) -> None:
        """The source drops what was confirmed."""
        self.gone |= {place for place in self.messages if place < min(below, self.upto)}

    # -- the bridge ----------------------------------------------------------------------------------------

    def relay(self, count: int, *, lost: Iterable[int] = (), receipt: bool = True) -> None:
        """Send the next positions to the store where the bridge is; of those that are `lost` it stores none.

        `receipt`: False: it is lost, and the next opening says what was confirmed.
        """
        if self.is_stopped or self.at.is_gone:
            return
        self._recover()
        from_ = self.at.disk.next or 0
        upto = min(from_ + count, self.end)
        if from_ >= upto:
            return
        elsewhere = set().union(*(hub.confirmed for hub in self.hubs if hub is not self.at))
        wanted = {place for place in self.messages if from_ <= place < upto} - elsewhere
        if wanted & self.gone and not self.passes_gaps:
            self.is_stopped = True
            return
        sent = wanted - self.gone
        carried = sent - {from_ + nth for nth in lost}
        self.at.disk.copies.update(carried)
        self.at.disk.next = upto
        self._received(self.at, from_, upto, carried)
        if receipt:
            self._confirmed(from_, upto, sent)

    def _confirmed(self, from_: int, upto: int, sent: set[int], *, recovered: bool = False) -> None:
        self._write("sent", self.at, max(from_, self.upto), upto, sent, recovered=recovered)
        self.at.confirmed |= sent
        self.upto = max(self.upto, upto)
        self.owed -= set(range(upto))

    def _recover(self) -> None:
        """At an opening the target's word confirms what no receipt did."""
        upto = self.at.disk.next
        if upto is not None and upto > self.upto:
            elsewhere = set().union(*(hub.confirmed for hub in self.hubs if hub is not self.at))
            sent = {p for p in self.messages if self.upto <= p < upto} - elsewhere - self.gone
            self._confirmed(self.upto, upto, sent, recovered=True)

    def go_to(self, hub: Hub) -> None:
        """Open a store: the one where the bridge is, or another one."""
        if self.is_stopped or hub.is_gone:
            return
        next_ = hub.disk.next
        missing = {place for place in hub.confirmed if place >= (next_ or 0)}
        if hub is not self.at and next_ is not None and any(place < next_ for place in self.owed):
            return  # it has passed them: the bridge waits for the store that lost them
        if missing:
            self._write("sent", hub, min(missing), max(missing) + 1, (), verdict="missing")
        if next_ is None and (missing or (hub is self.at and self.upto)):
            self.is_stopped = True  # it has forgotten the stream
            return
        if missing and next_ is not None:
            hub.confirmed -= missing
            self.owed |= missing
            self.upto, self.at = next_, hub
        elif hub is not self.at:
            self.at = hub
            start = 0 if next_ is None else next_
            if next_ is None or self.upto > next_:
                hub.disk.next = self.upto
                self._received(hub, start, self.upto, set())
        self._recover()

    # -- what happens to the stores --------------------------------------------------------------------------

    def add_hub(self) -> Hub:
        """One more store, which is empty."""
        name = "abcdefgh"[len(self.hubs)]
        hub = Hub(f"{name}-", Disk(session=f"{name}0"))
        self.hubs.append(hub)
        return hub

    def replace(self, hub: Hub) -> Hub:
        """The store's directory is gone, and an empty one is in its place: another store."""
        hub.is_gone = True
        made = self.add_hub()
        if self.at is hub and not self.is_stopped:
            self.go_to(made)
        return made

    def back_up(self, hub: Hub) -> None:
        """Keep the store's state, for `put_back`."""
        hub.disk.lines = len(self.lines)
        hub.backups.append(copy.deepcopy(hub.disk))

    def put_back(self, hub: Hub, number: int, *, dies: bool) -> None:
        """An earlier state takes the disk's place: a backup, a copy, or what was replaced before.

        `dies`: the disk is gone, with the lines that its node has written since the backup.
        """
        now, hub.disk = hub.disk, copy.deepcopy(hub.backups[number])
        if dies:
            lost = self.lines[hub.disk.lines :]
            self.lost_lines |= {
                line.order
                for line in lost
                if line.life == hub.life and line.side == "received" and line.hub == hub.name
            }
        else:
            now.lines = len(self.lines)
            hub.backups.append(now)
        hub.life += 1
        self.reopen(hub)

    def reopen(self, hub: Hub) -> None:
        """Its node is started again."""
        self._sessions += 1
        disk = hub.disk
        if disk.after is None or disk.number > disk.after[1]:
            disk.after = (disk.session, disk.number) if disk.number else None
        disk.session = f"s{self._sessions}"

    # -- lines -----------------------------------------------------------------------------------------------

    def _received(self, hub: Hub, from_: int, upto: int, carried: Iterable[int]) -> None:
        if upto > from_:
            hub.disk.number += 1
            self._write("received", hub, from_, upto, carried)
            disk = hub.disk
            self.lines[-1] = replace(
                self.lines[-1], session=disk.session, number=disk.number, after=disk.after, life=hub.life
            )

    def _write(
        self, side: str, hub: Hub, from_: int, upto: int, messages: Iterable[int], *,
        recovered: bool = False, verdict: str | None = None,
    ) -> None:  # fmt: skip
        if upto > from_:
            self.lines.append(
                Line(
                    order=len(self.lines), life=0, side=side, bridge=self.shape.bridge, stream=self.stream,
                    from_=from_, upto=upto, messages=tuple(sorted(p for p in messages if from_ <= p < upto)),
                    recovered=recovered, verdict=verdict, hub=hub.name,
                )
            )  # fmt: skip

    # -- the truth -------------------------------------------------------------------------------------------

    def copies(self) -> Counter[int]:
        """How often each message is at a store now."""
        found: Counter[int] = Counter()
        for hub in self.hubs:
            found.update(hub.disk.copies)
        return found

    def leave_out(self, hub: Hub) -> None:
        """The logs of a store that is gone for good are not collected, as docs/reconcile.md says."""
        hub.disk.copies.clear()
        self.lines = [line for line in self.lines if line.side == "sent" or line.hub != hub.name]


def failover_history(seed: str, number: int) -> FailoverWorld:
    """History `number` of a seed: the same one at every call."""
    rng = random.Random(f"{seed}:failover:{number}")
    is_kafka_source = rng.random() < 0.3
    shape = Shape(
        number=number, is_kafka_source=is_kafka_source, is_kafka_target=False, checks_ids=False, cache=10,
        partitions=1,
    )  # fmt: skip
    world = FailoverWorld(shape, passes_gaps=rng.random() < 0.3)
    for _ in range(rng.randint(1, 2)):
        world.add_hub()
    keeps = is_kafka_source or rng.random() < 0.3
    world.is_troubled = number % UNTROUBLED > 0
    world.produce(rng.randint(5, 15))
    for _ in range(rng.randint(6, STEPS)):
        _step(world, rng)
        if not keeps and rng.random() < 0.8:
            world.trim(world.upto)
    if rng.random() < 0.7:
        while not world.is_stopped and (world.at.disk.next or 0) < world.end:
            world.relay(rng.randint(1, 12))
    world.lines = [line for line in world.lines if line.order not in world.lost_lines]
    for hub in world.hubs:
        if hub.is_gone and rng.random() < 0.5:
            world.leave_out(hub)
    return world


def _step(world: FailoverWorld, rng: random.Random) -> None:  # noqa: C901 - a table of what may happen
    hub = rng.choice(world.hubs)
    steps = ["produce", "relay", "relay", "relay", "go", "reopen"]
    if world.is_troubled:
        steps += [*["back up"] * 3, *["put back"] * 4, "go", "go", "lose", "unanswered", "empty"]
    match rng.choice(steps):
        case "produce":
            world.produce(rng.randint(1, 10), holes=rng.choice([0, 0, 2]))
        case "relay":
            world.relay(rng.randint(1, 12))
        case "lose":
            count = rng.randint(1, 8)
            if rng.random() < 0.4:
                world.relay(count, lost=rng.sample(range(count), rng.randint(1, count)))
        case "unanswered":
            world.relay(rng.randint(1, 8), receipt=False)
        case "go":
            world.go_to(hub)
        case "reopen":
            world.reopen(hub)
        case "back up":
            world.back_up(hub)
        case "put back" if hub.backups and not hub.is_gone:
            world.put_back(hub, rng.randrange(len(hub.backups)), dies=rng.random() < 0.5)
            if hub is world.at or rng.random() < 0.5:
                world.go_to(hub)
        case "empty" if len(world.hubs) < 6 and rng.random() < 0.3:
            world.replace(hub)
