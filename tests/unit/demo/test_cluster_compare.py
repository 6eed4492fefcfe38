"""What the judge of the cluster's demo finds, without a node."""

from __future__ import annotations

import pytest

from bridge.demo.cluster_compare import ClusterProof, QueueComparison
from bridge.demo.cluster_nodes import backlog_for, waiting
from bridge.demo.cluster_traffic import address_of
from bridge.demo.rows import Row

ROWS = [Row(index, b"row %d" % index, f"id-{index}") for index in range(6)]


def judged(
    *taken: tuple[str, int], senders: str = "aabbaa", expected: str = "012345", heirs: tuple[str, ...] = ()
) -> QueueComparison:
    indices = [int(digit) for digit in expected]
    comparison = QueueComparison("jobs", ROWS, indices, dict(enumerate(senders)), heirs)
    for node, index in taken:
        comparison.take(node, ROWS[index].key, ROWS[index].body)
    return comparison


def test_rows_that_came_once_at_any_node_are_neither_lost_nor_doubled() -> None:
    found = judged(("n1", 0), ("n1", 2), ("n1", 4), ("n2", 1), ("n2", 3), ("n2", 5))
    assert (found.missing, found.doubled, found.out_of_order) == ([], 0, 0)
    assert found.line() == "6 of 6 processed once: 3 at n1, 3 at n2"


def test_a_row_without_a_copy_is_lost_and_one_with_two_is_doubled() -> None:
    found = judged(("n1", 0), ("n2", 0), ("n1", 1), ("n1", 2), ("n1", 3), ("n1", 5))
    assert (found.missing, found.doubled) == ([4], 1)
    assert found.line() == "4 of 6 processed once: 5 at n1, 1 at n2"


def test_a_row_of_another_queue_or_with_another_body_or_key_is_a_double() -> None:
    comparison = judged(expected="01")
    comparison.take("n1", ROWS[2].key, ROWS[2].body)
    comparison.take("n1", b"0", b"other")
    comparison.take("n1", None, b"row 0")
    assert (comparison.missing, comparison.doubled) == ([0, 1], 3)


def test_order_is_that_of_each_client_at_each_node() -> None:
    assert judged(("n1", 4), ("n2", 0), ("n1", 2), ("n1", 3), ("n2", 5), ("n2", 1)).out_of_order == 1
    assert judged(("n1", 2), ("n1", 0), ("n1", 3), ("n1", 1)).out_of_order == 0


def test_a_node_that_has_taken_over_another_one_has_two_orders_in_one() -> None:
    def out_of_order(*indices: int) -> int:
        taken = [("n1", index) for index in indices]
        return judged(*taken, senders="aaaaaa", heirs=("n1",)).out_of_order

    assert out_of_order(3, 0, 4, 1, 2, 5) == 0
    assert out_of_order(0, 3, 2, 4, 5) == 0
    assert out_of_order(5, 3, 1) == 1


def test_half_of_the_rows_are_jobs_whether_they_go_alone_or_in_a_transaction() -> None:
    assert [address_of(index) for index in range(8)] == ["jobs", "jobs", "news", "news"] * 2


@pytest.mark.parametrize("lost", [0, 1])
def test_the_proof_has_the_keys_of_every_demo_and_those_of_a_cluster_before_the_time(lost: int) -> None:
    proof = ClusterProof(
        sent=20, repeated=2, duplicates=2, arrived=20 - lost, lost=lost, doubled=0, out_of_order=0, kills=1,
        cuts=0, seconds=2.0, joined=1, drained=1, processed=30,
    )  # fmt: skip
    assert proof.line("text") == (
        f"sent 20 repeated 2 duplicates 2 arrived {20 - lost} lost {lost} doubled 0 out-of-order 0 kills 1 "
        "cuts 0 joined 1 drained 1 processed 30 seconds 2.0 messages/s 10"
    )
    assert proof.holds is (lost == 0)


def test_what_waits_at_a_node_is_told_by_its_status() -> None:
    status = {
        "bridges": [{"name": "$cluster.b", "lag": 3}, {"name": "other", "lag": 4}],
        "addresses": [{"queues": [{"lag": 5}]}, {"queues": []}],
        "cluster": {
            "nodes": [{"name": "n1", "bridge": None}, {"name": "n2", "bridge": "$cluster.b"}],
        },
    }
    assert (backlog_for(status, "n2"), backlog_for(status, "n1"), backlog_for(status, "n9")) == (3, 0, 0)
    assert waiting(status) == 12
