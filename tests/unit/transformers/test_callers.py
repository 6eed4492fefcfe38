"""Several calls of a transformer at a time: order by key, results in the order of the batch, what is kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bridge.errors import TransformerRefused
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message as StoredMessage
from bridge.transformers import Message, NotNow, callers
from bridge.transformers.callers import Callers, caller_of
from bridge.transformers.loading import Call
from bridge.transformers.parts import Part, TransformerOptions
from tests.harness.eventually import PATIENCE_S, eventually

OPTIONS = TransformerOptions("shop:seen", attempts=2, callers=4)
#: A key of each of four callers.
KEYS = [
    next(b"%d" % n for n in range(99) if caller_of(StoredMessage(b"", b"%d" % n), 4) == k) for k in range(4)
]
A, B, C, D = KEYS


def batch(*messages: tuple[bytes, bytes], first: int = 10) -> Batch:
    """Messages of these keys and bodies, at every tenth position."""
    runs = tuple((first + 10 * at, first + 10 * at) for at in range(len(messages)))
    block = pack([encode_message(StoredMessage(body, key)) for key, body in messages])
    return Batch("s", first, runs[-1][0] + 1, runs, block.stamped("s", runs), 77)


def made_by(call: Call, options: TransformerOptions = OPTIONS) -> Callers:
    return Callers("callers", lambda: call, options)


def part_of(them: Callers, one: Batch, is_given_up: Callable[[], bool] = lambda: False) -> Part:
    return them.part(one, "orders", is_given_up)


def bodies(made: Sequence[Batch]) -> list[bytes | None]:
    return [message.whole for one in made if one.block is not None for message in one.block.messages()]


def all_of(take: Callable[[Batch], Part], one: Batch) -> list[Batch]:
    """The batches that are made of one, in as many parts as it takes."""
    made: list[Batch] = []
    rest: Batch | None = one
    while rest is not None:
        part = take(rest)
        assert not part.not_now
        made += part.made
        rest = part.rest
    return made


class Returning(threading.Thread):
    """A part that is taken beside the test."""

    def __init__(self, take: Callable[[], Part]) -> None:
        super().__init__(daemon=True)
        self._take = take
        self.part: Part | None = None
        self.start()

    def run(self) -> None:
        self.part = self._take()

    def result(self) -> Part:
        self.join(PATIENCE_S)
        assert self.part is not None
        return self.part


class Gates:
    """Calls that return when, and in the order in which, the test lets them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: By key.
        self.inside: dict[bytes, bytes] = {}
        #: Keys of calls that began while an earlier one of the key was inside.
        self.overlapping: list[bytes] = []
        self.calls: list[bytes] = []
        self._open: set[bytes] = set()

    def __call__(self, message: Message) -> Message:
        key, body = message.key or b"", message.body or b""
        with self._changed:
            self.overlapping.extend({key} & self.inside.keys())
            self.inside[key] = body
            self.calls.append(body)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: body in self._open, PATIENCE_S)
            del self.inside[key]
            self._changed.notify_all()
        message.body = body.upper()
        return message

    def let(self, *some: bytes) -> None:
        """Let these calls return, now or as soon as they begin."""
        with self._changed:
            self._open.update(some)
            self._changed.notify_all()

    def wait_for(self, *some: bytes) -> None:
        """Return once these are called."""
        with self._changed:
            assert self._changed.wait_for(lambda: {*some} <= {*self.calls}, PATIENCE_S), self.calls

    def let_any(self, chance: random.Random, is_over: Callable[[], bool]) -> bool:
        """Let one of the calls return that are inside; False: there is none any more."""
        with self._changed:
            while not (waiting := sorted({*self.inside.values()} - self._open)):
                if is_over():
                    return False
                self._changed.wait(0.001)
            self._open.add(chance.choice(waiting))
            self._changed.notify_all()
            return True


def test_a_key_has_one_caller_and_so_has_a_group() -> None:
    group = (("JMSXGroupID", A),)
    assert [caller_of(StoredMessage(b"", key), 4) for key in KEYS] == [0, 1, 2, 3]
    assert caller_of(StoredMessage(b"", B, group), 4) == caller_of(StoredMessage(b"", B), 4), "the key counts"
    assert caller_of(StoredMessage(b"", None, (("JMSXGroupID", D),)), 4) == 3
    assert caller_of(StoredMessage(b""), 4) == 0


def test_messages_of_different_keys_are_called_at_the_same_time() -> None:
    """B28: no call goes on before all four have begun."""
    together = threading.Barrier(4)

    def call(message: Message) -> Message:
        together.wait(PATIENCE_S)
        return message

    read = batch(*((key, b"%d" % turn) for turn in range(3) for key in KEYS))
    (one,) = part_of(made_by(call), read).made
    assert one.block is read.block, "nothing has changed: it goes on as it is"
    assert one.refusals == ()


def test_any_order_of_returns_keeps_the_order_of_each_key_and_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B28, with parts that end at any message; each message is called once."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    monkeypatch.setattr(callers, "PART_S", 0.0)
    for number in range(1, 5):
        gates = Gates()
        keys = [chance.choice([*KEYS, b"other", b"more"]) for _ in range(24)]
        read = batch(*((key, b"m%02d" % at) for at, key in enumerate(keys)))
        them = made_by(gates, replace(OPTIONS, callers=number))
        found: list[Batch] = []

        def take(them: Callers = them, read: Batch = read, found: list[Batch] = found) -> Part:
            found += all_of(lambda rest: part_of(them, rest), read)
            return Part((), None)

        taking = Returning(take)
        while gates.let_any(chance, lambda taking=taking: not taking.is_alive()):  # type: ignore[misc]
            assert len(gates.inside) <= number
        taking.result()
        assert gates.overlapping == []
        assert bodies(found) == [b"M%02d" % at for at in range(24)]
        assert [place for one in found for place, _ in one.runs] == [10 + 10 * at for at in range(24)]
        for key in set(keys):
            called = [body for body in gates.calls if keys[int(body[1:])] == key]
            assert called == sorted(set(called)), "in order, once"


def fate(message: Message) -> Message | None:
    """By its body alone."""
    number = int(message.body or b"")
    if number % 7 == 3:
        return None
    if number % 11 == 5:
        raise ValueError("bad amount")
    if number % 2:
        message.body = (message.body or b"") * 100
    return message


def test_what_is_made_is_what_one_caller_makes() -> None:
    read = batch(*((b"key %d" % (at % 13), b"%d" % at) for at in range(80)))
    read = replace(read, refusals=((30, "LOOP: x"),))
    options = replace(OPTIONS, batch_bytes=2000, large_bytes=5000)
    them = made_by(fate, options)
    beside = all_of(lambda rest: part_of(them, rest), read)
    one_caller = made_by(fate, replace(options, callers=1))
    alone = all_of(lambda rest: part_of(one_caller, rest), read)
    for one in (beside, alone):
        assert (one[0].from_, one[-1].upto) == (read.from_, read.upto)
    assert bodies(beside) == bodies(alone)
    for attribute in ("runs", "refusals"):
        assert [item for one in beside for item in getattr(one, attribute)] == [
            item for one in alone for item in getattr(one, attribute)
        ], attribute
    assert sum(one.dropped for one in beside) == sum(one.dropped for one in alone) > 0
    assert all(one.size < 3000 for one in beside)


def test_a_slow_call_holds_no_other_key_and_what_others_made_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "PART_S", 0.05)
    gates = Gates()
    gates.let(b"a0", b"a2", b"a3")
    them = made_by(gates)
    read = batch((A, b"a0"), (B, b"slow"), (A, b"a2"), (A, b"a3"))
    part = part_of(them, read)
    assert (bodies(part.made), part.not_now) == ([b"A0"], "")
    assert part.rest is not None
    assert (part.rest.from_, bodies([part.rest])) == (20, [b"slow", b"a2", b"a3"])
    second = Returning(lambda: part_of(them, part.rest or read))
    gates.wait_for(b"a3")
    gates.let(b"slow")
    assert (bodies(second.result().made), second.result().rest) == ([b"SLOW", b"A2", b"A3"], None)
    assert sorted(gates.calls) == [b"a0", b"a2", b"a3", b"slow"], "each once"


def test_what_is_made_ahead_of_a_slow_call_is_bounded_by_a_batch_in_bytes() -> None:
    gates = Gates()

    def grow(message: Message) -> Message:
        gates(message)
        message.body = (message.body or b"") * 100
        return message

    later = [b"b%03d" % at for at in range(20)]
    gates.let(*later)
    them = made_by(grow, replace(OPTIONS, batch_bytes=1000))
    read = batch((A, b"slow"), *((B, body) for body in later))
    first = Returning(lambda: part_of(them, read))
    gates.wait_for(b"slow", later[2])
    eventually(lambda: _threads() == 1, "the other caller has ended")
    assert sorted(gates.calls) == [*later[:3], b"slow"]
    gates.let(b"slow")
    part = first.result()
    assert part.rest is not None
    found = [*part.made, *all_of(lambda rest: part_of(them, rest), part.rest)]
    assert bodies(found) == [body.upper() * 100 for body in (b"slow", *later)]
    assert sorted(gates.calls) == sorted([b"slow", *later]), "each once"


def _threads() -> int:
    return sum(one.name.startswith("callers-") for one in threading.enumerate())


def test_one_that_cannot_work_now_lets_what_comes_before_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages behind it that were made are made again, as the batch is read again."""
    monkeypatch.setattr(callers, "PART_S", 0.0)
    down, raised = True, threading.Event()

    def call(message: Message) -> Message:
        if message.body == b"slow":
            raised.wait(PATIENCE_S)
        if message.body == b"down" and down:
            raised.set()
            raise NotNow("rates are down")
        message.body = (message.body or b"").upper()
        return message

    them = made_by(call)
    read = batch((A, b"a0"), (A, b"slow"), (B, b"down"), (C, b"c3"), (A, b"a4"))
    found: list[Batch] = []
    part = part_of(them, read)
    while not part.not_now:  # parts may end before it
        assert part.rest is not None
        found += part.made
        part = part_of(them, part.rest)
    found += part.made
    assert bodies(found) == [b"A0", b"SLOW"]
    assert part.not_now == "TRANSFORMER_NOT_NOW: shop:seen at orders position 30: NotNow: rates are down"
    assert part.rest is not None
    assert bodies([part.rest]) == [b"down", b"c3", b"a4"]
    down = False
    assert bodies(all_of(lambda rest: part_of(them, rest), part.rest)) == [b"DOWN", b"C3", b"A4"]


def test_the_first_of_several_that_cannot_work_now_is_named() -> None:
    later, first = threading.Event(), threading.Event()

    def call(message: Message) -> Message:
        if message.body == b"first":
            later.wait(PATIENCE_S)
        (first if message.body == b"first" else later).set()
        raise NotNow("down")

    part = part_of(made_by(call), batch((A, b"first"), (B, b"later")))
    assert (list(part.made), first.is_set()) == ([], True)
    assert part.not_now == "TRANSFORMER_NOT_NOW: shop:seen at orders position 10: NotNow: down"


def test_another_batch_waits_for_the_calls_of_the_last_one_and_drops_what_they_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a lost connection: the batch is read again."""
    monkeypatch.setattr(callers, "PART_S", 0.05)
    gates = Gates()
    gates.let(b"a0", b"a2", b"a3")
    them = made_by(gates)
    messages = [(A, b"a0"), (B, b"slow"), (A, b"a2")]
    part_of(them, batch(*messages))
    again = Returning(lambda: part_of(them, batch(*messages, (A, b"a3"))))
    again.join(0.1)
    assert gates.calls.count(b"a0") == 1, "it waits for the slow one"
    gates.let(b"slow")
    made, rest = again.result().made, again.result().rest
    found = [*made, *(all_of(lambda one: part_of(them, one), rest) if rest else ())]
    assert bodies(found) == [b"A0", b"SLOW", b"A2", b"A3"]
    assert gates.calls.count(b"a0") == gates.calls.count(b"slow") == 2


def test_a_rest_with_a_refusal_that_the_target_gave_meanwhile_is_another_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "PART_S", 0.05)
    gates = Gates()
    gates.let(b"a0", b"a2")
    them = made_by(gates)
    part = part_of(them, batch((A, b"a0"), (B, b"slow"), (A, b"a2")))
    assert part.rest is not None
    gates.let(b"slow")
    found = all_of(lambda one: part_of(them, one), replace(part.rest, refusals=((30, "TOO_LARGE: x"),)))
    assert bodies(found) == [b"SLOW", b"a2"], "as it was read"
    assert [one for made in found for one in made.refusals] == [(30, "TOO_LARGE: x")]


def test_each_caller_has_a_transformer_of_its_own_and_they_are_made_one_after_the_other() -> None:
    loading = threading.Lock()
    seen: dict[bytes, set[int]] = {}

    class Own:
        def __call__(self, message: Message) -> Message:
            seen.setdefault(message.key or b"", set()).add(id(self))
            return message

    made: list[Own] = []

    def load() -> Call:
        assert loading.acquire(blocking=False)
        made.append(Own())
        loading.release()
        return made[-1]

    them = Callers("callers", load, OPTIONS)
    for _ in range(3):
        assert part_of(them, batch(*((key, b"m") for key in KEYS[1:] * 5))).rest is None
    assert len(made) == 3, "none for a caller without messages"
    assert all(len(own) == 1 for own in seen.values())
    assert len(set.union(*seen.values())) == 3


def test_one_that_cannot_be_made_is_refused_and_made_at_the_next_batch() -> None:
    loads = 0

    def load() -> Call:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise TransformerRefused("cannot be made with its properties: OSError: no such file")
        return lambda message: message

    them = Callers("callers", load, OPTIONS)
    read = batch((A, b"m"))
    with pytest.raises(TransformerRefused, match="no such file"):
        part_of(them, read)
    assert part_of(them, read).rest is None


def test_nothing_begins_once_it_is_given_up() -> None:
    gates, given_up = Gates(), threading.Event()
    them = made_by(gates)
    read = batch((A, b"a0"), (B, b"b1"), (A, b"a2"), (B, b"b3"))
    taking = Returning(lambda: part_of(them, read, given_up.is_set))
    gates.wait_for(b"a0", b"b1")
    given_up.set()
    gates.let(b"a0", b"b1", b"a2", b"b3")
    taking.result()
    eventually(lambda: _threads() == 0, "the callers have ended")
    assert sorted(gates.calls) == [b"a0", b"b1"]
