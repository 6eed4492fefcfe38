from __future__ import annotations

from typing import Any

from bridge.cli.status import describe, describe_bridge

BRIDGE = {"name": "eu-to-us", "state": "FAILED", "source": "eu:orders", "target": "us"}


def lines(**lanes: Any) -> list[str]:
    """What is shown of the lanes of a bridge."""
    given = {"here": [], "members": None, "nobody": None, "trouble": None, **lanes}
    shown = describe({"node": "node-1", "ready": True, "bridges": [{**BRIDGE, "lanes": given}]})
    return [line.removeprefix("lanes eu-to-us ") for line in shown if line.startswith("lanes ")]


def member(name: str, *lanes: int, failed: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"name": name, "host": "10.0.0.7", "lanes": [*lanes], "failed": [*failed]}


def test_a_bridge_without_lanes_has_no_line_of_them() -> None:
    shown = [*describe({"node": "node-1", "ready": True, "bridges": [{**BRIDGE, "lanes": None}]})]
    assert shown == ["node node-1 ready", "bridge eu-to-us FAILED eu:orders -> us "]


def test_what_was_sent_in_vain_is_told_where_there_is_any() -> None:
    bridges = [{**BRIDGE, "sent": 12, "resent": resent} for resent in (0, 60)]
    _, *shown = describe({"bridges": bridges})
    plain = "bridge eu-to-us FAILED eu:orders -> us sent 12"
    assert shown == [plain, f"{plain} resent 60"]


def test_what_limits_a_bridge_on_its_way_to_the_target_is_told() -> None:
    line = {"bytes-per-second": 8_000, "round-trip-ms": 600}
    limits = [("line", 600), ("window", None), ("source", 600), ("target", 600), (None, None)]
    lines = [{**line, "limit": limit, "round-trip-ms": trip} for limit, trip in limits]
    _, *shown = describe({"bridges": [{**BRIDGE, "sent": 12, "line": one} for one in [*lines, None]]})
    plain = "bridge eu-to-us FAILED eu:orders -> us sent 12"
    assert shown == [
        f"{plain} limit line (8000 bytes/s, 600 ms)",
        f"{plain} limit window (8000 bytes/s)",
        *[plain] * 4,
    ]


def test_bytes_before_and_after_compression_are_shown_where_they_differ() -> None:
    way = {"frame-bytes": 4_000_000, "wire-bytes": 320_000}
    link = {"bridge": "till", "node": "edge", "peer": "::1", "user": "till", "since": "now"}
    plain = {"frame-bytes": 90, "wire-bytes": 90}
    status = {
        "bridges": [{**BRIDGE, **way}, {**BRIDGE, **plain}],
        "links": [{**link, **way}, {**link, **plain}],
    }
    _, *shown = describe(status)
    bridge, peer = "bridge eu-to-us FAILED eu:orders -> us ", "link till of edge from ::1 user till since now"
    compressed = " frame-bytes 4000000 wire-bytes 320000 ratio 12.5"
    assert shown == [bridge + compressed, bridge, peer + compressed, peer]


def test_a_bridge_with_a_filter_says_from_the_start_how_many_messages_it_has_passed_over() -> None:
    counted = {"filtered": 0, "not-evaluated": 0}
    bridges = [
        {**BRIDGE, **counted, "filter": None},
        {**BRIDGE, **counted, "filter": "a = 1"},
        {**BRIDGE, "filtered": 7, "not-evaluated": 2, "filter": "a = 1"},
    ]
    _, *shown = describe({"bridges": bridges})
    plain = "bridge eu-to-us FAILED eu:orders -> us "
    assert shown == [plain, f"{plain} filtered 0", f"{plain} filtered 7 not-evaluated 2"]


def test_a_filter_that_is_probably_mistyped_has_a_line_of_its_own() -> None:
    doubt = "the filter took none of 1000 messages"
    _, _, shown = describe({"bridges": [{**BRIDGE, "filter": "a = 1", "filter-doubt": doubt}]})
    assert shown == "filter eu-to-us: the filter took none of 1000 messages"


def test_each_member_is_shown_with_its_lanes_and_what_failed_on_it() -> None:
    members = [member("node-1", 0, failed=(2, 3)), member("node-2", 1, 4), member("node-3")]
    assert lines(here=[0], members=members, nobody=[2, 3]) == [
        "0 node-1 10.0.0.7 (failed there: 2,3)",
        "1,4 node-2 10.0.0.7",
        "none node-3 10.0.0.7",
        "2,3 nobody",
    ]


def test_where_the_group_cannot_be_asked_the_lanes_of_this_node_are_shown() -> None:
    assert lines(here=[0, 1], trouble="TARGET_UNAVAILABLE: timed out") == [
        "0,1 here (of other nodes nothing is known: TARGET_UNAVAILABLE: timed out)"
    ]


def test_where_one_member_has_all_lanes_there_is_nothing_to_say() -> None:
    assert lines(here=[0]) == []
    assert lines(here=[0, 1], members=[member("node-1", 0, 1)], nobody=[]) == []
    alone = [member("node-1", 0, failed=(1,))]
    assert lines(here=[0], members=alone, nobody=[1]) == ["0 node-1 10.0.0.7 (failed there: 1)", "1 nobody"]


def test_a_lag_that_is_not_known_is_said() -> None:
    _, line = describe({"bridges": [{**BRIDGE, "sent": 3, "lag": None}]})
    assert line == "bridge eu-to-us FAILED eu:orders -> us sent 3 lag unknown"


def test_a_bridge_is_shown_with_all_that_it_reads() -> None:
    rows = [
        {"topic": "orders", "partition": 0, "position": 5, "end": 9, "lag": 4, "reason": None},
        {"topic": "orders", "partition": 1, "position": 0, "end": 2, "lag": 2, "reason": "TOO_FEW: add some"},
    ]
    assert [*describe_bridge({**BRIDGE, "lag": 6, "partitions": rows})] == [
        "bridge eu-to-us FAILED eu:orders -> us lag 6",
        "partition orders/0 position 5 end 9 lag 4",
        "partition orders/1 position 0 end 2 lag 2 (TOO_FEW: add some)",
    ]
    address = {"address": "orders", "position": 5, "end": 9, "lag": 4}
    _, line = describe_bridge({**BRIDGE, "addresses": [address]})
    assert line == "address orders position 5 end 9 lag 4"
