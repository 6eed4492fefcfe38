"""The configuration that a topic made at the target gets from its source topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, for_code

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining

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


async def source_configs(connection: KafkaConnection, topic: str) -> Mapping[str, str] | None:
    """The keys of `COPIED` that a topic, or its cluster for all topics, sets; None: they may not be read.

    Raises: SourceUnavailable, SourceRefused.
    """
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(COPIED))
    with explaining(connection.name, "DescribeConfigs", f"topic {topic}"):
        async with connection.administering() as admin:
            (answer,) = await admin.describe_configs([asked])
        ((code, message, _type, _name, entries),) = answer.resources
        if for_code(code) is TopicAuthorizationFailedError:
            return None
        if code:
            raise for_code(code)(message)
    return {
        key: value
        for key, value, _read_only, set_by, *_ in entries
        if set_by != _DEFAULT_CONFIG and value is not None
    }


def copied(configs: Mapping[str, str], replicas: int) -> dict[str, str]:
    """The configuration of a new topic with so many replicas.

    With more required in-sync replicas than it has, nothing could be written to it.
    """
    return {key: value for key, value in configs.items() if key != MIN_IN_SYNC or int(value) <= replicas}
