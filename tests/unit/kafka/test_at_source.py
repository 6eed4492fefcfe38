"""A way is checked against its source where the broker there has skipped markers, and only there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.kafka.cluster.brokers import Cluster
from tests.kafka.exactly_once import at_source, rig
from tests.kafka.exactly_once.at_source import Place, changes_of
from tests.kafka.exactly_once.rig import Way
from tests.kafka.traffic.checker import HOPS_HEADER, Arrived, Kind
from tests.kafka.traffic.traffic import ID_HEADER, Fate, Record, Traffic

TRAFFIC: Final = Traffic(
    7, 600, partitions=3, repeats=0.2, transaction=20, aborted=0.2, started_ms=1_800_000_000_000
)
RECORDS: Final = list(TRAFFIC.records())
#: Of a real broker; the partitions' topic is what counts.
LINE: Final = (
    "02:44:16.382 [TxnMarkerSenderThread-1] INFO"
    " kafka.coordinator.transaction.TransactionMarkerChannelManager - [Transaction Marker Channel Manager 1]:"
    " Couldn't find leader endpoint for partitions Set({topic}-2, {topic}-0, {topic}-1) while trying to send"
    " transaction markers for traffic-orders, these partitions are likely deleted already and hence can be"
    " skipped (kafka.coordinator.transaction.TransactionMarkerChannelManager)\n"
)

#: A way whose source holds these records as committed, and whose target the others.
MakeWay = Callable[[Collection[Place], Iterable[Record]], Way]


class Quiet(Cluster):
    """A cluster that has a log and no broker."""

    def __init__(self, log: Path) -> None:
        self.brokers = [SimpleNamespace(log=log)]  # type: ignore[list-item]

    def create_topic(self, topic: str, *arguments: Any, **options: Any) -> None:
        """Nothing to do."""

    def offsets(self, topic: str, *arguments: Any, **options: Any) -> dict[int, int]:
        """No transaction is open."""
        return {0: 0}


class Counted:
    """As `rig.Arrivals`, with all there already."""

    def __init__(self, count: int) -> None:
        self.count = count

    def await_count(self, count: int, stalled_s: float) -> None:
        """There are so many, or never will be."""
        if self.count < count:
            raise TimeoutError(f"{self.count} of {count} arrived")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "broker.log"
    path.write_text("a broker's other lines\n" + LINE.format(topic="other") + LINE.format(topic="my-orders"))
    return path


@pytest.fixture
def make_way(log: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWay:
    def make(committed: Collection[Place], arriving: Iterable[Record]) -> Way:
        arrived = [*relayed(arriving)]
        offsets = dict.fromkeys(committed, 0)
        for module in (rig, at_source):
            monkeypatch.setattr(module, "offsets_at", lambda *_: offsets)
        monkeypatch.setattr(rig, "stamps_at", lambda *_: stamp)
        monkeypatch.setattr(rig, "read", lambda *_: arrived)
        monkeypatch.setattr(rig, "Arrivals", lambda *_: Counted(len(arrived)))
        way = Way(Quiet(log), Quiet(log), "orders", TRAFFIC)
        way.feed.take(TRAFFIC.count)
        return way

    return make


def stamp(partition: int, number: int) -> str:
    return f"stamp of {partition}/{number}"


def relayed(records: Iterable[Record]) -> Iterable[Arrived]:
    """What a faultless bridge makes of them."""
    offsets: Counter[int] = Counter()
    for one in records:
        own_id = [] if one.producer_id else [(ID_HEADER, stamp(one.partition, one.number).encode())]
        headers = (*one.headers, *own_id, (HOPS_HEADER, b"8 bytes!"))
        yield Arrived(one.partition, offsets[one.partition], one.value, one.key, headers, one.timestamp)
        offsets[one.partition] += 1


def places(records: Iterable[Record]) -> set[Place]:
    return {(one.partition, one.number) for one in records}


def of(fate: Fate) -> list[Record]:
    return [one for one in RECORDS if one.fate is fate]


def transaction_of(fate: Fate) -> list[Record]:
    """The records of the first transaction that has this fate, without IDs that others repeat."""
    number = of(fate)[0].transaction
    return [one for one in RECORDS if one.transaction == number]


REVEALED: Final = transaction_of(Fate.ABORTED)
LOST: Final = transaction_of(Fate.ARRIVES)
COMMITTED: Final = places(RECORDS) - places(of(Fate.ABORTED))


def test_a_revealed_record_must_arrive(make_way: MakeWay, log: Path) -> None:
    log.write_text(LINE.format(topic="orders"))
    committed = COMMITTED | places(REVEALED)
    both = [one for one in RECORDS if one.fate is Fate.ARRIVES or one in REVEALED]
    way = make_way(committed, both)
    way.await_all()
    way.check()
    assert f"{len(REVEALED)} aborted records are committed at the source (partition 0: " in way.note
    assert "0 committed ones are not (none)" in way.note

    way = make_way(committed, [one for one in both if one != REVEALED[3]])
    with pytest.raises(AssertionError, match=f"{len(both) - 1} of {len(both)} arrived"):
        way.await_all()
    assert way.report().counts == {Kind.LOST: 1}
    assert places(REVEALED[3:4]) == {(fault.partition, fault.number) for fault in way.report().faults}


def test_a_lost_record_must_not_arrive(make_way: MakeWay, log: Path) -> None:
    log.write_text(LINE.format(topic="orders"))
    committed = COMMITTED - places(LOST)
    changed = changes_of(TRAFFIC, committed).fates
    left = [one for one in RECORDS if changed.get((one.partition, one.number), one.fate) is Fate.ARRIVES]
    way = make_way(committed, left)
    way.await_all()
    way.check()
    assert f"{len(LOST)} committed ones are not (partition 0: " in way.note

    way = make_way(committed, [LOST[0], *left])
    with pytest.raises(AssertionError, match="KAFKA-20734: 0 aborted records"):
        way.check()
    assert way.report().counts == {Kind.ABORTED: 1}


def test_without_the_line_the_traffic_alone_decides(make_way: MakeWay) -> None:
    """Lines of other topics do not count."""
    revealed = [one for one in RECORDS if one.fate is Fate.ARRIVES or one in REVEALED]
    way = make_way(COMMITTED | places(REVEALED), revealed)
    way.await_all()
    assert way.report().counts == {Kind.ABORTED: len(REVEALED)}
    assert way.note == ""

    left = [one for one in of(Fate.ARRIVES) if one not in LOST]
    way = make_way(COMMITTED - places(LOST), left)
    with pytest.raises(AssertionError, match=f"{len(left)} of {len(of(Fate.ARRIVES))} arrived"):
        way.await_all()
    assert way.report().counts[Kind.LOST] == len(of(Fate.ARRIVES)) - len(left) > 0


def test_with_the_line_and_nothing_changed_all_is_as_it_was_sent(make_way: MakeWay, log: Path) -> None:
    log.write_text(LINE.format(topic="orders"))
    way = make_way(COMMITTED, of(Fate.ARRIVES))
    way.await_all()
    way.check()
    assert way.note == ""


def test_a_repeated_id_arrives_where_its_first_record_is_lost() -> None:
    repeated = of(Fate.REPEATED)[0]
    first = next(one for one in RECORDS if one.producer_id == repeated.producer_id)
    changes = changes_of(TRAFFIC, COMMITTED - places([first]))
    assert changes.fates[first.partition, first.number] is Fate.ABORTED
    assert changes.fates[repeated.partition, repeated.number] is Fate.ARRIVES
    assert (changes.lost, changes.more) == (((first.partition, first.number),), 0)
