"""The audit: what becomes of records, what is read how far, and what two ends say of each other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from bridge.audit import access
from bridge.cli import main
from dedup.ids import HORNETQ_ID_HEADER, ID_HEADER, Stamp
from dedup.reconcile.audit import bounds, compare, errors, job, missing, node_source, output
from dedup.reconcile.audit.command import run
from dedup.reconcile.audit.plan import (
    Access,
    Place,
    Plan,
    Range,
    Stream,
    letter_ranges,
    source_ranges,
    target_ranges,
)
from dedup.reconcile.audit.records import Record, letter_rows, source_rows, table, target_rows
from dedup.reconcile.audit.resending import replay_plan
from dedup.reconcile.audit.summary import Finding, StreamCounts, Summary
from dedup.reconcile.errors import BadInput
from dedup.replay_plan import Entry, make

ACCESS = Access("nowhere:nothing", "settings.toml", "a")
STREAM = "kafka:cluster:topic:0"
STAMP = Stamp(STREAM)


def stream(number: int = 0, **more: Any) -> Stream:
    given = {"start": 0, "end": 100, "target": "out", **more}
    return Stream(f"kafka:cluster:topic:{number}", "orders", number, **given)


def place(number: int = 0, **more: Any) -> Place:
    return Place(**{"topic": "out", "partition": number, "start": 0, "settled": 100, "end": 100, **more})


def plan(streams: Sequence[Stream], places: Sequence[Place], **more: Any) -> Plan:
    return Plan("a-to-b", ACCESS, ACCESS, tuple(streams), tuple(places), **more)


# -- records -----------------------------------------------------------------------------------------------


def rows_of(headers: Sequence[tuple[str, bytes | None]], *, position: int = 7) -> tuple[Any, ...]:
    """ID and halves of the stamp, of a source record."""
    piece = Range("source", "orders", 0, 0, 100, 0, 0, STREAM)
    ((address, number, at, *rest),) = source_rows(piece, [(position, headers, None)])
    assert (address, number, at) == (0, 0, position)
    return tuple(rest)


def test_a_source_record_may_be_named_by_the_header_of_hornetq() -> None:
    assert rows_of([(HORNETQ_ID_HEADER, b"a")]) == (b"a", None, None)
    assert rows_of([(ID_HEADER, b"a"), (HORNETQ_ID_HEADER, b"a")]) == (b"a", None, None)


def test_a_source_record_without_an_id_must_have_the_stamp_of_its_place() -> None:
    assert rows_of([("trace", b"1")]) == (STAMP.text(7).encode(), STAMP.prefix, 7)


def test_a_producers_id_is_taken_byte_for_byte_and_the_last_of_several_counts() -> None:
    assert rows_of([(ID_HEADER, b"first"), (ID_HEADER, b"\xff\0"), ("trace", b"1")]) == (
        b"\xff\0",
        None,
        None,
    )


def test_an_id_that_another_bridge_stamped_is_carried_on() -> None:
    other = Stamp("journal:1:orders:0")
    assert rows_of([(ID_HEADER, other.text(3).encode())]) == (other.text(3).encode(), other.prefix, 3)


@pytest.mark.parametrize("value", [b"", None])
def test_an_empty_id_is_none_for_the_bridge_refuses_its_record(value: bytes | None) -> None:
    assert rows_of([(ID_HEADER, value)]) == (None, None, None)


def test_an_id_that_a_node_tells_apart_counts_at_the_target() -> None:
    piece = Range("target", "out", 0, 0, 100, 2, 5)
    found = list(
        target_rows(piece, [(1, [], b"order-1"), (2, [(ID_HEADER, b"order-2")], None), (3, [], None)])
    )
    assert found == [
        (2, 5, 1, b"order-1", None, None),
        (2, 5, 2, b"order-2", None, None),
        (2, 5, 3, None, None, None),
    ]


def test_a_dead_letter_says_which_position_was_refused_and_others_letters_do_not_count() -> None:
    def letter(bridge: bytes, stream: bytes, position: bytes) -> Record:
        names = ("core-bridge-bridge", "core-bridge-stream", "core-bridge-position")
        return 0, list(zip(names, (bridge, stream, position), strict=True)), None

    letters = [
        letter(b"a-to-b", b"s1", b"17"),
        letter(b"other", b"s1", b"18"),
        letter(b"a-to-b", b"elsewhere", b"19"),
        letter(b"a-to-b", b"s1", b"-1"),
        (4, [], None),
    ]
    piece = Range("letters", "dead-letters", 0, 0, 100, -1, 0)
    assert list(letter_rows("a-to-b", {b"s1": 3}, piece, letters)) == [(-1, 3, 17, None, None, None)]
    assert len(list(letter_rows("", {b"s1": 3}, piece, letters))) == 2


# -- plan --------------------------------------------------------------------------------------------------


def test_a_partition_is_cut_into_ranges_that_leave_nothing_out() -> None:
    made = plan([stream(0, start=5, end=25), stream(1, end=0)], [place(), place(topic="aside")])
    assert made.addresses == ("aside", "out")
    cut = source_ranges(made, 10)
    assert [(one.start, one.end, one.partition, one.address) for one in cut] == [
        (5, 15, 0, 1),
        (15, 25, 0, 1),
    ]
    assert {one.identity for one in cut} == {STREAM}
    assert [(one.address, one.place, one.identity) for one in target_ranges(made)] == [(1, 0, ""), (0, 1, "")]
    assert letter_ranges(made) == []


# -- a node's pages ----------------------------------------------------------------------------------------


class Pages:
    """An address with messages at these positions, three a page."""

    def __init__(self, positions: Sequence[int]) -> None:
        self._positions = positions

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Pages]:
        yield self

    async def page(self, _address: str, after: int, most: int) -> Sequence[Record]:
        assert most == node_source.PAGE
        return [(position, [], None) for position in self._positions if position > after][:3]


@pytest.mark.parametrize(
    ("positions", "read"), [([3, 9, 10, 11, 19, 20, 21], [10, 11, 19]), ([3], []), ([], [])]
)
async def test_a_range_of_an_address_is_read_page_by_page_to_its_end(
    positions: list[int], read: list[int]
) -> None:
    piece = Range("target", "out", 0, 10, 20, 0, 0)
    pages = [page async for page in node_source.read(Pages(positions), piece)]
    assert [record[0] for page in pages for record in page] == read


# -- comparison --------------------------------------------------------------------------------------------

#: Position and ID; None: none was set.
Records = Mapping[int, bytes | None]


class Ends:
    """Both ends of a plan, compared in Spark."""

    def __init__(self, spark: SparkSession, made: Plan, output: Path) -> None:
        self.spark, self.plan, self.output = spark, made, output

    def judged(
        self,
        source: Mapping[int, Records],
        target: Mapping[int, Records],
        letters: Iterable[tuple[int, int]] = (),
    ) -> Summary:
        """The summary; records by number of stream and place."""
        made = self.plan
        source_pieces = {one.place: one for one in source_ranges(made)}
        target_pieces = {one.place: one for one in target_ranges(made)}
        frames = [
            self._frame(row for number, records in source.items()
                        for row in source_rows(source_pieces[number], _records(records))),
            self._frame(row for number, records in target.items()
                        for row in target_rows(target_pieces[number], _records(records))),
        ]  # fmt: skip
        told = [(-1, number, position, None, None, None) for number, position in letters]
        refused = job.refused(self._frame(told))
        records = compare.beside(*frames).persist()
        try:
            arrived = job.counted(records, checks_ids=made.checks_ids)
            return job.judge(self.spark, made, records, refused, arrived, str(self.output))
        finally:
            records.unpersist()

    def _frame(self, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
        return self.spark.createDataFrame(table(rows))


def _records(records: Records) -> list[Record]:
    return [
        (position, [] if value is None else [(ID_HEADER, value)], None) for position, value in records.items()
    ]


def stamps(number: int, positions: Iterable[int], first: int = 0) -> dict[int, bytes | None]:
    """Target records, from offset `first` on, of these positions of a stream."""
    stamp = Stamp(f"kafka:cluster:topic:{number}")
    return {first + index: stamp.text(position).encode() for index, position in enumerate(positions)}


def plain(positions: Iterable[int]) -> dict[int, bytes | None]:
    """Source records without IDs."""
    return dict.fromkeys(positions)


def said(summary: Summary, kind: str) -> list[tuple[int, int, int]]:
    """Partition, first and last position of each finding of a kind."""
    return [
        (int(one.stream.rpartition(":")[2]), one.first, one.last)
        for one in summary.findings
        if one.kind == kind
    ]


#: Streams 5 to 8: of each the same positions are missing, and for each the target may have an excuse.
EXCUSES = ("whole", "deleted", "compacted", "empty")


@pytest.fixture(scope="module")
def faulty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """Every fault there is, at once: each of them must be found, and nothing else."""
    excused = dict(enumerate(EXCUSES, 5))
    made = plan(
        [
            stream(0, confirmed=18, end=20),
            stream(1, confirmed=100),
            stream(2, confirmed=10, end=10),
            stream(3, confirmed=None, end=10),
            stream(4, confirmed=100, compacted=True),
            *(stream(number, end=10, confirmed=10, target=name) for number, name in excused.items()),
        ],
        [
            *(place(number) for number in range(3)),
            place(3, settled=4),
            place(4),
            place(5, topic="whole"),
            place(6, topic="deleted", start=3),
            place(7, topic="compacted", compacted=True),
            place(8, topic="empty", start=3),
        ],
        preserves_partitions=True,
    )
    # 0: 3, 4 and 5 are lost; 12 was refused; 9 is a marker; 18 and 19 are on their way.
    here = {**plain(range(9)), **plain(range(10, 20))}
    # 1: producers' IDs. One is stored twice; one repeats in the source, which the target must not.
    ids = {number: b"order-%d" % number for number in range(8)} | {8: b"order-2", 9: b"order-7", 10: b""}
    there = {number: b"order-%d" % number for number in range(8)} | {20: b"order-5", 21: b"order-7", 30: None}
    # 2: 6 came before 4 and 5, which a window of five positions does not see together; a copy of 1 comes
    #    behind, which is doubled and not out of order.
    # 3: nothing is confirmed, but what was there at the first look proves that 1 should be.
    # 4: 5 has been taken out of a compacted source.
    source: dict[int, Records] = {
        0: here,
        1: ids,
        2: plain(range(10)),
        3: plain([0, 1, 2, 3, 5, 9]),
        4: plain(range(5)),
    }
    target: dict[int, Records] = {
        0: stamps(0, [0, 1, 2, 6, 7, 8, 10, 11, 13, 14, 15, 16, 17]),
        1: there,
        2: stamps(2, [0, 1, 2, 3, 6, 4, 5, 7, 8, 9, 1]),
        3: stamps(3, [0, 2, 3]) | stamps(3, [9, 4], first=50),
        4: stamps(4, [0, 1, 2, 3, 4, 5]),
    }
    for number, name in excused.items():
        source[number] = plain([1, 4, 5, 6, 7, 8, 9])
        if name != "empty":
            target[number] = stamps(number, [4, 6, 7, 9], first=3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compare, "ORDER_BUCKET", 5)
        return Ends(spark, made, tmp_path_factory.mktemp("audit")).judged(
            source, target, letters=[(0, 12), (1, 10), (0, 3000)]
        )


def test_what_is_below_the_confirmed_position_and_not_there_is_lost(faulty: Summary) -> None:
    assert [one for one in said(faulty, "lost") if one[0] < 3] == [(0, 3, 5)]
    assert faulty.verdict == "lost"


def test_without_a_confirmed_position_the_records_of_the_first_look_prove_what_is_covered(
    faulty: Summary,
) -> None:
    # 5 is missing too, below 9, which came only later: perhaps with a transaction that was seen in part.
    assert [one for one in said(faulty, "lost") if one[0] == 3] == [(3, 1, 1)]
    assert faulty.streams[3].covered == 4
    assert (3, 5, 5) in said(faulty, "open")


def test_what_the_bridge_has_not_confirmed_is_open(faulty: Summary) -> None:
    assert said(faulty, "open") == [(0, 18, 19), (3, 5, 5)]


def test_what_has_a_dead_letter_is_refused(faulty: Summary) -> None:
    assert said(faulty, "refused") == [(0, 12, 12), (1, 10, 10)]


def test_an_id_at_two_places_of_the_target_is_doubled_and_says_where(faulty: Summary) -> None:
    doubled = [one for one in faulty.findings if one.kind == "doubled"]
    assert [(one.first, one.id, one.count, one.detail) for one in doubled] == [
        (5, "order-5", 1, "at out/1@5 and out/1@20"),
        (7, "order-7", 1, "at out/1@7 and out/1@21"),
        (1, Stamp("kafka:cluster:topic:2").text(1), 1, "at out/2@1 and out/2@10"),
    ]


def test_a_target_record_whose_id_no_source_record_has_is_foreign(faulty: Summary) -> None:
    assert said(faulty, "foreign") == [(3, 4, 4)]
    assert [one.detail for one in faulty.findings if one.kind == "foreign"] == ["at out/3@51"]
    # The one without an ID, and the one that has gone from a compacted source.
    assert faulty.others == 2


def test_a_record_behind_a_later_one_is_out_of_order(faulty: Summary) -> None:
    assert said(faulty, "out-of-order") == [(2, 4, 5)]


def test_the_counts_of_a_stream_are_those_of_its_findings(faulty: Summary) -> None:
    first = faulty.streams[0]
    assert (first.source, first.arrived) == (19, 13)
    assert (first.lost, first.refused, first.open) == (3, 1, 2)
    assert faulty.streams[1].doubled == 2
    assert faulty.streams[2].out_of_order == 2
    assert sum(one.lost for one in faulty.streams[:5]) == 4


def test_a_target_that_is_whole_has_no_excuse(faulty: Summary) -> None:
    assert [one for one in said(faulty, "lost") if one[0] == 5] == [(5, 1, 1), (5, 5, 5), (5, 8, 8)]


def test_what_the_target_may_have_deleted_is_unknown_and_what_lies_behind_is_lost(faulty: Summary) -> None:
    assert [one for one in said(faulty, "unknown") if one[0] == 6] == [(6, 1, 1)]
    assert [one for one in said(faulty, "lost") if one[0] == 6] == [(6, 5, 5), (6, 8, 8)]


def test_of_a_compacted_or_emptied_target_nothing_missing_can_be_told(faulty: Summary) -> None:
    assert [one for one in said(faulty, "lost") if one[0] > 6] == []
    assert (faulty.streams[7].unknown, faulty.streams[8].unknown) == (3, 7)
    details = {one.detail for one in faulty.findings if one.kind == "unknown"}
    assert details == {bounds.BY_DELETION, bounds.BY_COMPACTION}


def test_findings_are_a_parquet_table(spark: SparkSession, tmp_path: Path) -> None:
    made = replace(plan([stream(end=3, confirmed=3)], [place()], from_latest=True), checks_ids=False)
    summary = Ends(spark, made, tmp_path).judged(
        {0: {0: None, 1: b"\xff", 2: b"\xff"}}, {0: {7: b"\xff", 9: b"\xff", 11: b"\xff"}}
    )
    # What is below the first record that came is not missed in a bridge that began at the end; two copies
    # of an ID that the source has twice are what an unchecked bridge brings, and the third is one too many.
    assert summary.verdict == "lost"
    (row,) = spark.read.parquet(str(tmp_path / output.FINDINGS)).where("kind = 'doubled'").collect()
    assert (row["id"], row["count"], row["stream"]) == ("base64:/w==", 1, STREAM)
    (row,) = spark.read.parquet(str(tmp_path / output.FINDINGS)).where("kind = 'unknown'").collect()
    assert (row["first"], row["last"], row["detail"]) == (0, 0, bounds.BY_START)
    (one,) = summary.streams
    assert (one.source, one.arrived, one.lost, one.doubled, one.unknown) == (3, 2, 0, 1, 1)


@dataclass(frozen=True, slots=True)
class Case:
    """Ends whose streams and addresses are no other case's: cases with equal flags are one audit."""

    streams: Sequence[Stream]
    places: Sequence[Place]
    #: Records by number of stream and place, counted in the case.
    source: Mapping[int, Records]
    target: Mapping[int, Records]
    #: Of the plan.
    flags: Mapping[str, bool] = field(default_factory=dict)


CARRIED = Stamp("journal:1:orders:0").text(7).encode()
OTHER = Stamp("journal:1:orders:0").text(8).encode()

#: How the ends of a checked ID's records came to be: where the records are at the source and whether the
#: source and the target still have their beginnings, and what is then to be said.
EXPIRED: Sequence[tuple[str, dict[str, Any], dict[str, Any], Records, str]] = (
    ("rejected", {}, {"start": 3}, {0: b"id", 50: b"id"}, "unknown"),
    ("first-gone", {"start": 10}, {"start": 3}, {50: b"id"}, "unknown"),
    ("whole", {}, {}, {0: b"id", 50: b"id"}, "lost"),
    ("whole-target", {"start": 10}, {}, {50: b"id"}, "lost"),
    ("whole-source", {}, {"start": 3}, {50: b"id"}, "lost"),
    ("behind", {}, {"start": 3}, {50: b"id", 60: b"id"}, "lost"),
)
#: The number of the first of their streams.
EXPIRED_AT: Final = 60


def copies(first: int, **flags: bool) -> Case:
    """A producer's ID twice in each of three streams: both copies, one, and none are at the target."""
    names = dict(enumerate(("both", "one", "none"), first))
    return Case(
        [stream(n, end=2, confirmed=2, target=name) for n, name in names.items()],
        [place(n, topic=name) for n, name in names.items()],
        {n: {0: b"again", 1: b"again"} for n in range(3)},
        {0: {0: b"again", 1: b"again"}, 1: {0: b"again"}, 2: {}},
        flags,
    )


def mingled(first: int, **flags: bool) -> Case:
    """0 to 9 have come, 0 to 6 have been deleted; then 2's stamp came from another stream, which expired."""
    return Case(
        [stream(first, end=10, confirmed=10), stream(first + 1, start=5, end=5, confirmed=5)],
        [place(first, start=7)],
        {0: {**plain(range(10)), 2: CARRIED}},
        {0: {7: CARRIED, **stamps(first, range(7, 10), first=8)}},
        flags,
    )


CASES: Final = {
    "lost and deleted": Case(
        [
            stream(10, end=10, confirmed=10),
            stream(11, end=3, confirmed=3, target="deleted"),
            stream(12, end=3, confirmed=3, target="compacted"),
        ],
        [place(10), place(11, topic="deleted", start=3), place(12, topic="compacted", compacted=True)],
        {0: plain(range(10)), 1: plain(range(3)), 2: plain(range(3))},
        {
            0: stamps(10, [0, 1, 4, 5, 7, 8, 9]),
            1: stamps(11, [2], first=3),
            2: stamps(12, [2]),
        },
        {"preserves_partitions": True},
    ),
    # Of 21 something came: it shows how far the bridge is.
    "nothing confirmed": Case(
        [stream(20, end=3), stream(21, end=3)],
        [place(20)],
        {0: plain(range(3)), 1: plain(range(3))},
        {0: stamps(21, [0, 1])},
    ),
    # A stream processor has copied the header; 25 records, 17 of them at the target.
    "one stamp ten times": Case(
        [stream(30, end=25, confirmed=25)],
        [place(30)],
        {0: plain(range(25)) | dict.fromkeys(range(5, 15), CARRIED)},
        {0: stamps(30, [*range(5), *range(15, 25)]) | {20: CARRIED, 21: CARRIED}},
    ),
    "unchecked copies": copies(40, checks_ids=False),
    "checked copies": copies(50),
    # 40 is the first record that the target still has.
    "expired": Case(
        [stream(n, confirmed=100, target=one[0], **one[1]) for n, one in enumerate(EXPIRED, EXPIRED_AT)],
        [place(n, topic=one[0], **one[2]) for n, one in enumerate(EXPIRED, EXPIRED_AT)],
        {n: {**one[3], 40: None} for n, one in enumerate(EXPIRED)},
        {n: stamps(EXPIRED_AT + n, [40], first=3) for n in range(len(EXPIRED))},
    ),
    "shared": Case(
        [stream(70, confirmed=100)],
        [place(70, start=3)],
        {0: {0: CARRIED, 40: None, 50: CARRIED, 60: CARRIED}},
        {0: stamps(70, [40], first=3) | {9: CARRIED}},
    ),
    "on their way": Case(
        [stream(80, confirmed=90)],
        [place(80)],
        {0: {5: CARRIED, 95: CARRIED, 6: OTHER, 96: OTHER}},
        {0: {0: CARRIED}},
    ),
    "of two partitions": Case(
        [stream(90), stream(91)],
        [place(90)],
        {0: {**plain(range(9)), 9: CARRIED}, 1: {0: CARRIED}},
        {0: {0: CARRIED}},
    ),
    "copy of what has expired": Case(
        [stream(100, end=10), stream(101, start=5, end=5, confirmed=5)],
        [place(100)],
        {0: {**plain(range(9)), 9: b"again"}},
        {0: {0: b"again", **stamps(100, [3], first=1)}},
    ),
    "mingled": mingled(110),
    "apart": mingled(120, preserves_partitions=True),
    "too often": Case(
        [stream(n, start=10, confirmed=100, target=name) for n, name in ((130, "a"), (131, "b"))],
        [place(n, topic=name) for n, name in ((130, "a"), (131, "b"))],
        {0: {20: CARRIED}, 1: {20: None, 21: b"id"}},
        {0: {0: CARRIED, 1: CARRIED}, 1: {**stamps(131, [20, 20]), 5: b"id", 6: b"id"}},
    ),
    "brought again": Case(
        [stream(140, end=50, confirmed=50)],
        [place(140, start=30)],
        {0: plain(range(50))},
        {0: stamps(140, [*range(40, 45), 2, *range(45, 50)], first=30)},
    ),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A case in the audit that it is a part of."""

    plan: Plan
    summary: Summary
    findings: DataFrame


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Judged]:
    """All cases, by name: an audit takes seconds, however many streams it has."""
    alike: dict[tuple[tuple[str, bool], ...], list[str]] = {}
    for name, case in CASES.items():
        alike.setdefault(tuple(case.flags.items()), []).append(name)
    return {
        name: one
        for flags, names in alike.items()
        for name, one in _together(spark, names, dict(flags), tmp_path_factory.mktemp("cases"))
    }


def _together(
    spark: SparkSession, names: Sequence[str], flags: Mapping[str, bool], directory: Path
) -> Iterator[tuple[str, Judged]]:
    """One audit of these cases."""
    plans: dict[str, Plan] = {}
    source: dict[int, Records] = {}
    target: dict[int, Records] = {}
    streams: list[Stream] = []
    places: list[Place] = []
    for name in names:
        case = CASES[name]
        source |= {len(streams) + number: records for number, records in case.source.items()}
        target |= {len(places) + number: records for number, records in case.target.items()}
        plans[name] = plan(
            [replace(one, target=f"{name}: {one.target}") for one in case.streams],
            [replace(one, topic=f"{name}: {one.topic}") for one in case.places],
            **flags,
        )
        streams += plans[name].streams
        places += plans[name].places
    assert len({one.identity for one in streams}) == len(streams)
    summary = Ends(spark, plan(streams, places, **flags), directory).judged(source, target)
    findings = spark.read.parquet(str(directory / output.FINDINGS))
    for name, made in plans.items():
        own = {one.identity for one in made.streams}
        part = Summary(
            summary.bridge,
            [one for one in summary.streams if one.stream in own],
            [one for one in summary.findings if one.stream in own],
        )
        yield name, Judged(made, part, findings.where(findings["stream"].isin(*own)))


def test_what_is_lost_is_in_a_replay_plan_and_on_request_what_the_target_has_deleted(
    judged: Mapping[str, Judged],
) -> None:
    """Of a compacted target nothing is sent again: an older value would stand behind the newer one."""
    found = judged["lost and deleted"]
    made = replace(found.plan, store="kafka:there")
    lost = Entry("a-to-b", "kafka:cluster:topic:10", "orders", "a", "kafka:there", ((2, 3), (6, 6)))
    deleted = replace(lost, stream="kafka:cluster:topic:11", positions=((0, 1),))
    assert replay_plan(made, found.findings, with_deleted=False) == make([lost])
    assert replay_plan(made, found.findings, with_deleted=True) == make([lost, deleted])


def test_where_nothing_arrived_and_nothing_is_confirmed_nothing_is_clean(
    judged: Mapping[str, Judged],
) -> None:
    summary = judged["nothing confirmed"].summary
    assert (summary.verdict, said(summary, "open")) == ("unknown", [(20, 0, 2), (21, 2, 2)])
    assert [one.detail for one in summary.findings] == [missing.UNCONFIRMED, ""]
    assert [one.is_unknown for one in summary.streams] == [True, False]


# -- IDs that several records share ------------------------------------------------------------------------


def test_ten_records_of_one_stamp_of_which_two_came_are_eight_lost(judged: Mapping[str, Judged]) -> None:
    summary = judged["one stamp ten times"].summary
    (one,) = summary.streams
    assert (summary.verdict, one.source, one.arrived, one.lost) == ("lost", 25, 17, 8)
    (told,) = summary.findings
    assert (told.kind, told.count, told.id) == ("lost", 8, CARRIED.decode())
    assert told.detail == (
        "the source has the ID 10 times, orders/30@5 to orders/30@14, and the target 2: of which is not known"
    )


def test_a_producers_id_is_counted_where_it_is_not_checked_and_is_once_where_it_is(
    judged: Mapping[str, Judged],
) -> None:
    unchecked = judged["unchecked copies"].summary
    assert [(one.arrived, one.lost, one.doubled) for one in unchecked.streams] == [
        (2, 0, 0), (1, 1, 0), (0, 2, 0),
    ]  # fmt: skip
    checked = judged["checked copies"].summary
    # The second one would have been rejected: one message is lost, not two.
    assert [(one.arrived, one.lost, one.doubled) for one in checked.streams] == [
        (2, 0, 1), (2, 0, 0), (0, 1, 0),
    ]  # fmt: skip
    assert said(checked, "lost") == [(52, 0, 0)]


def test_a_rejected_duplicate_whose_first_copy_has_expired_is_not_lost(judged: Mapping[str, Judged]) -> None:
    """Its first copy may have been at the target; where it cannot have been, it is lost, once."""
    found = {(one.stream, one.kind): one for one in judged["expired"].summary.findings}
    assert len(found) == len(EXPIRED)
    for number, (name, _, _, _, kind) in enumerate(EXPIRED, EXPIRED_AT):
        told = found[f"kafka:cluster:topic:{number}", kind]
        assert (name, told.count, told.id) == (name, 1, "id")
    assert found["kafka:cluster:topic:60", "unknown"].detail.startswith(bounds.BY_DELETION)
    assert found["kafka:cluster:topic:61", "unknown"].detail == missing.BY_EARLIER


def test_of_a_shared_id_only_what_cannot_have_been_deleted_is_lost(judged: Mapping[str, Judged]) -> None:
    """0 may have been at the target. Of 0, 50 and 60 it has one copy: one of the three is lost for sure."""
    (one,) = judged["shared"].summary.streams
    assert (one.arrived, one.lost, one.unknown) == (2, 1, 1)


def test_copies_of_records_that_may_be_on_their_way_are_not_counted_against_those_that_are_due(
    judged: Mapping[str, Judged],
) -> None:
    """5 is covered and 95 is not, and one copy is there: it may be that of either."""
    summary = judged["on their way"].summary
    assert (said(summary, "unknown"), said(summary, "lost"), said(summary, "open")) == (
        [(80, 95, 95)],
        [(80, 6, 6)],
        [(80, 96, 96)],
    )
    (detail,) = [one.detail for one in summary.findings if one.kind == "unknown"]
    assert detail == (
        f"{missing.BY_OTHERS}; the source has the ID 2 times, orders/80@5 to orders/80@95, and the target 1:"
        " of which is not known"
    )


def test_an_id_of_two_partitions_proves_nothing_of_how_far_either_has_come(
    judged: Mapping[str, Judged],
) -> None:
    summary = judged["of two partitions"].summary
    assert [one.covered for one in summary.streams] == [None, None]
    assert said(summary, "lost") == []


def test_a_copy_of_what_the_source_has_no_more_makes_nothing_lost_that_may_be_on_its_way(
    judged: Mapping[str, Judged],
) -> None:
    """Partition 101 had the ID of 100@9, and has expired: its copy is there. Its own stamp proves 100@3."""
    summary = judged["copy of what has expired"].summary
    assert (said(summary, "lost"), said(summary, "unknown")) == ([(100, 0, 2)], [(100, 4, 8)])
    assert {one.detail for one in summary.findings if one.kind == "unknown"} == {missing.BY_PROOF}


# Where partitions are preserved, all that is at place 120 is of partition 120.
@pytest.mark.parametrize(("case", "lost"), [("apart", [(120, 3, 6)]), ("mingled", [])])
def test_a_copy_of_another_partition_says_nothing_of_what_the_target_has_deleted(
    case: str, lost: list[tuple[int, int, int]], judged: Mapping[str, Judged]
) -> None:
    summary = judged[case].summary
    assert said(summary, "lost") == lost
    assert (sum(one.count for one in summary.findings)) == 6


def test_what_the_source_has_no_more_may_have_brought_what_is_there_too_often(
    judged: Mapping[str, Judged],
) -> None:
    """But a stamp of the record's own place, and a checked ID, are doubled."""
    summary = judged["too often"].summary
    assert said(summary, "unknown") == [(130, 20, 20)]
    assert said(summary, "doubled") == [(131, 20, 20), (131, 21, 21)]


def test_what_a_replay_brought_again_says_nothing_of_what_the_target_has_deleted(
    judged: Mapping[str, Judged],
) -> None:
    """10 to 39 have been there and are gone; 2 was lost, and came again behind 44."""
    summary = judged["brought again"].summary
    assert (said(summary, "lost"), said(summary, "unknown")) == ([], [(140, 0, 1), (140, 3, 39)])


# -- summary -----------------------------------------------------------------------------------------------


def counts(**more: int) -> StreamCounts:
    return StreamCounts(STREAM, "orders", 0, "out", 0, 10, 10, 10, 10, **more)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, "clean"),
        ({"out_of_order": 1, "refused": 1, "open": 1}, "clean"),
        ({"unknown": 1}, "unknown"),
        ({"foreign": 1}, "unknown"),
        ({"lost": 1, "unknown": 1}, "lost"),
        ({"doubled": 1}, "lost"),
    ],
)
def test_only_what_is_lost_doubled_or_unknown_spoils_the_verdict(more: dict[str, int], verdict: str) -> None:
    assert Summary("a-to-b", [counts(), counts(**more)]).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"covered": None, "arrived": 0, "open": 10}, "unknown"),
        ({"covered": None, "arrived": 0, "open": 10, "lost": 1}, "lost"),
        # The bridge says that it has not come to them; one came since the first look; all have a dead letter.
        ({"covered": 0, "arrived": 0, "open": 10}, "clean"),
        ({"covered": None, "arrived": 1, "open": 9}, "clean"),
        ({"covered": None, "arrived": 0, "refused": 10}, "clean"),
        ({"covered": None, "arrived": 0, "source": 0}, "clean"),
    ],
)
def test_a_stream_of_which_nothing_is_known_spoils_the_verdict(changes: dict[str, Any], verdict: str) -> None:
    assert Summary("a-to-b", [counts(), replace(counts(), **changes)]).verdict == verdict


def test_without_a_partition_nothing_is_proved() -> None:
    assert Summary("a-to-b", []).verdict == "unknown"


def test_the_text_ends_with_verdict_and_totals_and_shows_findings_by_partition() -> None:
    summary = Summary("a-to-b", [counts(lost=3)], [Finding("lost", STREAM, 17, 19, 3)])
    *_, finding, last = summary.as_text().splitlines()
    assert finding == "lost: orders/0 17..19 (3)"
    assert last.startswith("verdict lost source 10 arrived 10 lost 3 doubled 0 unknown 0 foreign 0 ")
    assert last.endswith(" out-of-order 0 refused 0 open 0")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "name a BRIDGE, or both --source and --target"),
        (["a-to-b", "--source", "a", "orders"], "name a BRIDGE, or both"),
        (["--source", "a", "orders"], "name a BRIDGE, or both"),
        (["a-to-b", "--source", "a", "orders", "--target", "b", "orders"], "name a BRIDGE, or both"),
        (["nobody"], "no bridge nobody; the settings have: a-to-b, from-here"),
        (["from-here"], "from-here reads this node's journal"),
        (["a-to-b"], "a-to-b has use-duplicate-detection = false"),
        (["--source", "x", "orders", "--target", "a", "orders"], "no connector x; the settings have: a, hub"),
        (["--source", "hub", "orders", "--target", "a", "orders"], "hub leads to a node"),
    ],
)
def test_what_cannot_be_audited_ends_with_2_and_says_why_in_a_line(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("""
        [connectors.a]
        url = "kafka://127.0.0.1:1"
        [connectors.hub]
        url = "ws://127.0.0.1:1"
        [[bridges]]
        name = "a-to-b"
        source-connector = "a"
        queue-name = "orders"
        static-connectors = ["hub"]
        use-duplicate-detection = false
        [[bridges]]
        name = "from-here"
        queue-name = "orders"
        static-connectors = ["a"]
    """)
    given = ["--output", str(tmp_path / "out"), "--settings", str(settings)]
    assert main(["audit", *arguments, *given]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert why in told.err
    assert told.err.count("\n") == 1


# -- where it is written -----------------------------------------------------------------------------------

#: Files of an output directory, and which of them is in the way; None: an audit may be written there.
THERE: Sequence[tuple[tuple[str, ...], str | None]] = (
    ((), None),
    (("summary.json", "findings.parquet/part-0.parquet", "findings.parquet/_SUCCESS"), None),
    (("findings.parquet/part-0.parquet",), None),  # it was not finished
    (("summary.json", "replay-plan.json", "findings.parquet/part-0.parquet"), None),
    (("replay-plan.json", "findings.parquet/part-0.parquet"), None),  # it was not finished either
    (("replay-plan.json",), "replay-plan.json"),
    (("audit.md", "summary.json", "findings.parquet/part-0.parquet"), "audit.md"),
    (("findings.parquet/part-0.parquet", "findings/part-0.parquet"), "findings/part-0.parquet"),
    (("findings.parquet",), "findings.parquet"),  # a file of somebody's
    (("summary.json",), "summary.json"),
)


@pytest.mark.parametrize(("there", "found"), THERE)
def test_an_audit_is_written_where_nothing_is_but_an_earlier_one(
    there: Sequence[str], found: str | None, tmp_path: Path
) -> None:
    directory = tmp_path / "out"
    for name in there:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("{}")
    if found is None:
        output.check_place(str(directory))
        return
    with pytest.raises(BadInput) as raised:
        output.check_place(str(directory))
    rule = "must be new, empty or an earlier audit"
    assert str(raised.value) == f"--output {directory}: {rule}; found {found}"


@pytest.mark.parametrize("name", ["docs", "docs/audit.md"])
def test_an_output_that_holds_something_else_is_refused_before_any_cluster_is_asked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "audit.md").write_text("mine")
    settings = tmp_path / "settings.toml"
    settings.write_text('[connectors.a]\nurl = "kafka://127.0.0.1:1"\n')
    ends = ["--source", "a", "orders", "--target", "a", "orders"]
    assert main(["audit", *ends, "--output", str(tmp_path / name), "--settings", str(settings)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"core-bridge: --output {tmp_path / name}: must be "), told.err
    assert told.err.count("\n") == 1
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["audit.md"]


def test_where_only_spark_knows_the_output_it_is_looked_at_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "summary.json").write_text("mine")
    (tmp_path / "mine").write_text("mine")
    output.check_place(str(tmp_path))  # it may be anywhere

    def never(_: Plan) -> Plan:
        raise AssertionError("read")

    with pytest.raises(BadInput, match="found mine"):
        run(plan([stream(end=3)], [place()]), never, master=None, output=str(tmp_path))
    assert (tmp_path / "summary.json").read_text() == "mine"


def test_a_task_that_fails_is_quoted_and_not_the_pages_around_it() -> None:
    raised = "dedup.reconcile.audit.errors.ReadFailed: connector a: gone"
    pages = f"Traceback:\n  File x, line 3\n{raised}\n\n at org.apache"
    assert errors.said(pages) == "connector a: gone"
    assert errors.said("java.lang.OutOfMemoryError") is None


UNUSABLE = """
[connectors.a]
url = "kafka://127.0.0.1:1"
[connectors.a.kafka]
security-protocol = "SSL"
ssl-cafile = "settings.toml"
"""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "settings.toml: must be a file that can be read; found no such file"),
        ("[node]", "settings.toml: no connector of this name"),
        (UNUSABLE, "connectors.a.kafka.ssl-cafile: "),
        ("[node]\nnme = 1\n[nde]", "did you mean name?; "),
    ],
)
def test_settings_that_are_of_no_use_where_a_task_runs_are_said_in_a_line(
    content: str | None, why: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    if content is not None:
        settings.write_text(content)
    with pytest.raises(errors.ReadFailed) as raised:
        access.end(str(settings), "a")
    told = str(raised.value)
    assert told.startswith("connector a: "), told
    assert why in told
    assert "\n" not in told


def test_json_says_the_same_in_kebab_case() -> None:
    summary = Summary(
        "", [counts(out_of_order=1)], [Finding("out-of-order", STREAM, 4, 4, 1, "id", "at out/0")]
    )
    said = json.loads(json.dumps(summary.as_json()))
    assert (said["v"], said["verdict"], said["bridge"]) == (1, "clean", None)
    assert said["streams"][0]["out-of-order"] == 1
    assert said["findings"][0]["detail"] == "at out/0"
