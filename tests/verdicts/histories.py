"""Random histories of `tests.verdicts.world.World`, by seed: every trouble, alone and together. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from dedup.ids import Stamp
from tests.verdicts.messages import Fate, Shape
from tests.verdicts.world import World

#: Producers' IDs: among them what a reader of the log could mistake for its punctuation, and what is no text.
IDS: Final = (
    *(f"order-{n}".encode() for n in range(8)),
    b"],[", b'],[17,"x', b'"],["', b'"', b"\\", b'{"base64":"/w=="}', b'\\{"base64":', b"\xff", b"\x00\x80",
    "grün ☃ 𝄞".encode(), b" ", b"null", b"1,", b",", b"[[", b"]]", b']]"', b"]", b"[",
)  # fmt: skip
#: IDs that begin or look like the end of an entry in a line's list of IDs.
ENTRY_ENDS: Final = (b"],[", b'],[17,"x', b'"],["')
#: Most steps of a history.
STEPS: Final = 24


def history(seed: str, number: int) -> World:
    """History `number` of a seed: the same one at every call, whatever the others are."""
    rng = random.Random(f"{seed}:{number}")
    is_kafka_source = rng.random() < 0.6
    shape = Shape(
        number=number,
        is_kafka_source=is_kafka_source,
        is_kafka_target=rng.random() < 0.4,
        checks_ids=is_kafka_source and rng.random() < 0.6,
        cache=rng.choice([2, 1_000]),
        partitions=rng.choice([1, 1, 2]) if is_kafka_source else 1,
    )
    run = _Run(World(shape), rng)
    run.go()
    return run.world


def forgetful(seed: str, number: int) -> World:
    """A history of few IDs, which its target remembers for two messages: several are accepted twice."""
    rng = random.Random(f"{seed}:forgetful:{number}")
    shape = Shape(
        number=number, is_kafka_source=True, is_kafka_target=rng.random() < 0.5, checks_ids=True, cache=2,
        partitions=1,
    )  # fmt: skip
    world = World(shape)
    few = [rng.choice(ENTRY_ENDS), *rng.sample(IDS, rng.randint(1, 3))]
    for _ in range(rng.randint(1, 3)):
        count = rng.randint(2, 6)
        for _ in range(count):
            world.produce(0, rng.choice([None, *few]))
        world.relay(0, count)
    return world


class _Run:
    """Draws the steps of one history."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self._rng = rng
        self._target_backup = world.target_snapshot()
        self._source_backup = world.source_snapshot()
        self._plans = 0
        #: A stamp that another bridge gave a record, which copies carry on.
        self._shared = Stamp(f"kafka:other:{world.shape.number}:0").text(7).encode()

    def go(self) -> None:
        """All steps. One history in five has nothing wrong with it."""
        rng = self._rng
        usual: list[Callable[[], None]] = [self._produce, self._relay, self._relay, self._hole, self._reopen]
        troubles: list[Callable[[], None]] = [
            self._lose, self._lose_receipt, self._zombie, self._forget, self._expire_source,
            self._expire_target, self._back_up, self._restore_target, self._back_up_source,
            self._restore_source, self._plan, self._force,
        ]  # fmt: skip
        chosen = rng.sample(troubles, rng.choice([0, 2, 4, 6, len(troubles)]))
        for partition in range(self.world.shape.partitions):
            self._produce_at(partition, rng.randint(1, 12))
        for _ in range(rng.randint(4, STEPS)):
            rng.choice([*usual, *chosen, *chosen])()
        if rng.random() < 0.7:
            self._arrive()

    def _partition(self) -> int:
        return self._rng.randrange(self.world.shape.partitions)

    def _produce(self) -> None:
        self._produce_at(self._partition(), self._rng.randint(1, 10))

    def _produce_at(self, partition: int, count: int) -> None:
        rng = self._rng
        kind = rng.choice(["none", "own", "repeated", "shared", "mixed"])
        for _ in range(count):
            this = rng.choice(["none", "own", "repeated", "shared"]) if kind == "mixed" else kind
            if this == "shared" and not self.world.shape.is_kafka_source:
                this = "none"  # who sends to a node sets an ID of its own, or none
            duplicate_id = {
                "none": None,
                "own": f"own-{self.world.shape.number}-{partition}-{rng.getrandbits(48):x}".encode(),
                "repeated": rng.choice(IDS),
                "shared": self._shared,
            }[this]
            self.world.produce(
                partition, duplicate_id, is_stamp=this == "shared", is_refused=rng.random() < 0.03
            )

    def _hole(self) -> None:
        self.world.hole(self._partition(), self._rng.randint(1, 3))

    def _relay(self) -> None:
        rng = self._rng
        cuts = [rng.randint(1, 12) for _ in range(rng.choice([0, 0, 1, 3]))]
        self.world.relay(self._partition(), rng.randint(1, 12), cuts=cuts)

    def _lose(self) -> None:
        rng = self._rng
        count = rng.randint(1, 10)
        self.world.relay(self._partition(), count, lost=rng.sample(range(count), rng.randint(1, count)))

    def _lose_receipt(self) -> None:
        self.world.relay(self._partition(), self._rng.randint(1, 10), receipt=False)

    def _zombie(self) -> None:
        self.world.send_again(self._partition(), self._rng.randint(1, 6))

    def _forget(self) -> None:
        partition = self._partition()
        upto = self.world.next(self.world.current(partition))
        self.world.forget(partition, upto - self._rng.randint(1, 8))

    def _expire_source(self) -> None:
        """A journal only drops what the target has confirmed."""
        partition = self._partition()
        stream = self.world.current(partition)
        reach = stream.end if self.world.shape.is_kafka_source else self.world.next(stream)
        self.world.expire_source(partition, self._rng.randint(stream.first, max(reach, stream.first)))

    def _expire_target(self) -> None:
        partition = self._partition()
        self.world.expire_target(partition, self._rng.randint(0, self.world.target.ends.get(partition, 0)))

    def _reopen(self) -> None:
        self.world.reopen_target()

    def _back_up(self) -> None:
        self._target_backup = self.world.target_snapshot()

    def _restore_target(self) -> None:
        self.world.restore_target(self._target_backup)
        if self._rng.random() < 0.5:
            self._arrive()

    def _back_up_source(self) -> None:
        self._source_backup = self.world.source_snapshot()

    def _restore_source(self) -> None:
        if self.world.can_restore_source(self._source_backup):
            self.world.restore_source(self._source_backup)
            self._source_backup = self.world.source_snapshot()

    def _plan(self) -> None:
        """What is lost, or a part of it, and now and then something that is there."""
        partition = self._partition()
        lost = self.world.lost(partition)
        self._send_plan(partition, [position for position in lost if self._rng.random() < 0.9], force=False)

    def _force(self) -> None:
        if self._rng.random() < 0.3:
            self._send_plan(self._partition(), [], force=True)

    def _send_plan(self, partition: int, positions: list[int], *, force: bool) -> None:
        identity = self.world.current(partition).identity
        there = [
            position
            for (stream, position), truth in self.world.truths().items()
            if stream == identity and truth.fate is Fate.STORED and truth.present
        ]
        positions += self._rng.sample(there, min(len(there), self._rng.choice([0, 0, 1, 3])))
        self._plans += 1
        self.world.plan(partition, positions, f"{self.world.shape.number:x}{self._plans:04x}", force=force)

    def _arrive(self) -> None:
        """Everything that is on its way arrives."""
        for partition in range(self.world.shape.partitions):
            stream = self.world.current(partition)
            while not stream.is_stopped and self.world.next(stream) < stream.end:
                self.world.relay(partition, self._rng.randint(1, 12))
