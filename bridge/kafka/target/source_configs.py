"""The configuration that topics made at the target get from their source topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from aiokafka.errors import TopicAuthorizationFailedError, for_code

from bridge.kafka.client import topic_admin
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining, topics_named
from bridge.kafka.client.topic_admin import Failed

MIN_IN_SYNC: Final = "min.insync.replicas"
#: The keys that are copied; docs/kafka.md says why the others are not.
COPIED: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "compression.type",
    MIN_IN_SYNC,
)
#: The source of a value that is Kafka's own default: neither the topic nor its cluster has set it.
_DEFAULT_CONFIG: Final = 5


async def source_configs(
    connection: KafkaConnection, topics: Collection[str]
) -> dict[str, Mapping[str, str] | None]:
    """By topic, the keys of `COPIED` that it, or its cluster for all, sets; None: they may not be read.

    Raises: SourceUnavailable, SourceRefused.
    """
    found: dict[str, Mapping[str, str] | None] = {}
    with explaining(connection.name, "DescribeConfigs", topics_named(topics)):
        for topic, answer in (await topic_admin.describe(connection, topics, COPIED)).items():
            if not isinstance(answer, Failed):
                found[topic] = {
                    key: value
                    for key, (value, set_by) in answer.items()
                    if set_by != _DEFAULT_CONFIG and value is not None
                }
            elif for_code(answer.code) is TopicAuthorizationFailedError:
                found[topic] = None
            else:
                raise for_code(answer.code)(answer.message)
    return found


def copied(configs: Mapping[str, str], replicas: int) -> dict[str, str]:
    """The configuration of a new topic with so many replicas.

    With more required in-sync replicas than it has, nothing could be written to it.
    """
    return {key: value for key, value in configs.items() if key != MIN_IN_SYNC or int(value) <= replicas}
