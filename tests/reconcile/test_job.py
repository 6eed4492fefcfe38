"""Scenarios of a reconciliation: one small log a case, all cases in one run, since a run takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from dedup.reconcile import flows
from dedup.reconcile.job import reconcile
from tests.reconcile.conftest import line, write_log

EVENT = 1_700_000_000_000
LATE_AFTER_MS = 60_000
CLIENTS: dict[str, Any] = {"bridge": None}


class Found:
    """What a reconciliation of all cases found."""

    def __init__(self, spark: SparkSession, logs: Path) -> None:
        tables = reconcile(spark, [str(logs)], late_after_ms=LATE_AFTER_MS)
        try:
            self.flows = {(row.bridge, row.stream, row.store): row for row in tables.flows.collect()}
            self.findings = tables.findings.collect()
            self.hours = tables.hours.collect()
            self.latency = {row.stream: row for row in tables.latency.collect()}
            self.id_caches = {row.address: row for row in tables.id_caches.collect()}
        finally:
            tables.release()

    def flow(self, stream: str, *, bridge: str | None = "orders-to-us", store: str = "us/1") -> Row:
        return self.flows[bridge, stream, store]

    def of(self, stream: str) -> dict[str, list[tuple[int | None, int | None]]]:
        """The findings' positions by kind."""
        found: dict[str, list[tuple[int | None, int | None]]] = {}
        for row in self.findings:
            if row.stream == stream:
                found.setdefault(row.kind, []).append((row.first, row.last))
        return {kind: sorted(positions, key=str) for kind, positions in found.items()}


def sent(stream: str, from_: int, upto: int, **changes: Any) -> dict[str, Any]:
    return line("sent", from_, upto, **{"stream": stream, **changes})


def received(stream: str, from_: int, upto: int, **changes: Any) -> dict[str, Any]:
    return line("received", from_, upto, **{"stream": stream, **changes})


SENT = [
    # Cut at other places than the receiver's lines, and a part logged again, cut anew.
    sent("clean", 0, 30), sent("clean", 30, 70), sent("clean", 20, 50), sent("clean", 70, 100),
    sent("lost", 0, 100, runs=[[0, 49], [60, 99]]),
    sent("open", 0, 100), sent("open", 100, 120, events=[EVENT, EVENT]),
    sent("doubled", 0, 100),
    sent("unsent", 0, 100, runs=[[0, 89]]),
    sent("refused", 0, 10, refused=[4], runs=[[0, 3], [5, 9]]),
    sent("gap-here", 0, 10), sent("gap-here", 20, 30),
    sent("gap-there", 0, 30),
    sent("gap-in-both", 0, 10), sent("gap-in-both", 20, 30),
    sent("nobody-received", 0, 10),
    sent("order", 0, 30),
    sent("late", 0, 100), sent("late-by-half", 0, 10, events=[EVENT, EVENT + 90_000]),
    sent("clock", 0, 10, clock_offset=500_000),
    sent("nanos", 0, 10, events=[EVENT, EVENT * 10**6]), sent("nanos", 10, 20),
    sent("coverage", 0, 0), sent("coverage", 0, 10, runs=[]), sent("coverage", 10, 20),
    sent("reach", 0, 100),
    sent("stores", 0, 10, store="us/1"), sent("stores", 10, 20, store="us/2"),
    sent("journal:w:orders:0", 0, 10), sent("journal:w:orders:0", 10, 20, store="us/2"),
    sent("mended", 0, 100), sent("kafka:c:m:0", 0, 10), sent("forced", 0, 10),
]  # fmt: skip
RECEIVED = [
    # Clients' sends to a stream that a bridge reads: up to 20 are sent, 12 of the others are there.
    received("journal:w:orders:0", 0, 10, store="eu/1", committed=EVENT + 1, **CLIENTS),
    received("journal:w:orders:0", 10, 25, store="eu/1", committed=EVENT + 2, runs=[[10, 22]], **CLIENTS),
    received("journal:w:orders:0", 25, 40, store="eu/1", committed=EVENT + 3, runs=[[30, 38]], **CLIENTS),
    received("clean", 0, 50), received("clean", 50, 100),
    # 10 and 11 lost, though in two pieces; 70 to 79 covered and empty at both sides of a line's edge.
    received("lost", 0, 11, runs=[[0, 9]]), received("lost", 11, 75, runs=[[12, 49], [60, 69]]),
    received("lost", 75, 100, runs=[[80, 99]]),
    received("open", 0, 100),
    received("doubled", 0, 100), received("doubled", 40, 50, committed=EVENT + 200),
    received("unsent", 0, 100),
    received("refused", 0, 10, refused=[7], runs=[[0, 3], [5, 6], [8, 9]]),
    received("gap-here", 0, 30),
    received("gap-there", 0, 10), received("gap-there", 25, 30),
    received("gap-in-both", 0, 10), received("gap-in-both", 20, 30),
    received("nobody-sent", 0, 10),
    received("order", 20, 30), received("order", 0, 10, runs=[[0, 4]]), received("order", 10, 20),
    received("late", 0, 100, committed=EVENT + LATE_AFTER_MS + 1),
    received("late-by-half", 0, 10, events=[EVENT, EVENT + 90_000], committed=EVENT + 110_001),
    received("clock", 0, 10, committed=EVENT + 500_100),
    received("nanos", 0, 10, events=[EVENT, EVENT * 10**6], committed=EVENT * 10**6),
    received("nanos", 10, 20, events=[EVENT, EVENT], committed=EVENT + 100),
    received("coverage", 0, 10, runs=[]), received("coverage", 10, 20),
    received("reach", 0, 10), received("reach", 50, 50),
    received("stores", 0, 10, store="us/1"), received("stores", 10, 20, store="us/2"),
    received("mended", 0, 100, runs=[[0, 6], [8, 99]]),
    # A plan covers more than it brings.
    received("mended:replay:0123", 0, 8, runs=[[7, 7]], replays="mended"),
    # The target had lost again what it had confirmed, and knew a part of what the plan names.
    received("kafka:c:m:0", 0, 10, address="replayed", ids=[[3, "m"], [4, "n"]]),
    received("kafka:c:m:0:replay:0123", 3, 6, address="replayed", ids=[[3, "m"]], duplicates=2,
             replays="kafka:c:m:0"),
    received("kafka:c:m:0:replay:0123", 3, 6, address="replayed", verdict="duplicate", duplicates=1, runs=[],
             ids=[[None, "n"]], replays="kafka:c:m:0"),
    received("forced", 0, 10), received("forced:replay:0123:force", 2, 5, replays="forced"),
    # A batch that came again, and IDs.
    received("clean", 0, 50, verdict="duplicate", duplicates=50, committed=EVENT + 300),
    received("kafka:c:t:0", 0, 10, address="checked", duplicates=1,
             ids=[[0, "a"], [1, "b"], [2, {"base64": "gP8="}], [3, "gP8="], [4, 'q"],[5,"']]),
    received("kafka:c:t:0", 0, 10, address="checked", verdict="duplicate", duplicates=1, runs=[],
             ids=[[None, {"base64": "gP8="}]]),
    received("kafka:c:t:1", 0, 10, address="checked", ids=[[3, "b"], [4, "c"]]),
    received("own", 0, 10, address="checked", ids=[[9, "c"]], **CLIENTS),
    # Text that looks like bytes, and text that looks like that.
    received("kafka:c:t:2", 0, 10, address="odd", ids=[
        [0, {"base64": "gP8="}], [1, '{"base64":"gP8="}'], [2, '\\{"base64":"gP8="}'],
        [3, '"],[4,"'], [4, "],[5,"],
    ]),
    received("unchecked", 0, 10, address="checked", ids=[[0, "a"], [1, "a"]]),
    # A transaction of three messages that came again.
    received("carts", 0, 0, address="carts", verdict="duplicate", duplicates=3, runs=[], ids=[[None, "cart"]],
             **CLIENTS),
]  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    logs = tmp_path_factory.mktemp("logs")
    write_log(logs, SENT[:9], node="eu", number=1)
    write_log(logs, SENT[9:], node="eu", number=2)
    write_log(logs, RECEIVED[:5], number=9)
    write_log(logs, [*RECEIVED[5:], '{"v":1,"side":"rec'], number=10, suffix=".jsonl.open")
    # Equal lines in another directory, and another node of the same name.
    write_log(logs / "copies", RECEIVED[:9], number=9)
    write_log(logs / "other", [received("twin", 0, 5, node_id="33333333")], number=9)
    # A flow as small as these is swept in one piece otherwise.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "LINES_PER_RANGE", 1)
        return Found(spark, logs)


def test_equal_positions_at_both_sides_are_clean_however_they_are_cut(found: Found) -> None:
    flow = found.flow("clean")
    assert (flow.sent, flow.received, flow.address, flow.target) == (100, 100, "orders", "orders")
    assert (flow.sent_upto, flow.received_upto, flow.first_ms, flow.last_ms) == (100, 100, EVENT, EVENT)
    assert found.of("clean") == {"rejected": [(0, 49)]}
    assert flow.rejected == 50


def test_what_the_receiver_covered_and_does_not_have_is_lost_in_ranges_as_long_as_can_be(
    found: Found,
) -> None:
    assert found.of("lost") == {"lost": [(10, 11), (70, 79)]}
    assert (found.flow("lost").lost, found.flow("lost").received) == (12, 78)


def test_what_lies_beyond_the_receivers_log_is_open(found: Found) -> None:
    assert found.of("open")["open"] == [(100, 119)]
    assert found.flow("open").open == 20


def test_what_was_stored_twice_is_doubled_and_out_of_order(found: Found) -> None:
    assert found.of("doubled") == {"doubled": [(40, 49)], "out-of-order": [(40, 49)]}
    assert found.flow("doubled").received == 100


def test_what_was_received_and_never_sent_is_unsent(found: Found) -> None:
    assert found.of("unsent") == {"unsent": [(90, 99)]}


def test_what_a_side_refused_is_not_lost(found: Found) -> None:
    assert found.of("refused") == {"refused": [(4, 4), (7, 7)]}


def test_gaps_of_a_log_are_unknown_and_never_lost(found: Found) -> None:
    assert found.of("gap-here") == {"unknown": [(10, 19)]}
    assert found.of("gap-there") == {"unknown": [(10, 24)]}
    assert found.of("gap-in-both") == {"unknown": [(10, 19)]}
    assert found.flow("gap-in-both").unknown == 10


def test_without_the_other_side_all_is_unknown(found: Found) -> None:
    assert found.of("nobody-received") == {"unknown": [(0, 9)]}
    assert found.of("nobody-sent") == {"unknown": [(0, 9)]}
    assert found.flow("nobody-received").received_upto is None


def test_lines_behind_one_that_reaches_further_are_out_of_order(found: Found) -> None:
    assert found.of("order") == {"out-of-order": [(0, 4), (10, 19)], "lost": [(5, 9)]}


def test_what_took_too_long_is_late_and_no_more_than_that(found: Found) -> None:
    assert found.of("late") == {"late": [(0, 99)]}
    assert found.of("late-by-half") == {"late": [(0, 5)]}


def test_an_open_message_is_late_by_the_latest_time_in_the_logs(found: Found) -> None:
    assert found.of("open")["late"] == [(100, 119)]


def test_a_time_in_nanoseconds_costs_its_line_the_delivery_time_and_nothing_else(found: Found) -> None:
    flow = found.flow("nanos")
    assert (flow.sent, flow.received, flow.lost, flow.unknown, flow.late) == (20, 20, 0, 0, 0)
    assert found.latency["nanos"]["count"] == 10


def test_times_are_told_by_one_clock(found: Found) -> None:
    assert found.of("clock") == {}
    assert found.latency["clock"].max_ms == 100


def test_coverage_without_messages_is_nobodys_loss(found: Found) -> None:
    assert found.of("coverage") == {}
    assert found.flow("coverage").sent == 10


def test_an_empty_line_says_how_far_a_log_reaches(found: Found) -> None:
    assert found.of("reach")["unknown"] == [(10, 49)]
    assert found.of("reach")["open"] == [(50, 99)]


def test_each_incarnation_of_a_target_is_compared_by_itself(found: Found) -> None:
    assert [found.flow("stores", store=store).sent for store in ("us/1", "us/2")] == [10, 10]
    assert found.of("stores") == {}


def test_what_a_replay_plan_brought_is_not_lost_any_more(found: Found) -> None:
    assert found.of("mended") == {}
    assert (found.flow("mended").sent, found.flow("mended").received) == (100, 100)


def test_what_a_replay_plan_asked_for_is_no_double(found: Found) -> None:
    assert found.of("kafka:c:m:0") == {}
    assert found.flow("kafka:c:m:0").received == 10
    assert not any(row.id in {"m", "n"} for row in found.findings)


def test_what_a_forced_plan_sent_again_is_doubled(found: Found) -> None:
    assert found.of("forced") == {"doubled": [(2, 4)]}
    assert found.flow("forced").received == 10


def test_a_replay_plan_has_no_row_of_its_own(found: Found) -> None:
    streams = {stream for _, stream, _ in found.flows} | {row.stream for row in found.findings}
    assert not any(":replay:" in stream for stream in (*streams, *found.latency))


def test_clients_sends_are_compared_with_nothing(found: Found) -> None:
    flow = found.flow("own", bridge=None)
    assert (flow.sent, flow.received, flow.unknown, flow.unsent) == (0, 10, 0, 0)


def test_what_clients_sent_beyond_the_sent_lines_waits_since_the_first_of_it(found: Found) -> None:
    """For the store that was reached last; other flows, and other bridges of the stream, have their own."""
    waiting = {key: (row.waiting, row.waiting_since_ms) for key, row in found.flows.items() if row.waiting}
    assert waiting == {("orders-to-us", "journal:w:orders:0", "us/2"): (12, EVENT + 2)}
    assert found.flow("journal:w:orders:0", store="us/2").sent_ms == EVENT + 100
    assert found.flow("clean").waiting_since_ms is None


def test_a_producers_id_at_two_places_of_one_address_is_doubled(found: Found) -> None:
    again = {(row.id, row.stream, row.first) for row in found.findings if row.kind == "repeated-id"}
    assert again == {("b", "kafka:c:t:1", 3), ("c", "own", 9)}
    assert [found.flow("kafka:c:t:1").doubled, found.flow("own", bridge=None).doubled] == [1, 1]


def test_rejected_ids_are_named_and_bytes_are_no_text(found: Found) -> None:
    rejected = {
        (row.id, row["count"])
        for row in found.findings
        if row.kind == "rejected" and row.stream == "kafka:c:t:0"
    }
    # Its batch's line counts it too.
    assert rejected == {('{"base64":"gP8="}', 1)}
    assert found.flow("kafka:c:t:0").rejected == 1


def test_the_id_of_a_rejected_transaction_stands_for_its_messages(found: Found) -> None:
    rejected = [(row["id"], row["count"]) for row in found.findings if row.stream == "carts"]
    assert rejected == [("cart", 3)]
    assert found.flow("carts", bridge=None).rejected == 3


def test_an_id_cache_must_reach_back_to_the_first_copy(found: Found) -> None:
    # Accepted, in log order: a b <gP8=> "gP8=" q | b c | c. From the first b to the second are 4 others.
    cache = found.id_caches["checked"]
    assert (cache.accepted, cache.repeated, cache.needed) == (8, 3, 4)


def test_ids_that_look_alike_are_not_alike(found: Found) -> None:
    cache = found.id_caches["odd"]
    assert (cache.accepted, cache.repeated, cache.needed) == (5, 0, 0)


def test_what_a_replay_plan_brought_counts_in_its_hour(found: Found) -> None:
    hours = [(row.stream, row.sent, row.received) for row in found.hours if "mended" in row.stream]
    assert hours == [("mended", 100, 100)]


def test_hours_and_percentiles_count_messages(found: Found) -> None:
    hours = [row for row in found.hours if row.stream == "lost"]
    assert [(row.hour_ms, row.sent, row.received) for row in hours] == [(EVENT - EVENT % 3_600_000, 90, 78)]
    latency = found.latency["doubled"]
    assert (latency["count"], latency.p50_ms, latency.p999_ms, latency.max_ms) == (110, 100, 200, 200)
