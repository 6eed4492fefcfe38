"""A bridge with a transformer between fakes: order, dead letters, drops, waits, blocked calls, stops.

Threads run, so time does not jump here.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from bridge.errors import TransformerRefused
from bridge.messages.message import Message as StoredMessage
from bridge.relay import pump
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.transforming import Transformers, Transforming
from bridge.runtime.clock import SystemClock
from bridge.transformers import Message, NotNow
from bridge.transformers.loading import Call
from bridge.transformers.parts import TransformerOptions
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until


def upper(message: Message) -> Message:
    message.body = (message.body or b"").upper()
    return message


class Way:
    """A bridge with a transformer between fakes; its dead letters are at `home`."""

    def __init__(
        self,
        call: Call,
        *,
        most: int = 3,
        timeout_ms: int = 5000,
        load: Callable[[], Call] | None = None,
        callers: int = 1,
    ) -> None:
        self.journal, self.store, self.home = FakeJournal(), FakeStore(), FakeStore("home")
        self.journal.make("orders")
        options = TransformerOptions("shop:seen", attempts=3, call_timeout_ms=timeout_ms, callers=callers)
        self.transforming = Transforming("out", load or (lambda: call), options)
        self.most = most
        self.relay = self.made()

    def made(self) -> OneLane:
        """The relay of a process that has just started."""
        return OneLane(
            RelayOptions("out", Backoff(10, 1.0, 10)),
            LaneEnds(
                FakeSource(self.journal, "out", most=self.most),
                FakeTarget(self.store, "out"),
                DeadLetters("out", "dead-letters", lambda name: FakeTarget(self.home, name)),
            ),
            clock=SystemClock(),
            transforming=self.transforming,
        )

    def put(self, *bodies: bytes, key: bytes | None = None) -> None:
        self.journal.put("orders", *(StoredMessage(body, key) for body in bodies))

    @property
    def arrived(self) -> list[bytes | None]:
        return self.store.bodies("orders")

    async def covered(self) -> None:
        await until(lambda: not self.journal.backlog("out", "orders"), "everything is covered")


async def relayed(way: Way) -> None:
    await way.relay.command(Command.START)
    await way.covered()
    await way.relay.command(Command.STOP)


async def test_all_arrive_changed_in_order_and_off_the_loop() -> None:
    """B6"""
    threads: set[int | None] = set()

    def noting(message: Message) -> Message:
        threads.add(threading.get_ident())
        return upper(message)

    way = Way(noting)
    way.put(*(b"m%d" % number for number in range(10)))
    await relayed(way)
    assert way.arrived == [b"M%d" % number for number in range(10)]
    assert way.store.places("orders") == list(range(10))
    assert threading.get_ident() not in threads
    assert (way.relay.counts.acknowledged, way.relay.counts.dropped) == (10, 0)


async def test_one_that_always_raises_is_a_dead_letter_and_the_rest_flows_in_order() -> None:
    """B15"""

    def call(message: Message) -> Message:
        if message.body == b"m3":
            raise ValueError("bad amount")
        return upper(message)

    way = Way(call)
    way.put(*(b"m%d" % number for number in range(8)))
    await relayed(way)
    assert way.arrived == [b"M0", b"M1", b"M2", b"M4", b"M5", b"M6", b"M7"]
    assert way.home.bodies("dead-letters") == [b"m3"]
    assert way.relay.counts.refused == 1


async def test_a_dropped_message_is_covered_and_counted_once() -> None:
    """B16"""
    way = Way(lambda message: None if message.body in (b"m1", b"m2") else message, most=2)
    way.put(b"m0", b"m1", b"m2", b"m3")
    await relayed(way)
    assert (way.arrived, way.relay.counts.dropped, way.relay.counts.refused) == ([b"m0", b"m3"], 2, 0)
    assert way.home.bodies("dead-letters") == []


async def test_much_that_is_dropped_is_covered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, it is after ten seconds."""
    monkeypatch.setattr(pump, "COVERAGE_BYTES", 500)
    way = Way(lambda _message: None)
    await way.relay.command(Command.START)
    way.put(*[b"x" * 100] * 6)
    await until(lambda: len(way.journal.backlog("out", "orders")) <= 3, "a part is covered", 5)
    await way.relay.command(Command.STOP)
    assert way.relay.counts.dropped == 6


async def test_what_the_target_refuses_has_a_dead_letter_of_the_message_as_it_was_read() -> None:
    """So it goes through the transformer when it is sent again, once."""
    way = Way(upper)
    way.store.refuse(4)
    way.put(*(b"m%d" % number for number in range(7)))
    await relayed(way)
    assert way.arrived == [b"M0", b"M1", b"M2", b"M3", b"M5", b"M6"]
    assert way.home.bodies("dead-letters") == [b"m4"]


async def test_one_that_cannot_work_now_holds_the_stream_until_it_can() -> None:
    """Never a dead letter; what came before is delivered meanwhile."""
    down = True

    def call(message: Message) -> Message:
        if down and message.body == b"m1":
            raise NotNow("rates are down")
        return upper(message)

    way = Way(call)
    way.put(b"m0", b"m1", b"m2")
    with capture_logs() as logs:
        await way.relay.command(Command.START)
        await until(lambda: "rates are down" in way.relay.counts.trouble, "it says so")
        assert way.relay.state is State.WAITING
        await until(lambda: way.arrived == [b"M0"], "what came before arrives")
        down = False
        await way.covered()
    assert way.arrived == [b"M0", b"M1", b"M2"]
    assert (way.relay.counts.trouble, way.relay.state) == ("", State.RUNNING)
    assert way.home.bodies("dead-letters") == []
    assert [one["event"] for one in logs].count("bridge-waits") == 1
    await way.relay.command(Command.STOP)


async def test_a_stop_does_not_wait_for_a_call_and_no_other_begins_before_it_returns() -> None:
    go_on, calls, most = threading.Event(), 0, 0

    def call(message: Message) -> Message:
        nonlocal calls, most
        calls += 1
        most = max(most, calls)
        go_on.wait(30)
        calls -= 1
        return upper(message)

    way = Way(call, timeout_ms=30_000)
    way.put(b"m0", b"m1")
    for _ in range(3):
        await way.relay.command(Command.START)
        await until(lambda: calls == 1, "it is called")
        await asyncio.wait_for(way.relay.command(Command.STOP), 5)
    assert [one.name for one in threading.enumerate()].count("transformer-out") == 1
    go_on.set()
    await relayed(way)
    assert (way.arrived, most) == ([b"M0", b"M1"], 1)


async def test_a_call_that_does_not_return_is_named_and_another_is_made_once_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.relay.transforming.PART_S", 0.0)
    go_on = threading.Event()

    def call(message: Message) -> Message:
        go_on.wait(30)
        return upper(message)

    way = Way(call, timeout_ms=20)
    way.put(b"m0", b"m1")
    await way.relay.command(Command.START)
    await until(lambda: "earlier call" in way.relay.counts.trouble, "it says so")
    assert way.relay.counts.trouble == (
        "TRANSFORMER_NOT_NOW: shop:seen still has not returned from an earlier call; call-timeout is 20 ms"
    )
    go_on.set()
    await way.covered()
    assert (way.arrived, way.relay.counts.refused) == ([b"M0", b"M1"], 0)
    await way.relay.command(Command.STOP)


@pytest.mark.parametrize("callers", [1, 4])
async def test_what_is_made_before_a_call_that_does_not_return_is_sent(
    monkeypatch: pytest.MonkeyPatch, callers: int
) -> None:
    monkeypatch.setattr("bridge.transformers.callers.PART_S", 0.05)
    go_on, calls = threading.Event(), 0

    def call(message: Message) -> Message:
        nonlocal calls
        calls += 1
        if message.body == b"m2":
            go_on.wait(30)
        return upper(message)

    way = Way(call, callers=callers, most=10)
    way.put(b"m0", b"m1", b"m2", b"m3")
    await way.relay.command(Command.START)
    await until(lambda: way.arrived == [b"M0", b"M1"], "what came before it arrives")
    go_on.set()
    await way.covered()
    await way.relay.command(Command.STOP)
    assert (way.arrived, calls) == ([b"M0", b"M1", b"M2", b"M3"], 4)


@pytest.mark.parametrize("callers", [1, 4])
async def test_other_settings_call_nothing_before_the_earlier_call_has_returned(
    monkeypatch: pytest.MonkeyPatch, callers: int
) -> None:
    """As a reload has it that changes the bridge, or its name, while a call runs."""
    monkeypatch.setattr("bridge.relay.transforming.PART_S", 0.0)
    monkeypatch.setattr("bridge.transformers.callers.PART_S", 0.0)
    go_on, inside, most = threading.Event(), 0, 0

    def call(message: Message) -> Message:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if message.body == b"m1":
            go_on.wait(30)
        inside -= 1
        return upper(message)

    options = TransformerOptions("shop:seen", call_timeout_ms=50, callers=callers)
    transformers = Transformers()
    way = Way(call)
    way.put(b"m0", b"m1", b"m2")
    for names in (("out", ""), ("out", ""), ("renamed", "out")):
        way.transforming = transformers.make(object(), names, lambda: call, options, replays=False)
        way.relay = way.made()
        transformers.forget_others(names)
        await way.relay.command(Command.START)
        await until(lambda: inside == 1 and "has not returned" in way.relay.counts.trouble, "it waits")
        await way.relay.command(Command.STOP)
        transformers.forget_others([])
    other = transformers.make(object(), ("other", ""), lambda: call, options, replays=False)
    assert not other.is_calling
    go_on.set()
    await relayed(way)
    assert (way.arrived, most, inside) == ([b"M0", b"M1", b"M2"], 1, 0)
    transformers.forget_others([])
    assert transformers._made == {}


async def test_one_that_cannot_be_made_fails_the_bridge_and_a_start_tries_again() -> None:
    makes = 0

    def load() -> Call:
        nonlocal makes
        makes += 1
        if makes == 1:
            raise TransformerRefused("cannot be made with its properties: OSError: no such file")
        return upper

    way = Way(upper, load=load)
    way.put(b"m0")
    await way.relay.command(Command.START)
    await until(lambda: way.relay.state is State.FAILED, "it is FAILED")
    assert way.relay.reason.startswith("TRANSFORMER_REFUSED: cannot be made with its properties")
    await relayed(way)
    assert (way.arrived, makes) == ([b"M0"], 2)


async def test_a_call_that_does_not_return_holds_all_callers_until_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `concurrency`, the stream waits for it as it does without."""
    monkeypatch.setattr("bridge.relay.transforming.PART_S", 0.0)
    go_on, inside = threading.Event(), 0

    def call(message: Message) -> Message:
        nonlocal inside
        if message.body == b"m1":
            inside += 1
            go_on.wait(30)
            inside -= 1
        return upper(message)

    way = Way(call, timeout_ms=200, callers=4)
    for number in range(4):
        way.put(b"m%d" % number, key=b"%d" % number)
    await way.relay.command(Command.START)
    await until(lambda: inside == 1 and "earlier call" in way.relay.counts.trouble, "it says so")

    def threads() -> int:
        return sum(one.name.startswith("transformer-out-") for one in threading.enumerate())

    await until(lambda: threads() == 1, "the other callers have ended")
    await asyncio.wait_for(way.relay.command(Command.STOP), 5)
    go_on.set()
    await relayed(way)
    assert way.arrived == [b"M0", b"M1", b"M2", b"M3"]
    assert (way.relay.counts.refused, inside) == (0, 0)


class ByChance:
    """Changes, drops, delays and refuses messages by chance, each time anew."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.dropped: set[int] = set()
        self._inside: set[bytes | None] = set()
        #: Keys of calls that began before an earlier one of the key had ended.
        self.overlapping: list[bytes | None] = []

    def __call__(self, message: Message) -> Message | None:
        self.overlapping.extend({message.key} & self._inside)
        self._inside.add(message.key)
        try:
            return self._made(message)
        finally:
            self._inside.discard(message.key)

    def _made(self, message: Message) -> Message | None:
        fate = self._chance.random()
        if fate < 0.1:
            self.dropped.add(int(message.body or b""))
            return None
        if fate < 0.15:
            raise ValueError("by chance")
        if fate < 0.16:
            raise NotNow("by chance")
        if fate < 0.3:
            threading.Event().wait(self._chance.random() / 500)  # another caller has its turn
        message.body = (message.body or b"") + b" " * self._chance.randrange(200)
        return message


@pytest.mark.parametrize("callers", [1, 2, 4])
async def test_any_history_of_cuts_keeps_the_order_and_delivers_each_once(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random, callers: int
) -> None:
    """Also where the transformer does something else each time, each batch is cut anew, and several calls run
    at a time (B28).
    """
    monkeypatch.setattr(pump, "COVERAGE_INTERVAL_MS", 50)  # the last messages may be dropped ones
    monkeypatch.setattr("bridge.transformers.callers.PART_S", 0.0)
    call = ByChance(random.Random(rng.random()))
    way = Way(call, most=5, callers=callers)
    sent = 0
    await way.relay.command(Command.START)
    for _ in range(40):
        for _ in range(rng.randrange(8)):
            way.put(b"%d" % sent, key=b"%d" % rng.randrange(6))
            sent += 1
        match rng.randrange(4):
            case 0:
                way.store.cut()
            case 1:
                await way.relay.command(Command.STOP)
                await way.relay.command(Command.START)
        await asyncio.sleep(rng.random() / 200)
    await way.covered()
    await way.relay.command(Command.STOP)
    assert call.overlapping == [], "one call of a key at a time"
    places = way.store.places("orders")
    assert places == sorted(set(places)), "in order, each once"
    assert [int(body or b"") for body in way.arrived] == places
    letters = [int(body or b"") for body in way.home.bodies("dead-letters")]
    assert len(letters) == len(set(letters)), "one dead letter each"
    counts = way.relay.counts
    assert counts.acknowledged + counts.dropped <= sent
    # Not by `counts.dropped`: of what is covered when the link is cut, it has only what was confirmed.
    assert {*places, *letters} | call.dropped == {*range(sent)}
