"""The traffic is the same at every reading, and the checker notices each fault there can be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from tests.kafka.traffic.checker import HOPS_HEADER, Arrived, Checker, Kind, Report
from tests.kafka.traffic.traffic import ID_HEADER, Fate, Record, Traffic


class Once(Traffic):
    """Traffic whose records are made once: every checker here reads them."""

    def records(self) -> Iterator[Record]:
        return iter(_made(self))


@cache
def _made(traffic: Once) -> tuple[Record, ...]:
    return tuple(Traffic.records(traffic))


TRAFFIC = Once(7, 3_000, partitions=3, repeats=0.1, transaction=20, aborted=0.2, started_ms=1_800_000_000_000)


def stamp(partition: int, number: int) -> str:
    return f"stamp of {partition}/{number}"


def relayed(traffic: Traffic = TRAFFIC, hops: int = 1) -> list[Arrived]:
    """What a faultless bridge makes of the traffic: stamped where there is no ID, with hops."""
    return [*_relayed(traffic, hops)]


@cache
def _relayed(traffic: Traffic, hops: int) -> list[Arrived]:
    arrived = []
    offsets: Counter[int] = Counter()
    for record in traffic.records():
        if record.fate is not Fate.ARRIVES:
            continue
        headers = [*record.headers]
        if record.producer_id is None:
            headers.append((ID_HEADER, stamp(record.partition, record.number).encode()))
        headers.append((HOPS_HEADER, b"8 bytes!" * hops))
        arrived.append(arrived_at(record, offsets[record.partition], headers))
        # Markers take offsets too.
        offsets[record.partition] += 1 + (record.number % 20 == 19)
    return arrived


def arrived_at(record: Record, offset: int, headers: Iterable[tuple[str, bytes | None]]) -> Arrived:
    return Arrived(record.partition, offset, record.value, record.key, tuple(headers), record.timestamp)


def report_of(arrived: Iterable[Arrived], *, preserve_partitions: bool = True, hops: int = 1) -> Report:
    checker = Checker(TRAFFIC, preserve_partitions=preserve_partitions, stamps=stamp, hops=hops)
    for one in arrived:
        checker.take(one)
    return checker.report()


# ---------------------------------------------------------------------------------------------- traffic


def test_traffic_is_the_same_at_every_reading_and_another_with_another_seed() -> None:
    assert list(Traffic.records(TRAFFIC)) == list(TRAFFIC.records())
    assert list(replace(TRAFFIC, seed=8).records()) != list(TRAFFIC.records())


def test_traffic_has_all_that_a_producer_can_send() -> None:
    records = list(TRAFFIC.records())
    assert len(records) == 3_000
    assert {record.fate for record in records} == set(Fate)
    assert {(record.key is None, record.value is None) for record in records} == {
        (False, False), (False, True), (True, False), (True, True),
    }  # fmt: skip
    assert b"" in {record.key for record in records}
    assert b"" in {record.value for record in records}
    assert any(record.producer_id is None for record in records)
    names = [[name for name, _ in record.headers] for record in records]
    assert any(len(one) != len(set(one)) for one in names), "repeated names"
    assert any(one != sorted(one) for one in names)
    assert any(one.count(ID_HEADER) == 2 for one in names)
    assert {None, b""} <= {value for record in records for _, value in record.headers}
    by_partition = [record.timestamp for record in records if record.partition == 1]
    assert by_partition != sorted(by_partition)
    assert len({record.timestamp for record in records}) == 3_000


def test_a_timestamp_says_which_record_it_is() -> None:
    for record in TRAFFIC.records():
        assert TRAFFIC.place(record.timestamp) == (record.partition, record.number)


def test_a_whole_transaction_is_aborted_and_only_delivered_ids_are_repeated() -> None:
    transactions: dict[int, set[bool]] = {}
    delivered: set[tuple[int, bytes]] = set()
    for record in TRAFFIC.records():
        transactions.setdefault(record.transaction, set()).add(record.fate is Fate.ABORTED)
        if record.producer_id is not None and record.fate is not Fate.ABORTED:
            known = (record.partition, record.producer_id) in delivered
            assert known == (record.fate is Fate.REPEATED)
            delivered.add((record.partition, record.producer_id))
    assert set(transactions) == set(range(150))
    assert {len(aborted) for aborted in transactions.values()} == {1}


def test_large_bodies_come_as_often_as_asked() -> None:
    traffic = Traffic(1, 100, large_every=25, large_bytes=5_000)
    assert [len(record.value or b"") for record in traffic.records()].count(5_000) == 4


# ---------------------------------------------------------------------------------------------- checker


def test_a_faultless_relay_has_no_fault() -> None:
    report = report_of(relayed())
    assert report.ok, report
    assert report.read == report.expected == len(relayed()) < 3_000


def test_any_interleaving_of_partitions_is_as_good(rng: random.Random) -> None:
    by_partition = [[one for one in relayed() if one.partition == partition] for partition in range(3)]
    mixed = []
    while any(by_partition):
        mixed.append(rng.choice([some for some in by_partition if some]).pop(0))
    assert report_of(mixed).ok


@pytest.mark.parametrize("position", [0, 700, -1], ids=["first", "middle", "last"])
def test_a_lost_record_is_named(position: int) -> None:
    arrived = relayed()
    partition, number = TRAFFIC.place(arrived.pop(position).timestamp)
    report = report_of(arrived)
    assert report.counts == {Kind.LOST: 1}
    assert str(report.faults[0]) == f"lost: record {number} of source partition {partition}"


def test_a_lost_tail_of_a_partition_is_counted() -> None:
    arrived = relayed()
    tail = [one for one in arrived if one.partition == 2][-30:]
    report = report_of(one for one in arrived if one not in tail)
    assert report.counts == {Kind.LOST: 30}
    assert len(report.faults) == 10


def test_a_doubled_record_is_named_with_both_places() -> None:
    arrived = relayed()
    again = replace(arrived[900], offset=5_000)
    report = report_of([*arrived, again])
    assert report.counts == {Kind.DOUBLED: 1}
    where = f"{again.partition}@5000, first at offset {arrived[900].offset}"
    assert report.faults[0].where == where


def test_two_records_of_a_partition_in_the_wrong_order_are_noticed() -> None:
    arrived = relayed()
    first, second = [index for index, one in enumerate(arrived) if one.partition == 1][100:102]
    arrived[first], arrived[second] = arrived[second], arrived[first]
    report = report_of(arrived)
    assert report.counts == {Kind.OUT_OF_ORDER: 1}
    assert report.faults[0].number == TRAFFIC.place(arrived[second].timestamp)[1]


def test_order_is_asked_of_each_source_partition_where_partitions_may_change() -> None:
    arrived = [replace(one, partition=0) for one in relayed()]
    assert report_of(arrived, preserve_partitions=False).ok
    misplaced = sum(TRAFFIC.place(one.timestamp)[0] != 0 for one in arrived)
    assert report_of(arrived).counts == {Kind.MISPLACED: misplaced}
    mine = [index for index, one in enumerate(arrived) if TRAFFIC.place(one.timestamp)[0] == 2]
    arrived[mine[5]], arrived[mine[6]] = arrived[mine[6]], arrived[mine[5]]
    assert report_of(arrived, preserve_partitions=False).counts == {Kind.OUT_OF_ORDER: 1}


def index_of(arrived: list[Arrived], wanted: Callable[[Arrived], object]) -> int:
    return next(index for index, one in enumerate(arrived) if wanted(one))


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        (lambda one: one.value, lambda one: replace(one, value=one.value + b"\0")),
        (lambda one: one.value is None, lambda one: replace(one, value=b"")),
        (lambda one: one.value == b"", lambda one: replace(one, value=None)),
        (lambda one: one.key is None, lambda one: replace(one, key=b"")),
        (lambda one: one.key == b"", lambda one: replace(one, key=None)),
        (lambda one: one.key, lambda one: replace(one, key=one.key.upper())),
        (lambda one: len(one.headers) > 3, lambda one: replace(one, headers=one.headers[1:])),
        (lambda one: True, lambda one: replace(one, headers=(("more", b""), *one.headers))),
        (
            lambda one: len({*one.headers} - {one.headers[-1]}) > 1 and one.headers[-2][0] != ID_HEADER,
            lambda one: replace(one, headers=tuple(sorted(one.headers, key=repr, reverse=True))),
        ),
        (
            lambda one: any(value is None for _, value in one.headers),
            lambda one: replace(one, headers=tuple((name, value or b"") for name, value in one.headers)),
        ),
    ],
    ids=["body", "tombstone", "empty body", "null key", "empty key", "key", "header gone", "header more",
         "header order", "null header"],
)  # fmt: skip
def test_an_altered_record_is_noticed(
    wanted: Callable[[Arrived], object], change: Callable[[Arrived], Arrived]
) -> None:
    arrived = relayed()
    index = index_of(arrived, lambda one: wanted(one) and change(one) != one)
    arrived[index] = change(arrived[index])
    assert report_of(arrived).counts == {Kind.ALTERED: 1}


def test_a_producers_id_must_stay_in_its_place_byte_for_byte() -> None:
    arrived = relayed()
    index = index_of(
        arrived,
        lambda one: any(
            name == ID_HEADER and (value or b"").startswith(b"7/") for name, value in one.headers
        ),
    )
    headers = [(name, b"mine" if name == ID_HEADER else value) for name, value in arrived[index].headers]
    arrived[index] = replace(arrived[index], headers=tuple(headers))
    assert report_of(arrived).counts == {Kind.ALTERED: 1}


@pytest.mark.parametrize("stamped", [[], [b"another"], [None], [b"right", b"right"]])
def test_a_stamp_that_is_missing_wrong_or_doubled_is_noticed(stamped: list[bytes | None]) -> None:
    arrived = relayed()
    index = index_of(
        arrived,
        lambda one: one.headers[0][0] == ID_HEADER and (one.headers[0][1] or b"").startswith(b"stamp"),
    )
    right = arrived[index].headers[0][1]
    values = [right if value == b"right" else value for value in stamped]
    arrived[index] = replace(
        arrived[index], headers=(*((ID_HEADER, value) for value in values), arrived[index].headers[-1])
    )
    assert report_of(arrived).counts == {Kind.STAMP: 1}


def test_a_stamp_where_nobody_should_stamp_is_noticed() -> None:
    checker = Checker(TRAFFIC, stamps=None)
    arrived = relayed()
    for one in arrived:
        checker.take(one)
    unnamed = sum(record.producer_id is None and record.fate is Fate.ARRIVES for record in TRAFFIC.records())
    assert checker.report().counts == {Kind.STAMP: unnamed}


def test_hops_are_counted() -> None:
    assert report_of(relayed(hops=2), hops=2).ok
    assert report_of(relayed(hops=2)).counts == {Kind.HOPS: len(relayed())}
    arrived = relayed()
    arrived[5] = replace(arrived[5], headers=arrived[5].headers[:-1])
    assert report_of(arrived).counts == {Kind.HOPS: 1}


@pytest.mark.parametrize(("fate", "kind"), [(Fate.ABORTED, Kind.ABORTED), (Fate.REPEATED, Kind.REPEATED)])
def test_a_record_that_must_not_arrive_is_noticed(fate: Fate, kind: Kind) -> None:
    unwanted = next(record for record in TRAFFIC.records() if record.fate is fate)
    report = report_of([*relayed(), arrived_at(unwanted, 9_000, unwanted.headers)])
    assert report.counts == {kind: 1}
    assert (report.faults[0].number, report.faults[0].where) == (
        unwanted.number,
        f"{unwanted.partition}@9000",
    )


@pytest.mark.parametrize("timestamp", [-1, 0, TRAFFIC.timestamp(0, 2_000), 2**62])
def test_a_record_that_nobody_sent_is_noticed(timestamp: int) -> None:
    report = report_of([*relayed(), Arrived(1, 77, b"who", None, (), timestamp)])
    assert report.counts == {Kind.FOREIGN: 1}
    assert report.faults[0].where == "1@77"


def test_faults_of_every_kind_at_once_are_counted_each(rng: random.Random) -> None:
    arrived = relayed()
    lost = {arrived.index(one) for one in rng.sample(arrived, 40)}
    found = [one for index, one in enumerate(arrived) if index not in lost]
    doubled = [replace(one, offset=one.offset + 10_000) for one in rng.sample(found, 25)]
    altered = rng.sample(range(len(found)), 15)
    for index in altered:
        found[index] = replace(found[index], value=b"altered")
    report = report_of([*found, *doubled])
    assert report.counts == {Kind.LOST: 40, Kind.DOUBLED: 25, Kind.ALTERED: 15}
    assert str(report).startswith(f"expected {len(arrived)}, read {len(arrived) - 40 + 25}: ")
