"""Calls about many topics or partitions: bounded pieces, a bounded number at a time, with progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from bridge.errors import listed
from bridge.kafka.client import metadata, topic_admin
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import topics_named
from bridge.kafka.client.metadata import Cluster, ClusterClient, Offset, Topic
from bridge.kafka.client.pieces import (
    PARTITIONS_AT_ONCE,
    REQUESTS_AT_ONCE,
    TOPICS_AT_ONCE,
    in_pieces,
    pieces,
)
from bridge.kafka.client.topic_admin import NEW_PARTITIONS_AT_ONCE, NEW_TOPICS_AT_ONCE, Failed

LEADER_NOT_AVAILABLE, NOT_LEADER, OFFSET_NOT_AVAILABLE = 5, 6, 78


def topics(count: int) -> list[str]:
    return [f"topic-{number:04}" for number in range(count)]


def test_a_list_of_names_shows_three_and_the_number_of_the_others() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(topics(5_000)) == "topic-0000, topic-0001, topic-0002 and 4,997 more"
    assert topics_named({"b", "a"}) == "topics a, b"
    assert topics_named(["a", "a"]) == "topic a"


def test_pieces_have_all_items_in_order() -> None:
    assert [*pieces(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [*pieces([], 2)] == []


async def test_so_many_pieces_are_asked_for_at_a_time_and_each_shows_how_far_it_is() -> None:
    asked = most = 0
    steps: list[tuple[int, int]] = []

    async def ask(piece: Sequence[int]) -> int:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        await asyncio.sleep(0)
        asked -= 1
        return sum(piece)

    answers = await in_pieces(range(100), 3, ask, lambda done, total: steps.append((done, total)))
    assert sum(answers) == sum(range(100))
    assert len(answers) == 34
    assert most == REQUESTS_AT_ONCE
    assert steps[-1] == (100, 100)


async def test_the_first_error_ends_all_other_requests() -> None:
    ended: list[int] = []

    async def ask(piece: Sequence[int]) -> None:
        if piece == [1]:
            raise ValueError(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.extend(piece)

    with pytest.raises(ValueError, match="1"):
        await in_pieces(range(4), 1, ask)
    assert ended == [0, 2, 3]


# -- a cluster -------------------------------------------------------------------------------------------


class Brokers:
    """Answers the requests of a `ClusterClient`, and keeps them."""

    def __init__(self, errors: Sequence[int] = ()) -> None:
        self.asked: list[tuple[int | None, Any]] = []
        #: Error codes of the partitions that are asked for next.
        self.errors = list(errors)

    async def ask(self, request: Any, broker: int | None) -> Any:
        self.asked.append((broker, request))
        if isinstance(request, metadata._MetadataRequest):
            found: list[Any] = [
                (0, name, 0, 1, False, [(0, 0, 1, 3, [1], [1], [], {})], 0, {})
                for name in request._topics or ()
            ]
            return SimpleNamespace(cluster_id="c", brokers=[(1, "here", 9092, None, {})], topics=found)
        if isinstance(request, metadata._EpochEndRequest):
            return SimpleNamespace(
                topics=[
                    (topic, [(0, one, 3, epoch) for one, _, epoch in asked])
                    for topic, asked in request._asked
                ]
            )
        return SimpleNamespace(
            topics=[
                (topic, [(one, self.errors.pop(0) if self.errors else 0, 0, 7) for one, _time in asked])
                for topic, asked in request._topics
            ]
        )

    def client(self, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
        made = ClusterClient(KafkaConnection("here", "127.0.0.1:1"))
        monkeypatch.setattr(made, "_ask", self.ask)
        return made


async def test_metadata_of_many_topics_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, names, steps = Brokers(), topics(2 * TOPICS_AT_ONCE + 1), []
    found = await brokers.client(monkeypatch).cluster(names, step=lambda *step: steps.append(step))
    assert found.topics.keys() == set(names)
    assert found.addresses == {1: ("here", 9092)}
    assert [len(request._topics) for _, request in brokers.asked] == [TOPICS_AT_ONCE, TOPICS_AT_ONCE, 1]
    assert steps[-1] == (len(names), len(names))


async def test_offsets_of_many_partitions_are_asked_of_each_leader_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    tps = [TopicPartition(name, 0) for name in topics(PARTITIONS_AT_ONCE + 2)]
    leaders = {tp: number % 2 for number, tp in enumerate(tps[:-1])} | {tps[-1]: 0}
    client = brokers.client(monkeypatch)
    assert await client.offsets(leaders, Offset.STABLE) == dict.fromkeys(tps, 7)
    assert {broker for broker, _ in brokers.asked} == {0, 1}
    brokers.asked.clear()
    assert await client.offsets(dict.fromkeys(tps, 1), Offset.HIGH) == dict.fromkeys(tps, 7)
    assert [len(request._topics) for _, request in brokers.asked] == [PARTITIONS_AT_ONCE, 2]


@pytest.mark.parametrize("error", [LEADER_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE])
async def test_a_leader_that_cannot_say_yet_is_asked_again_for_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(metadata, "_LOOK_PAUSE_MS", 0)
    brokers = Brokers([0, error])
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert await brokers.client(monkeypatch).offsets({a: 1, b: 1}, Offset.START) == {a: 7, b: 7}
    assert [request._topics for _, request in brokers.asked] == [
        [("a", [(0, -2)]), ("b", [(0, -2)])],
        [("b", [(0, -2)])],
    ]


async def test_a_partition_that_another_broker_leads_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Brokers([NOT_LEADER]).client(monkeypatch)
    with pytest.raises(for_code(NOT_LEADER)):
        await client.offsets({TopicPartition("a", 0): 1}, Offset.START)


async def test_a_leader_that_never_can_say_is_not_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_LOOK_PAUSE_MS", 0)
    client = Brokers([OFFSET_NOT_AVAILABLE] * 100).client(monkeypatch)
    with pytest.raises(for_code(OFFSET_NOT_AVAILABLE)):
        await client.offsets({TopicPartition("a", 0): 1}, Offset.START)


async def test_epochs_of_many_partitions_are_asked_for_in_one_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    epochs = {TopicPartition("a", 0): 3, TopicPartition("a", 1): 4, TopicPartition("b", 0): 5}
    assert await brokers.client(monkeypatch).epoch_ends(epochs, broker=2) == epochs
    assert [broker for broker, _ in brokers.asked] == [2]


# -- topics ----------------------------------------------------------------------------------------------


class Admin:
    """An admin client of a cluster that makes what it is asked for, but for what `refuses` names."""

    name = "us"

    def __init__(self, refuses: Mapping[str, int] | None = None) -> None:
        self.refuses = dict(refuses or {})
        self.requests: list[list[Any]] = []

    @asynccontextmanager
    async def administering(self) -> AsyncIterator[Any]:
        yield self

    async def create_topics(self, new: list[NewTopic]) -> Any:
        self.requests.append(new)
        return SimpleNamespace(topic_errors=[(one.name, self.refuses.get(one.name, 0), None) for one in new])

    async def describe_configs(self, asked: list[Any]) -> Any:
        self.requests.append(asked)
        return [SimpleNamespace(resources=[(0, "", 2, one.name, [("a", "b", False, 1)]) for one in asked])]


@pytest.mark.parametrize(
    ("partitions", "at_once"), [(1, NEW_TOPICS_AT_ONCE), (100, NEW_PARTITIONS_AT_ONCE // 100), (9_000, 1)]
)
async def test_a_request_for_new_topics_is_bounded_by_topics_and_partitions(
    partitions: int, at_once: int
) -> None:
    admin, steps = Admin(), []
    new = [NewTopic(name, partitions, 1) for name in topics(250)]
    failed = await topic_admin.make(admin, new, lambda *step: steps.append(step))  # type: ignore[arg-type]
    assert failed == {}
    assert [one.name for request in admin.requests for one in request] == topics(250)
    assert max(map(len, admin.requests)) == at_once
    assert steps[-1] == (250, 250)


async def test_a_topic_that_cannot_be_made_leaves_the_others_alone() -> None:
    admin = Admin({"topic-0001": 44, "topic-0002": 36})
    new = [NewTopic(name, 1, 1) for name in topics(3)]
    failed = await topic_admin.make(admin, new)  # type: ignore[arg-type]
    assert failed == {"topic-0001": Failed(44)}  # the third is there already


async def test_configurations_of_many_topics_come_in_pieces() -> None:
    admin, names = Admin(), topics(TOPICS_AT_ONCE + 1)
    found = await topic_admin.describe(admin, names, ("a",))  # type: ignore[arg-type]
    assert found == {name: {"a": ("b", 1)} for name in names}
    assert [len(request) for request in admin.requests] == [TOPICS_AT_ONCE, 1]


class Learning:
    """A `ClusterClient` whose broker learns of some new topics between two questions, in their order."""

    def __init__(self, names: Sequence[str], at_once: int) -> None:
        self.names, self.at_once = names, at_once
        self.known = 0
        self.asked: list[int] = []

    async def cluster(self, topics: Sequence[str]) -> Cluster:
        self.asked.append(len(topics))
        self.known += self.at_once
        led = {0: metadata.Partition(1, 0)}
        known = {*self.names[: self.known]}
        return Cluster("c", (1,), {name: Topic(name, "id", led) for name in topics if name in known})


async def test_new_topics_are_awaited_as_long_as_one_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "LOOK_PAUSE_MS", 0)
    names = topics(2 * TOPICS_AT_ONCE)
    client = Learning(names, at_once=10)  # more looks than without one that comes
    found, missing = await topic_admin.visible(client, dict.fromkeys(names, 1))  # type: ignore[arg-type]
    assert {*found} == {*names}
    assert not missing
    assert max(client.asked) == TOPICS_AT_ONCE
    assert len(client.asked) == len(names) // 10


async def test_topics_that_never_come_are_not_awaited_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "LOOK_PAUSE_MS", 0)
    client = Learning([], at_once=0)
    found, missing = await topic_admin.visible(client, {"a": 1})  # type: ignore[arg-type]
    assert (found, missing) == ({}, {"a"})
    assert len(client.asked) == topic_admin.LOOKS
