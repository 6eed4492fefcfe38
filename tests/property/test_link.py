"""Both ends of the link, their frames moved one at a time in any order, cut at any moment.

The two real machines, a target that obeys rule 1, and a sender that resumes at the target's word, as
the pump does. Whatever the interleaving: receipts come in order, no batch is handed over twice on a
link, notices come in order, every call is answered once and in call order, and every position is stored
once and in order.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BridgeError, OutOfSequence
from bridge.link.codec import encode
from bridge.link.frames import ReceiptFrame
from bridge.link.machine import LinkState, Machine, Noticed
from bridge.link.receiver import Receiver
from bridge.link.receiving import Delivering, Greeted, NodeIdentity, Opening
from bridge.link.sender import Sender
from bridge.link.sending import ChunkWanted
from bridge.messages.batch import Batch
from bridge.relay.ports import Opened, Receipt, StreamState
from dedup.verdict import Verdict
from tests.unit.link.helpers import HELLO, OTHER, STREAM, at, batch

STREAMS = (STREAM, OTHER)
BY_IDENTITY = {stream.identity: stream for stream in STREAMS}
#: Small, so that credit is often short.
IDENTITY = NodeIdentity("node-2", "hub", "hub-store", 1024, credit=200)
END = 12


@dataclass
class Store:
    """Rule 1 in memory; its effects happen in the order of the calls."""

    next: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BY_IDENTITY, 0))
    stored: dict[str, list[int]] = field(default_factory=lambda: {identity: [] for identity in BY_IDENTITY})

    def take(self, taken: Batch, verdict: Verdict) -> Receipt | BridgeError:
        next_ = self.next[taken.stream]
        if taken.from_ > next_:
            return OutOfSequence(f"from {taken.from_} beyond {next_}")
        if taken.upto <= next_:
            return Receipt(taken.stream, Verdict.DUPLICATE, next_)
        if verdict is not Verdict.STORED:
            return Receipt(taken.stream, verdict, next_, taken.from_, "CODE: why")
        self.stored[taken.stream].extend(range(next_, taken.upto))
        self.next[taken.stream] = taken.upto
        return Receipt(taken.stream, verdict, taken.upto)


class World:
    """One bridge, one store, and link after link between them."""

    def __init__(self, rng: random.Random, *, faults: bool) -> None:
        self.rng = rng
        self.faults = faults
        self.store = Store()
        self.cuts = 0
        self.connect()

    def connect(self) -> None:
        self.sender = Sender(HELLO, call_timeout_ms=5_000, now=at(0))
        self.receiver = Receiver(IDENTITY, call_timeout_ms=5_000, now=at(0))
        self.to_receiver: deque[bytes] = deque()
        self.to_sender: deque[bytes] = deque()
        #: At the target: (number, outcome) that has not been reported yet.
        self.at_target: list[tuple[int, Receipt | BridgeError]] = []
        self.handed: list[int] = []
        self.receipts: list[int] = []
        #: What the bridge sends next; None: the stream is to be opened.
        self.cursor: dict[str, int | None] = dict.fromkeys(BY_IDENTITY)
        self.calls: deque[tuple[int, Batch]] = deque()
        self.opens: dict[int, str] = {}
        self.ready = False
        #: Notices that each end has taken on, and those that have come at the other, in order.
        self.said: dict[Machine[Any], list[bytes]] = {self.sender: [], self.receiver: []}
        self.noticed: dict[Machine[Any], list[bytes]] = {self.sender: [], self.receiver: []}

    # The bridge.

    def ask(self) -> None:
        """Open a stream that is to be opened, or deliver the next batch of one that is open."""
        if not self.ready or self.sender.state is LinkState.CLOSED:
            return
        stream = self.rng.choice(STREAMS)
        cursor = self.cursor[stream.identity]
        if cursor is None:
            if stream.identity not in self.opens.values():
                self.opens[self.sender.open([stream], at(0))] = stream.identity
        elif cursor < END:
            upto = min(END, cursor + self.rng.randint(1, 4))
            cut = batch(cursor, upto, body=self.rng.choice((1, 60)), stream=stream)
            self.calls.append((self.sender.deliver([cut]), cut))
            self.cursor[stream.identity] = upto

    def notify(self) -> None:
        """An extension says something, at either end."""
        end: Machine[Any] = self.rng.choice((self.sender, self.receiver))
        body = b"%d" % len(self.said[end])
        if end.notify(body):
            self.said[end].append(body)

    def hear(self) -> None:
        for event in self.sender.take_events():
            if isinstance(event, Noticed):
                self.noticed[self.receiver].append(event.body)
            elif isinstance(event, ChunkWanted):
                raise AssertionError("no batch has a large body")
            elif isinstance(event.answer, Opened):
                identity = self.opens.pop(event.ticket)
                self.cursor[identity] = event.answer.streams[identity].next
            elif isinstance(event.answer, tuple):
                ticket, delivered = self.calls.popleft()
                assert event.ticket == ticket, "answered in call order"
                (receipt,) = event.answer
                assert receipt.stream == delivered.stream
                if receipt.verdict in (Verdict.STORED, Verdict.DUPLICATE):
                    assert self.store.next[receipt.stream] >= delivered.upto, "the word is kept"
                else:
                    self.cursor[receipt.stream] = None
            else:
                self.ready = True

    # The wire, a frame at a time, and the target.

    def send(self) -> None:
        frame = self.sender.next_frame()
        if frame is not None:
            self.to_receiver.append(encode(frame))
        answer = self.receiver.next_frame()
        if answer is not None:
            if isinstance(answer, ReceiptFrame):
                self.receipts.append(answer.number)
            self.to_sender.append(encode(answer))
        self.hear()

    def arrive_there(self) -> None:
        if self.to_receiver:
            self.receiver.receive(self.to_receiver.popleft(), at(0))
            self.act()

    def arrive_here(self) -> None:
        if self.to_sender:
            self.sender.receive(self.to_sender.popleft(), at(0))
            self.hear()

    def act(self) -> None:
        for event in self.receiver.take_events():
            if self.receiver.state is LinkState.CLOSED:
                return
            match event:
                case Greeted(hello):
                    self.receiver.welcome(hello)
                case Opening(index, stream):
                    self.receiver.opened(index, StreamState(self.store.next[stream.identity]))
                case Noticed(body):
                    self.noticed[self.sender].append(body)
                case Delivering(number, handed):
                    self.handed.append(number)
                    refusals = [Verdict.NOT_NOW, Verdict.REFUSED] if self.faults else [Verdict.STORED]
                    verdict = self.rng.choice([Verdict.STORED] * 6 + refusals)
                    self.at_target.append((number, self.store.take(handed, verdict)))

    def report(self) -> None:
        """A delivery at the target returns, not necessarily the first."""
        if self.at_target and self.receiver.state is not LinkState.CLOSED:
            number, outcome = self.at_target.pop(self.rng.randrange(len(self.at_target)))
            self.receiver.delivered(number, outcome)
            self.act()

    def cut(self) -> None:
        """The connection breaks: what is under way in either direction is gone."""
        self.check()
        self.cuts += 1
        self.connect()

    def check(self) -> None:
        assert self.receipts == sorted(set(self.receipts)), "receipts in order, none twice"
        assert self.receipts == list(range(len(self.receipts))), "none left out"
        assert self.handed == sorted(set(self.handed)), "handed over in order, none twice"
        for end, bodies in self.noticed.items():
            assert bodies == self.said[end][: len(bodies)], "notices in order, none twice, none left out"
        for identity, positions in self.store.stored.items():
            assert positions == list(range(self.store.next[identity])), "each position once, in order"

    def done(self) -> bool:
        stored = all(next_ == END for next_ in self.store.next.values())
        return stored and not self.calls and self.noticed == self.said

    def step(self, choice: int) -> None:
        steps = (self.ask, self.send, self.arrive_there, self.arrive_here, self.report, self.notify)
        steps[choice % len(steps)]()
        for end in (self.sender, self.receiver):
            # No frame that either end makes is ever a protocol error to the other.
            assert end.ending is None, end.ending


@given(seed=st.integers(0, 2**32), choices=st.lists(st.integers(0, 40), max_size=300))
def test_any_interleaving_and_any_cut_keeps_order_and_doubles_nothing(seed: int, choices: list[int]) -> None:
    world = World(random.Random(seed), faults=True)
    for choice in choices:
        if choice == 40:
            world.cut()
        else:
            world.step(choice)
    world.check()


@given(seed=st.integers(0, 2**32))
def test_without_end_to_the_faults_everything_arrives_in_the_end(seed: int) -> None:
    """Liveness: with refusals, short credit and cuts that stop at some time, no link ever hangs."""
    rng = random.Random(seed)
    world = World(rng, faults=True)
    for step in range(20_000):
        if world.done():
            break
        world.faults = step < 500
        if step < 500 and rng.random() < 0.01:
            world.cut()
        else:
            world.step(rng.randrange(6 if world.faults else 5))
    assert world.done(), f"stuck after {world.cuts} cuts: {world.store.next}, waiting {list(world.calls)}"
    world.check()
