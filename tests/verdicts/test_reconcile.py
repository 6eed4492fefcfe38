"""Random histories, judged by reconcile: what its report says is held against what happened.

Hundreds of histories are one report: each has a bridge, streams and stores of its own.
"""

from __future__ import annotations

import base64
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from bridge.messages.stream_names import planned_stream
from dedup.reconcile.job import reconcile
from tests.reconcile.conftest import quick_session
from tests.verdicts.failover import FailoverWorld, failover_history
from tests.verdicts.histories import forgetful, history
from tests.verdicts.judging_failover import FailoverJudge
from tests.verdicts.log_lines import Trouble, write
from tests.verdicts.messages import Fate, Line
from tests.verdicts.world import World

#: Histories that are judged, here and in the long run; and of one report.
HISTORIES: Final = 600
HISTORIES_LONG: Final = 20_000
#: Those of bridges that fail over.
FAILOVERS: Final = 100
FAILOVERS_LONG: Final = 5_000
TOGETHER: Final = 2_000
#: Share of the histories of whose files something is missing.
TROUBLED: Final = 0.4
#: One history in so many has few IDs, and a target that forgets them.
FORGETFUL: Final = 5

Place = tuple[str, int]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield from quick_session()


@dataclass(slots=True)
class Said:
    """What the report says of one history."""

    #: By kind of finding: how often each place was named.
    places: dict[str, Counter[Place]] = field(default_factory=lambda: defaultdict(Counter))
    #: How often each ID was accepted again, as the report shows it.
    repeated: Counter[str] = field(default_factory=Counter)

    @property
    def verdict(self) -> str:
        if self.repeated or self.places["lost"] or self.places["doubled"]:
            return "lost"
        return "unknown" if self.places["unknown"] or self.places["unsent"] else "clean"


def reported(spark: SparkSession, directory: Path) -> Mapping[int, Said]:
    """By history."""
    tables = reconcile(spark, [str(directory)], late_after_ms=-1)
    try:
        rows = tables.findings.where("kind != 'rejected'").collect()
    finally:
        tables.release()
    said = defaultdict[int, Said](Said)
    for row in rows:
        found = said[int(row.address.rpartition("-")[2])]
        if row.id is not None and row.kind == "repeated-id":
            found.repeated[row.id] += 1
        for position in range(row.first, row.last + 1) if row.first is not None else ():
            found.places[row.kind][row.stream, position] += 1
    return said


# -- the truth, and what the lines show of it --------------------------------------------------------------


class Judge:
    """Holds what was said of a history against its truth."""

    def __init__(self, world: World, trouble: Trouble, said: Said) -> None:
        self.world = world
        self.said = said
        self.truths = world.truths()
        self.lines = [line for line in world.lines if trouble.is_visible(line)]
        self.missing = [line for line in world.lines if not trouble.is_visible(line)]
        present = set(world.target.log)
        self.present = [line for line in self.lines if line.side == "received" and line.order in present]

    def complaints(self) -> Iterator[str]:
        """What was said that is not so; nothing where no line shows that the target was put back."""
        now = len(self.world.former)
        if now and not any(line.side == "received" and line.life == now for line in self.lines):
            return
        yield from self._better()
        yield from self._worse()
        if not self.missing and not self.world.former:
            yield from self._not_exact()

    def _better(self) -> Iterator[str]:
        """Losses and doubles that the lines show and the report does not."""
        said = self.said.places
        doubt = said["unknown"]
        for place in sorted(self._sent() - doubt.keys() - said["lost"].keys() - said["open"].keys()):
            if self.truths[place].fate is Fate.LOST:
                yield f"better than the truth: {place} is lost"
        # Lines of plans alone are no flow (docs/reconcile.md).
        flows = {line.stream for line in self.lines}
        for place, times in self._stored(self.present).items():
            if times > 1 and place[0] in flows and place not in doubt.keys() | said["doubled"].keys():
                yield f"better than the truth: {place} is doubled"
        twice = [places for places in self._accepted(self.present).values() if len(set(places)) > 1]
        if twice and not self.said.repeated and not doubt:
            yield f"better than the truth: an ID was accepted at {twice[0]}"

    def _worse(self) -> Iterator[str]:
        said = self.said.places
        unseen = {
            place
            for line in self.missing
            if line.side == "received" and line.verdict is None
            for place in _places(line, line.messages)
        }
        for place in said["lost"]:
            truth = self.truths.get(place)
            is_whole = truth is None or truth.fate not in (Fate.LOST, Fate.OPEN)
            if is_whole and place not in unseen:
                yield f"worse than the truth: {place} is said to be lost, and is {truth}"
        for place in said["doubled"]:
            if self.truths[place].stored < 2:
                yield f"worse than the truth: {place} is said to be doubled, and is {self.truths[place]}"
        most = self._again(line for line in self.world.lines if line.order in self.world.target.log)
        if self.said.repeated - most:
            yield f"worse than the truth: accepted again are {self.said.repeated} of {+most}"

    def _not_exact(self) -> Iterator[str]:
        """Nothing is missing and nothing was put back: nothing is left open but a flow with one side."""
        said = self.said.places
        sides: dict[str, set[str]] = defaultdict(set)
        for line in self.lines:
            if line.verdict is None:
                sides[planned_stream(line.stream) or line.stream].add(line.side)
        again = self._again(self.present)
        if self.said.repeated != again:
            yield f"not exact: accepted again are {self.said.repeated} of {+again}"
        unknown = [place for place in said["unknown"] if len(sides[place[0]]) == 2]
        if unknown:
            yield f"{unknown[:5]} unknown, and nothing leaves them open"
        sent = self._sent()
        lost = {place for place in sent if self.truths[place].fate is Fate.LOST and len(sides[place[0]]) == 2}
        if not lost <= set(said["lost"]) | set(said["open"]):
            yield f"not exact: {sorted(lost - set(said['lost']))[:5]} are lost"
        doubled = {place for place, times in self._stored(self.present).items() if times > 1}
        if doubled != set(said["doubled"]):
            yield f"not exact: {sorted(doubled ^ set(said['doubled']))[:5]} doubled or not"

    def _sent(self) -> set[Place]:
        return {place for line in self.lines if line.side == "sent" for place in _places(line, line.messages)}

    def _stored(self, lines: Collection[Line]) -> Counter[Place]:
        """How often each message was stored, as these lines show."""
        found: Counter[Place] = Counter()
        plain = [line for line in lines if line.verdict is None and planned_stream(line.stream) is None]
        for line in plain:
            found.update(set(_places(line, line.messages)) - set(_places(line, line.known)))
        for line in lines:
            if line.stream.endswith(":force"):
                found.update(_places(line, line.messages))
        return found

    def _again(self, lines: Iterable[Line]) -> Counter[str]:
        """How often each ID was accepted again, by the ID as the report shows it."""
        accepted = self._accepted(lines)
        return Counter({_shown(value): len(set(places)) - 1 for value, places in accepted.items()})

    def _accepted(self, lines: Iterable[Line]) -> Mapping[bytes, list[Place]]:
        """Where each ID that is checked was accepted."""
        found = defaultdict[bytes, list[Place]](list)
        for line in lines:
            is_plan = planned_stream(line.stream) is not None
            is_accepted = line.side == "received" and line.verdict is None and not is_plan
            if is_accepted and not line.unchecked and line.stream.startswith("kafka:"):
                for position, value in line.ids:
                    found[value].append((line.stream, position or 0))
        return found


def _shown(value: bytes) -> str:
    """An ID as a report shows it (docs/reconcile.md)."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(value).decode()}"}}'
    return "\\" + text if re.match(r'\\*\{"base64":', text) else text


def _places(line: Line, positions: Sequence[int]) -> list[Place]:
    stream = planned_stream(line.stream) or line.stream
    return [(stream, position) for position in positions]


# -- tests ---------------------------------------------------------------------------------------------------


def check(spark: SparkSession, rng: random.Random, count: int, failovers: int, directory: Path) -> None:
    """Judge so many histories of bridges with one store, and of bridges that fail over."""
    seed = str(rng.getrandbits(64))
    worlds: list[World | FailoverWorld] = [failover_history(seed, number) for number in range(failovers)]
    number = failovers
    while len(worlds) < count + failovers:
        made = (history if number % FORGETFUL else forgetful)(seed, number)
        # Lines of a Kafka target name no session: whether it was put back they do not tell.
        if not (made.shape.is_kafka_target and made.former):
            worlds.append(made)
        number += 1
    wrong, verdicts = [], Counter[str]()
    for start in range(0, len(worlds), TOGETHER):
        part = worlds[start : start + TOGETHER]
        place = directory / str(start)
        troubles = write(part, place, random.Random(f"{seed}:files:{start}"), troubled=TROUBLED)
        said = reported(spark, place)
        for world in part:
            this = said.get(world.shape.number, Said())
            verdicts[this.verdict] += 1
            trouble = troubles[world.shape.number]
            judge = (
                Judge(world, trouble, this)
                if isinstance(world, World)
                else FailoverJudge(world, trouble.missing, this.places)
            )
            found = judge.complaints()
            wrong += [f"history {world.shape.number}: {one}" for one in found]
    restored = sum(bool(world.former) for world in worlds if isinstance(world, World))
    went = [world for world in worlds if isinstance(world, FailoverWorld)]
    noticed = sum(any(line.verdict == "missing" for line in world.lines) for world in went)
    put_back = sum(any(hub.life for hub in world.hubs) for world in went)
    empty = sum(any(hub.is_gone for hub in world.hubs) for world in went)
    print(f"seed {seed}, of {count} histories, {restored} with a restored target: {dict(verdicts)}")
    print(
        f"and {failovers} with fail-over, of which {put_back} with a store that was put back, which {noticed}"
        f" bridges noticed, {empty} with one that began empty"
    )
    assert not wrong, f"seed {seed}: {len(wrong)} complaints\n" + "\n".join(wrong[:40])
    assert min(verdicts[name] for name in ("clean", "unknown", "lost")) > len(worlds) // 50
    assert restored >= count // 50
    assert noticed >= failovers // 20


def test_a_report_says_nothing_better_or_worse_than_the_truth(
    spark: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    check(spark, rng, HISTORIES, FAILOVERS, tmp_path)


@pytest.mark.spark_long
def test_a_great_many_reports_say_nothing_better_or_worse_than_the_truth(
    spark: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    check(spark, rng, HISTORIES_LONG, FAILOVERS_LONG, tmp_path)
