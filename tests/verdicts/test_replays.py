"""Random histories, mended by the counting of copies: what is sent, said to be there, and said to be unknown.

Messages of one ID are alike in one run, and in another have bodies of their own: then they are told apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from bridge.replay.copies import ONCE, Due, Judged, Key, Keyed, Tally
from tests.verdicts.histories import history
from tests.verdicts.messages import Fate, Message, Stream, Truth
from tests.verdicts.world import World

HISTORIES: Final = 1_000
HISTORIES_LONG: Final = 50_000
#: Messages that are judged together.
BATCH: Final = 3


class Mending:
    """A plan for each stream of a history, one after the other, and what became of the messages."""

    def __init__(self, world: World, rng: random.Random, *, are_alike: bool) -> None:
        self.world = world
        self._are_alike = are_alike
        self.truths = world.truths()
        self.streams = [world.current(partition) for partition in range(world.shape.partitions)]
        self.keys = {
            (stream.identity, position): self._key(stream, message)
            for stream in self.streams
            for position, message in stream.messages.items()
        }
        #: What the target has, by key: before, and with what is sent.
        self.held = Counter[Key]()
        for at, key in self.keys.items():
            self.held[key] += len(self.truths[at].present)
        self.after = self.held.copy()
        self._due = self._counted()
        self.wanted = {stream.identity: self._wanted(stream, rng) for stream in self.streams}
        self.judged: dict[tuple[str, int], str] = {}
        for stream in self.streams:
            self._mend(stream)

    def _key(self, stream: Stream, message: Message) -> Key:
        """As for a Kafka target."""
        if message.id is None or (self.world.shape.checks_ids and not message.is_stamp):
            return message.carried, None
        # What is alike is refused alike.
        is_alike = self._are_alike and not message.is_refused
        return message.carried, "alike" if is_alike else f"{stream.identity}@{message.position}"

    def _counted(self) -> dict[Key, Due]:
        least, most = Counter[Key](), Counter[Key]()
        is_whole = True
        for stream in self.streams:
            for position, message in stream.messages.items():
                is_whole &= not message.is_gone
                if not message.is_gone:
                    most[self.keys[stream.identity, position]] += 1
                    least[self.keys[stream.identity, position]] += position < self.world.next(stream)
        return {key: Due(least[key], number if is_whole else None) for key, number in most.items()}

    def _wanted(self, stream: Stream, rng: random.Random) -> list[int]:
        """Most of what is lost, and a few that are there, as a plan has that another one has mended."""
        found = []
        for position, message in stream.messages.items():
            truth = self.truths[stream.identity, position]
            chance = 0.9 if truth.fate is Fate.LOST else 0.3 if truth.present else 0
            if not message.is_gone and rng.random() < chance:
                found.append(position)
        return sorted(found)

    def _mend(self, stream: Stream) -> None:
        """Asks the target anew, as each call does, and sends batch by batch."""
        tally, held = Tally(), self.after.copy()
        wanted = self.wanted[stream.identity]
        for start in range(0, len(wanted), BATCH):
            batch: list[Keyed] = [
                (position, self.keys[stream.identity, position]) for position in wanted[start : start + BATCH]
            ]
            judged = tally.judge(batch, held.__getitem__, self.due)
            sent = [one for one in batch if one[0] not in judged.known.union(judged.unknown)]
            tally.stored(key for _, key in sent)
            self.after.update(key for _, key in sent)
            self._note(stream, batch, judged)

    def _note(self, stream: Stream, batch: list[Keyed], judged: Judged) -> None:
        for position, _ in batch:
            said = "known" if position in judged.known else "unknown"
            is_sent = position not in judged.known and position not in judged.unknown
            self.judged[stream.identity, position] = "sent" if is_sent else said

    def due(self, key: Key) -> Due:
        """How often the target should have it."""
        assert isinstance(key, tuple)
        return ONCE if key[1] is None else self._due[key]

    def messages_of(self, key: Key) -> list[Truth]:
        """What is true of the messages of a key."""
        return [self.truths[at] for at, one in self.keys.items() if one == key]


def complaints(done: Mending) -> Iterator[str]:
    """What is not as it should be after all plans."""
    is_whole = not any(truth.is_gone for truth in done.truths.values())
    for (identity, position), said in done.judged.items():
        key = done.keys[identity, position]
        where = f"{identity}@{position} ({said})"
        truths = done.messages_of(key)
        is_once = isinstance(key, tuple) and key[1] is None
        due = 1 if is_once else sum(truth.fate in (Fate.STORED, Fate.LOST) for truth in truths)
        if said == "sent" and done.after[key] > max(due, done.held[key]):
            yield f"{where}: doubled: {done.after[key]} copies of {due}"
        lost = any(truth.fate is Fate.LOST for truth in truths)
        # Less what the target has had, and retention has taken.
        expected = 1 if is_once else sum(truth.fate is Fate.LOST or bool(truth.present) for truth in truths)
        if said == "known" and lost and done.after[key] < expected:
            yield f"{where}: better than the truth: {done.after[key]} copies of {expected}"
        waits = any(truth.fate in (Fate.OPEN, Fate.REFUSED) for truth in truths)
        if said == "unknown" and (is_once or (is_whole and not waits)):
            yield f"{where}: nothing leaves it open"
        if said == "unknown" and not done.held[key]:
            yield f"{where}: there is no copy of it"
        if said == "sent" and not is_once and done.truths[identity, position].present and len(truths) == 1:
            yield f"{where}: it was there"


def check(rng: random.Random, count: int, *, are_alike: bool) -> None:
    seed = str(rng.getrandbits(64))
    told, wrong = Counter[str](), []
    for number in range(count):
        world = history(seed, number)
        done = Mending(world, random.Random(f"{seed}/{number}"), are_alike=are_alike)
        told.update(done.judged.values())
        wrong += [f"history {number}: {one}" for one in complaints(done)]
    print(f"seed {seed}, of {count} histories: {dict(told)}")
    assert not wrong, f"seed {seed}: {len(wrong)} complaints\n" + "\n".join(wrong[:40])
    assert min(told[word] for word in ("sent", "known", "unknown")) > count // 50


@pytest.mark.parametrize("are_alike", [True, False])
def test_plans_lose_and_double_nothing_and_say_what_they_cannot_know(
    are_alike: bool, rng: random.Random
) -> None:
    check(rng, HISTORIES, are_alike=are_alike)


@pytest.mark.spark_long
@pytest.mark.parametrize("are_alike", [True, False])
def test_a_great_many_plans_lose_and_double_nothing(are_alike: bool, rng: random.Random) -> None:
    check(rng, HISTORIES_LONG, are_alike=are_alike)
