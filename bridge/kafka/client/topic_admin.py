"""Topics made, awaited and described: as many as there are, in bounded pieces (`bridge.kafka.client.pieces`).

A controller makes a request's topics all in one step and takes no more than 10,000 changes in one, so a
request for new topics is bounded by their partitions, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import ClusterClient, Topic
from bridge.kafka.client.pieces import TOPICS_AT_ONCE, Step, in_pieces, no_steps, together

#: Most topics, and most partitions of them, that one request makes.
NEW_TOPICS_AT_ONCE: Final = 100
NEW_PARTITIONS_AT_ONCE: Final = 2_000
#: Brokers are asked for new topics after this pause, and no longer than so often without one more that is
#: there; where more topics are made than one request makes, a broker takes seconds for those of each.
LOOK_PAUSE_MS: Final = 100
LOOKS: Final = 50
MOST_LOOKS: Final = 300
_TOPIC_ALREADY_EXISTS: Final = 36
#: INVALID_PARTITIONS: the topic has as many already.
_INVALID_PARTITIONS: Final = 37


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer about one topic that is an error of Kafka's."""

    code: int
    message: str = ""


#: UNKNOWN_TOPIC_OR_PARTITION.
_UNKNOWN: Final = Failed(3)
#: One key of a topic's configuration: its value, and the source of that (DescribeConfigs).
Entry = tuple[str | None, int]


#: The configuration of one topic, by key.
Config = Mapping[str, Entry] | Failed


async def describe(
    connection: KafkaConnection,
    topics: Collection[str],
    keys: Sequence[str],
    step: Step = no_steps,
    *,
    looks: int = 1,
) -> dict[str, Config]:
    """These keys of the configuration of each topic.

    `looks`: how often brokers are asked about topics that were just made, which they may not know yet.

    Raises: KafkaError, OSError, TimeoutError.
    """
    if not topics:
        return {}
    async with connection.administering() as admin:

        async def ask(names: Sequence[str]) -> dict[str, Config]:
            found = await _described(admin, names, keys)
            for _ in range(looks - 1):
                unknown = [name for name, one in found.items() if one == _UNKNOWN]
                if not unknown:
                    break
                await asyncio.sleep(LOOK_PAUSE_MS / 1000)
                found |= await _described(admin, unknown, keys)
            return found

        answers = await in_pieces(topics, TOPICS_AT_ONCE, ask, step)
    return {name: found for answer in answers for name, found in answer.items()}


async def _described(admin: Any, names: Sequence[str], keys: Sequence[str]) -> dict[str, Config]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(keys)) for name in names]
    (answer,) = await admin.describe_configs(asked)
    found: dict[str, Config] = {}
    for code, message, _type, name, entries in answer.resources:
        if code:
            found[name] = Failed(code, "" if code == _UNKNOWN.code else message or "")
        else:
            found[name] = {entry[0]: (entry[1], entry[3]) for entry in entries}
    return found


async def make(
    connection: KafkaConnection, topics: Sequence[NewTopic], step: Step = no_steps
) -> dict[str, Failed]:
    """Make topics, unless they are there; returns those that cannot be made.

    Raises: KafkaError, OSError, TimeoutError.
    """
    failed: dict[str, Failed] = {}
    done = 0
    async with connection.administering() as admin:
        for some in _requests(topics):
            answer = await admin.create_topics(some)
            failed |= {
                name: Failed(code, " ".join(filter(None, message)))
                for name, code, *message in answer.topic_errors
                if code not in (0, _TOPIC_ALREADY_EXISTS)
            }
            done += len(some)
            if len(some) < len(topics):
                step(done, len(topics))
    return failed


async def add_partitions(connection: KafkaConnection, least: Mapping[str, int]) -> dict[str, Failed]:
    """Give topics at least so many partitions; returns those that do not get them.

    Raises: KafkaError, OSError, TimeoutError.
    """

    async def one(admin: Any, name: str, partitions: int) -> Failed | None:
        # The client raises the first error of all topics, and hides the others.
        try:
            await admin.create_partitions({name: NewPartitions(partitions)})
        except BrokerResponseError as error:
            if error.errno == _INVALID_PARTITIONS:  # another lane was faster
                return None
            return Failed(error.errno, ", ".join(map(str, error.args)))
        return None

    async with connection.administering() as admin:
        answers = await together(one(admin, *each) for each in least.items())
    return {name: failed for name, failed in zip(least, answers, strict=True) if failed is not None}


async def visible(
    client: ClusterClient, least: Mapping[str, int], step: Step = no_steps
) -> tuple[dict[str, Topic], set[str]]:
    """The topics once a broker shows so many partitions of each with a leader, and those that it does not.

    It waits as long as one more comes in time. Raises: KafkaError.
    """
    found: dict[str, Topic] = {}
    looks, most = 0, LOOKS if len(least) <= NEW_TOPICS_AT_ONCE else MOST_LOOKS
    while looks < most:
        if looks:
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
        looks += 1
        # Brokers learn of them in their order, so the first of the missing ones are enough to ask for.
        missing = islice((name for name in least if name not in found), TOPICS_AT_ONCE)
        topics = (await client.cluster([*missing])).topics
        more = {name: topic for name, topic in topics.items() if _led(topic) >= least[name]}
        if more:
            found, looks = found | more, 1
            if len(least) > TOPICS_AT_ONCE:
                step(len(found), len(least))
        if len(found) == len(least):
            break
    return found, least.keys() - found.keys()


def _led(topic: Topic) -> int:
    """How many of its partitions have a leader."""
    return sum(one.leader >= 0 for one in topic.partitions.values())


def _requests(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """The topics of each request: as many as one may make."""
    some: list[NewTopic] = []
    partitions = 0
    for topic in topics:
        more = max(topic.num_partitions, 1)
        if some and (len(some) == NEW_TOPICS_AT_ONCE or partitions + more > NEW_PARTITIONS_AT_ONCE):
            yield some
            some, partitions = [], 0
        some.append(topic)
        partitions += more
    if some:
        yield some
