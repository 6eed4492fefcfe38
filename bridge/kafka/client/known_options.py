"""The options of aiokafka's consumer and producer that `[connectors.NAME.kafka]` may set, with their types.

A table of its own, because settings do not import aiokafka; a test holds it against aiokafka's signatures.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.settings.units import is_whole, whole_number

#: A commit is given up after this long, which must come before the request times out (docs/kafka-traps.md 3).
COMMIT_TIMEOUT_MS: Final = 20_000
#: The codecs available: gzip by Python, the others by cramjam.
COMPRESSION_TYPES: Final = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """One option: its allowed values, and the clients that have it."""

    kind: type[int] | type[str] | type[bool]
    #: Whether aiokafka's consumer and its producer have it. An option of both goes to every client.
    consumer: bool = False
    producer: bool = False
    #: Smallest whole number.
    least: int = 1
    #: The only allowed texts; empty: any but the empty one.
    choices: tuple[str, ...] = ()
    #: The reason for `least`.
    why: str = field(default="")

    def check(self, value: Any) -> Any:
        """Returns `value` if the option may have it.

        Raises:
            ValueError: the rule that it breaks.
        """
        if self.kind is int:
            if is_whole(value) and value < self.least and self.why:
                raise ValueError(f"must be at least {self.least}, because {self.why}")
            return whole_number(value, least=self.least)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise ValueError("must be true or false, without quotes")
            return value
        if not isinstance(value, str):
            raise ValueError("must be text in quotes")
        if self.choices and value not in self.choices:
            raise ValueError(f"must be {', '.join(self.choices[:-1])} or {self.choices[-1]}")
        if not value:
            raise ValueError("must not be empty")
        return value


def _both(kind: Any, *, least: int = 1, why: str = "") -> KafkaOption:
    return KafkaOption(kind, consumer=True, producer=True, least=least, why=why)


def _consumer(kind: Any, *, least: int = 1) -> KafkaOption:
    return KafkaOption(kind, consumer=True, least=least)


def _producer(kind: Any, *, least: int = 1, choices: tuple[str, ...] = ()) -> KafkaOption:
    return KafkaOption(kind, producer=True, least=least, choices=choices)


#: The options by their key in the file; aiokafka's name has underscores for hyphens.
KAFKA_OPTIONS: Final[Mapping[str, KafkaOption]] = {
    "client-id": _both(str),
    "connections-max-idle-ms": _both(int),
    "metadata-max-age-ms": _both(int),
    "request-timeout-ms": _both(
        int, least=COMMIT_TIMEOUT_MS + 1_000, why=f"a commit is given up after {COMMIT_TIMEOUT_MS} ms"
    ),
    "retry-backoff-ms": _both(int, least=0),
    "auto-commit-interval-ms": _consumer(int),
    "check-crcs": _consumer(bool),
    "client-rack": _consumer(str),
    "consumer-timeout-ms": _consumer(int),
    "exclude-internal-topics": _consumer(bool),
    "fetch-max-bytes": _consumer(int),
    "fetch-max-wait-ms": _consumer(int, least=0),
    "fetch-min-bytes": _consumer(int),
    "heartbeat-interval-ms": _consumer(int),
    "max-partition-fetch-bytes": _consumer(int),
    "max-poll-interval-ms": _consumer(int),
    "max-poll-records": _consumer(int),
    "rebalance-timeout-ms": _consumer(int),
    "session-timeout-ms": _consumer(int),
    "compression-type": _producer(str, choices=COMPRESSION_TYPES),
    "linger-ms": _producer(int, least=0),
    "max-batch-size": _producer(int),
    "max-request-size": _producer(int),
    "transaction-timeout-ms": _producer(int, least=1_000),
}

#: Options of aiokafka that the bridge sets itself.
OWN_KAFKA_OPTIONS: Final = frozenset(
    {
        "bootstrap-servers",
        "ssl-context",
        "sasl-oauth-token-provider",
        "group-id",
        "isolation-level",
        "enable-auto-commit",
        "auto-offset-reset",
        "transactional-id",
        "enable-idempotence",
        "acks",
        "partitioner",
        "key-serializer",
        "value-serializer",
        "key-deserializer",
        "value-deserializer",
    }
)

#: Options that aiokafka has and no bridge can use, each with the reason.
UNUSABLE_KAFKA_OPTIONS: Final[Mapping[str, str]] = {
    "api-version": "does nothing any more",
    "group-instance-id": "would be the same for every worker, and each would put the other out of the group",
    "sasl-kerberos-domain-name": "belongs to Kerberos, which is not among the mechanisms",
    "sasl-kerberos-service-name": "belongs to Kerberos, which is not among the mechanisms",
}
