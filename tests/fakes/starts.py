"""Starts and streams of a Kafka source against a model: what is relayed, and what is named.

`Model` knows the truth: which records there were in each partition, and from where on a bridge owes them.
`Bridge` drives the real source, lane by lane, as relays do, to a `FakeStore`; what that holds, and what
`source-gap` and `SourceGap` name, is compared with the model after every run. The clusters are fakes
(`tests/unit/kafka/source/test_starts_model.py`) or brokers (`tests/kafka/source/test_starts_model.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from structlog.testing import capture_logs

from bridge.errors import SourceGap, SourceUnavailable
from bridge.kafka.records.identity import lane_of
from bridge.kafka.source.source import KafkaSource
from bridge.messages.batch import Batch
from bridge.relay.backoff import Backoff
from bridge.relay.ports import Opened, Receipt, Stream
from bridge.relay.session import Session
from bridge.relay.window import Window
from tests.fakes.ends import FakeStore, FakeTarget

#: A partition of one incarnation of a topic.
Part = tuple[str, str, int]


class Killed(Exception):
    """The process ends here: what was durable is."""


class Idle(Exception):
    """There is nothing to read now."""


@dataclass(slots=True)
class Log:
    """What there is of a partition."""

    start: int = 0
    end: int = 0
    #: No broker leads it now.
    leaderless: bool = False


class Cluster(Protocol):
    """Where the bridge reads."""

    @property
    def logs(self) -> Mapping[Part, Log]:
        """Every partition that there is: name and id of its topic, and number."""

    async def tells_of_a_start(self) -> bool:
        """Whether what is committed in the progress group does."""


@dataclass(slots=True)
class Model:
    """What a bridge owes."""

    start_position: str
    #: Whether something durable says that the bridge has started.
    started: bool = False
    #: Where it begins in partitions that were there at its first start; None: where the log does by then.
    base: dict[Part, int | None] = field(default_factory=dict)
    #: First position that the target does not cover.
    next: dict[Part, int] = field(default_factory=dict)
    #: Positions that were named as gone.
    named: dict[Part, set[int]] = field(default_factory=dict)
    #: Where it began.
    began: dict[Part, int] = field(default_factory=dict)

    def first_start(self, there: Mapping[Part, Log]) -> None:
        self.started = True
        for part, log in there.items():
            begins = log.end if self.start_position == "latest" else log.start
            self.base.setdefault(part, None if log.leaderless else begins)

    def where(self, part: Part, log: Log) -> int:
        """The first position that it owes."""
        if part in self.next:
            return self.next[part]
        base = self.base.get(part, 0 if self.started else None)
        return log.start if base is None else base

    def gaps(self, there: Mapping[Part, Log]) -> dict[Part, tuple[int, int]]:
        """What is owed and gone."""
        found = {part: (self.where(part, log), log.start) for part, log in there.items()}
        return {part: gap for part, gap in found.items() if gap[0] < gap[1]}

    def group_lost(self) -> None:
        """The marks have gone: of what the target does not know, all is owed."""
        self.base.clear()


class _Target(FakeTarget):
    """One that a process can die on."""

    step: Callable[[], None]

    async def open(self, streams: Sequence[Stream]) -> Opened:
        self.step()
        opened = await super().open(streams)
        self.step()
        return opened

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        self.step()
        receipts = await super().deliver(batches)
        self.step()
        return receipts


@dataclass(slots=True)
class Bridge:
    """One bridge, with all its lanes; a lane is a process."""

    cluster: Cluster
    model: Model
    #: Makes the source of a lane: its number, of how many, and the gap policy.
    source: Callable[[int, int, str], KafkaSource]
    clock: Any
    #: Called wherever a process may die.
    step: Callable[[], None] = lambda: None
    name: str = "first"
    previous: str = ""
    lanes: int = 1
    gap_policy: str = "stop"
    store: FakeStore = field(default_factory=FakeStore)
    sessions: dict[int, tuple[Session, KafkaSource, _Target]] = field(default_factory=dict)

    # -- what happens ----------------------------------------------------------------------------------

    async def run(self, lane: int) -> None:
        """Open the lane where it is not and relay all there is; then hold what happened against the model."""
        there = {part: log for part, log in self._mine(lane).items() if not log.leaderless}
        gaps = self.model.gaps(there)
        error: SourceGap | None = None
        with capture_logs() as logs:
            try:
                try:
                    await self._run(lane)
                except SourceGap as raised:
                    error = raised
                    await self.close(lane)
            except Killed:
                await self._observe(opened=True)
                await self.kill()
                self._check(logs)
                return
        await self._observe(opened=True)
        if error is not None:
            assert self.gap_policy == "stop", error
            part = self._part(str(error.key))
            assert gaps.get(part) == (error.found, error.limit), (error.detail, gaps)
            self._check(logs)
            return
        assert not gaps or self.gap_policy == "continue", f"passed over without a word: {gaps}"
        self._check(logs)
        behind = {
            part: (self.model.next.get(part), log) for part, log in there.items()
            if self.model.next.get(part) != log.end
        }  # fmt: skip
        assert not behind, behind

    async def _run(self, lane: int) -> None:
        if lane not in self.sessions:
            self._make(lane)
            await self.sessions[lane][0].connect()
        session, source, target = self.sessions[lane]
        while not self._is_done(lane):
            self.clock.pass_by(10_000)
            try:
                batches = await source.read()
            except Idle:
                return
            except SourceUnavailable:  # as a relay does: opened again
                await target.close()
                await session.connect()
                continue
            if not batches:
                await session.open_new()
            for batch in batches:
                (receipt,) = await target.deliver([batch])
                await source.settled(batch, receipt)

    def _is_done(self, lane: int) -> bool:
        """Whether the target covers all there is, and has the record of the first start."""
        mine = {part[1:]: log.end for part, log in self._mine(lane).items() if not log.leaderless}
        covered = {part: next_ for (part, next_) in self._covered().items() if part in mine}
        return covered == mine and (lane > 0 or bool(self._recorded))

    def _covered(self) -> dict[tuple[str, int], int]:
        """By topic id and number of a partition, what the target covers by whatever name of the bridge."""
        found: dict[tuple[str, int], int] = {}
        for (_, identity), position in self.store.positions.items():
            topic_id, number = identity.split(":")[2:]
            if position.next is not None:
                found[topic_id, int(number)] = max(position.next, found.get((topic_id, int(number)), 0))
        return found

    @property
    def _recorded(self) -> bool:
        return ("start", 0) in self._covered()

    def _make(self, lane: int) -> None:
        source = self.source(lane, self.lanes, self.gap_policy)
        target = _Target(self.store, self.name, self.previous)
        target.step = self.step
        session = Session(
            bridge=self.name,
            source=source,
            target=target,
            clock=self.clock,
            window=Window(-1),
            backoff=Backoff(),
            dead_letters=None,
        )
        self.sessions[lane] = (session, source, target)

    async def close(self, lane: int) -> None:
        _, source, target = self.sessions.pop(lane)
        await source.close()
        await target.close()

    async def stop(self) -> None:
        for lane in list(self.sessions):
            await self.close(lane)

    async def kill(self) -> None:
        """All of its processes: nothing more is committed."""
        for _, source, target in self.sessions.values():
            source._progress.commit = _nothing  # type: ignore[method-assign]
            await source.close()
            target.cut()
        self.sessions.clear()

    async def rename(self) -> None:
        """Stopped, and once: a name before the last is not asked for. The progress group is another too."""
        if not self.previous:
            self.previous, self.name = self.name, "second"
        self.lost_group()

    def lost_group(self) -> None:
        self.model.group_lost()
        self.model.started = self._is_known

    # -- what is seen ----------------------------------------------------------------------------------

    @property
    def _is_known(self) -> bool:
        """Whether the target remembers anything."""
        return any(position.next is not None for position in self.store.positions.values())

    async def _observe(self, *, opened: bool) -> None:
        """Whether it is durable by now that the bridge has started."""
        if self.model.started:
            return
        if opened and await self.cluster.tells_of_a_start():
            self.model.first_start(self.cluster.logs)
        elif self._is_known:
            self.model.first_start({})

    async def forget(self) -> None:
        """Topics have been deleted, and with them what the group had of theirs."""
        gone = (self.model.base.keys() | self.model.next.keys()) - self.cluster.logs.keys()
        for part in gone:
            self.model.base.pop(part, None)
        if not self._is_known and not await self.cluster.tells_of_a_start():
            self.model.started = False

    def _mine(self, lane: int) -> dict[Part, Log]:
        return {
            part: log for part, log in self.cluster.logs.items()
            if lane_of(part[0], part[2], self.lanes) == lane
        }  # fmt: skip

    def _part(self, identity: str) -> Part:
        _, _, topic_id, number = identity.split(":")
        (part,) = [part for part in self.cluster.logs if part[1:] == (topic_id, int(number))]
        return part

    def _check(self, logs: Sequence[MutableMapping[str, Any]]) -> None:
        """That the target covers what it has and what was named, and nothing else."""
        places: dict[tuple[str, int], list[int]] = {}
        for arrived in (one for all_ in self.store.addresses.values() for one in all_):
            topic_id, number = arrived.stream.split(":")[2:]
            places.setdefault((topic_id, int(number)), []).append(arrived.position)
            assert arrived.message.body == body(topic_id, int(number), arrived.position)
        for part, log in self.cluster.logs.items():
            for told in logs:
                if told["event"] == "source-gap" and told["stream"].split(":")[2:] == [part[1], str(part[2])]:
                    self.model.named.setdefault(part, set()).update(range(told["first"], told["end"]))
            self._check_part(part, log, places.get(part[1:], []))

    def _check_part(self, part: Part, log: Log, arrived: Sequence[int]) -> None:
        covered, named = self._covered().get(part[1:]), self.model.named.get(part, set())
        if covered is None:
            assert not arrived
            return
        if part not in self.model.began:
            self.model.began[part] = self.model.where(part, log)
        began = self.model.began[part]
        assert list(arrived) == sorted(set(arrived)), f"{part}: doubled or out of order"
        passed = set(range(began, covered)) - set(arrived)
        assert passed <= named, (
            f"{part}: from {began} on, passed over without a word: {sorted(passed - named)}"
        )
        assert min(arrived, default=began) >= began, f"{part}: relayed {min(arrived)}, begins at {began}"
        assert all(place < log.start for place in named), f"{part}: named {max(named)}, begins {log.start}"
        self.model.next[part] = covered


def body(topic_id: str, number: int, position: int) -> bytes:
    """What a record of the model is."""
    return f"{topic_id}/{number}/{position}".encode()


async def _nothing(marks: object) -> None:
    """In place of a commit."""


@contextlib.contextmanager
def told_of(seed: object, done: Sequence[str]) -> Any:
    """Say what had happened before it failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}: {'; '.join(done)}")
        raise
