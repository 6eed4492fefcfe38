"""A bridge in lanes without a cluster: an ownership that does as a test says, and lanes between fake ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.errors import SourceRefused
from bridge.kafka.lanes.assignor import Claim, assign
from bridge.messages.message import Message
from bridge.relay.lag import LagProbe
from bridge.relay.lanes import LanedRelay
from bridge.relay.lifecycle import Command, State
from bridge.relay.ownership import Ownership
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import VirtualClock, now_ms
from tests.harness.eventually import until

BRIDGE = "us-to-eu"
#: Of virtual time; a test that waits longer for something has failed.
LONGEST_S = 60


class FakeOwnership:
    """`Ownership` as a test says."""

    def __init__(self, *owned: int) -> None:
        self.given = frozenset(owned)
        #: Raised by `open` while it is set.
        self.refuses: Exception | None = None
        self.is_open = False
        self.opens: list[int] = []
        #: Lanes that were given up, and are not owned until they are taken again.
        self.given_up: set[int] = set()
        self.closes: list[int] = []
        #: Called with each lane that is given up.
        self.on_given_up: Callable[[int], object] = lambda lane: None
        self._lost: Exception | None = None
        self._news = asyncio.Event()

    def give(self, *owned: int) -> None:
        self.given = frozenset(owned)
        self._tell()

    def lose(self, error: Exception) -> None:
        """The membership is lost: not open any more."""
        self._lost, self.is_open = error, False
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def owned(self) -> frozenset[int]:
        return self.given - self.given_up if self.is_open else frozenset()

    async def open(self) -> None:
        self.opens.append(now_ms())
        await asyncio.sleep(0.01)
        if self.refuses is not None:
            raise self.refuses
        self._lost, self.is_open = None, True

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        while True:
            if self._lost is not None:
                raise self._lost
            if self.owned != known:
                return self.owned
            await self._news.wait()

    async def confirmed(self, lane: int) -> None:
        """Nobody asks here."""

    def give_up(self, lane: int) -> None:
        self.given_up.add(lane)
        self.on_given_up(lane)
        self._tell()

    def take_again(self) -> None:
        self.given_up.clear()
        self._tell()

    async def close(self) -> None:
        self.given_up.clear()
        self.closes.append(now_ms())
        self.is_open = False


def failing(*lanes: int) -> Callable[[int, FakeSource], None]:
    """Makes the sources of these lanes fail for good at the first read."""

    def prepare(lane: int, source: FakeSource) -> None:
        if lane in lanes:
            source.read_fails = SourceRefused(f"needs the ACL Read on topic orders-{lane}")

    return prepare


class FakeGroup:
    """Members that share lanes, divided as `bridge.kafka.lanes.assignor` does, at once and without a
    broker.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        #: In the order of their joining.
        self.members: list[GroupedOwnership] = []
        self.divisions = 0

    def member(self) -> GroupedOwnership:
        """One that has not joined."""
        return GroupedOwnership(self)

    def divide(self) -> None:
        """As when a member has come, gone or said something new."""
        if self.members:
            said = {str(place): member.claim for place, member in enumerate(self.members)}
            shares = assign(self.lanes, said)
            self.divisions += 1
            for place, member in enumerate(self.members):
                member.give(*shares[str(place)])


class GroupedOwnership(FakeOwnership):
    """`Ownership` of one member of a `FakeGroup`."""

    def __init__(self, group: FakeGroup) -> None:
        super().__init__()
        self.group = group
        self.on_given_up = lambda lane: group.divide()

    @property
    def claim(self) -> Claim:
        return Claim(self.given, self.group.divisions, frozenset(self.given_up))

    async def open(self) -> None:
        await super().open()
        self.group.members.append(self)
        self.group.divide()

    def take_again(self) -> None:
        super().take_again()
        self.group.divide()

    async def close(self) -> None:
        await super().close()
        self.give()
        if self in self.group.members:
            self.group.members.remove(self)
            self.group.divide()


class Bridge:
    """A bridge of lanes, each between a journal of its own and a store that all share."""

    def __init__(self, ownership: Ownership, *, probe: LagProbe | None = None, **options: object) -> None:
        self.store = FakeStore()
        self.journals: dict[int, FakeJournal] = {}
        #: The latest of each lane.
        self.sources: dict[int, FakeSource] = {}
        #: By lane, every relay that was made.
        self.made: dict[int, list[Relay]] = {}
        #: Called with each source that is made.
        self.prepare: Callable[[int, FakeSource], None] = lambda lane, source: None
        self.relay = LanedRelay(
            RelayOptions(BRIDGE, **options),  # type: ignore[arg-type]
            ownership,
            self.make,
            clock=VirtualClock(),
            probe=probe,
        )

    def make(self, lane: int) -> Relay:
        source = FakeSource(self.journal(lane), f"{BRIDGE}-{lane}")
        self.sources[lane] = source
        self.prepare(lane, source)
        relay = Relay(
            self.relay.options,
            LaneEnds(
                source,
                FakeTarget(self.store, f"{BRIDGE}-{lane}"),
                lag=lambda: (lane, 1_000 * lane if lane else None),
            ),
            clock=VirtualClock(),
        )
        self.made.setdefault(lane, []).append(relay)
        return relay

    def journal(self, lane: int) -> FakeJournal:
        if lane not in self.journals:
            self.journals[lane] = FakeJournal(f"incarnation-{lane}")
            self.journals[lane].make(f"orders-{lane}")
        return self.journals[lane]

    def put(self, lane: int, *bodies: bytes) -> None:
        self.journal(lane).put(f"orders-{lane}", *(Message(body) for body in bodies))

    def share_with(self, other: Bridge) -> None:
        """Relay between the other one's journals and store: another worker of the same bridge."""
        self.store, self.journals = other.store, other.journals

    def fail(self, *lanes: int) -> None:
        """Have those of these lanes that are relayed here fail at a message, for good."""
        for lane in lanes:
            if lane in self.relay.lanes:
                self.sources[lane].read_fails = SourceRefused(f"lane {lane} is refused here")
                self.put(lane, b"refused")

    async def start(self) -> None:
        await self.relay.command(Command.START)

    async def stop(self) -> None:
        await self.relay.command(Command.STOP)

    async def until(self, state: State) -> None:
        await until(lambda: self.relay.state is state, f"the bridge is {state}")

    async def own(self, *lanes: int) -> None:
        """Wait until these lanes relay."""
        await until(
            lambda: (*self.relay.lanes,) == lanes and self.relay.state is State.RUNNING,
            f"lanes {lanes} relay",
        )

    async def arrived(self, lane: int, *bodies: bytes) -> None:
        await until(
            lambda: self.store.bodies(f"orders-{lane}") == [*bodies],
            f"{len(bodies)} have arrived by lane {lane}",
        )
