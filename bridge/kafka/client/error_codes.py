"""Kafka's error codes as far as a bridge distinguishes them, and those that aiokafka has no class for.

The codes, and which of them Kafka's own clients retry, are those of
``org.apache.kafka.common.protocol.Errors`` (4.3). What is not named here passes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka import errors

#: The names of operations in Kafka's ACLs.
ACL_OPERATIONS: Final = frozenset(
    {
        "Read",
        "Write",
        "Create",
        "Delete",
        "Alter",
        "Describe",
        "ClusterAction",
        "DescribeConfigs",
        "AlterConfigs",
        "IdempotentWrite",
    }
)

#: Missing rights: the kind of resource, and what is needed on it where the caller does not say.
AUTHORIZATION: Final[Mapping[int | None, tuple[str, str]]] = {
    29: ("topic", "Describe"),
    30: ("group", "Read"),
    31: ("cluster", "Create"),
    53: ("transactional id", "Write"),
}

#: The setting that mends an error, by code.
HINTS: Final[Mapping[int, str]] = {
    3: "there is no such topic: make it, or let the bridge make it (create-topics = true)",
    10: "see max.message.bytes of the topic",
    17: "no topic can be called so: see queue-name, forwarding-address, journal-topic",
    18: "see max.message.bytes and segment.bytes of the topic",
    19: "see min.insync.replicas of the topic, and which brokers are down",
    20: "see min.insync.replicas of the topic, and which brokers are down",
    23: "consumers of another kind are in the group: see group-id",
    24: "see group-id",
    26: "see session-timeout-ms, and the broker's group.min and group.max.session.timeout.ms",
    32: "see message.timestamp.after.max.ms and message.timestamp.before.max.ms of the topic",
    33: "see sasl-mechanism",
    34: "the listener does no SASL: see security-protocol, and the port in the URL",
    35: "core bridge needs Kafka 2.8 or later",
    37: "see add-partitions: a topic never gets fewer partitions",
    38: "see topic-replication-factor and journal-replication-factor: not more than there are brokers",
    44: "the cluster's policy forbids it: make the topic by hand, or see topic-replication-factor",
    50: "see transaction-timeout-ms: not above the broker's transaction.max.timeout.ms",
    54: "the cluster has no authorizer",
    58: "see sasl-mechanism, sasl-plain-username and sasl-plain-password",
    76: "see compression-type",
    81: "see the broker's group.max.size, and how many workers there are",
    87: "the broker does not take such records there: a compacted topic needs keys",
    89: "the cluster's quota is used up; tried again",
}

#: Errors of a record that the broker will never take. It refuses the whole record batch.
RECORD_ERRORS: Final[Mapping[int, str]] = {
    10: "MESSAGE_TOO_LARGE",
    18: "RECORD_LIST_TOO_LARGE",
    32: "INVALID_TIMESTAMP",
    87: "INVALID_RECORD",
}

#: Errors that do not pass by themselves: rights, credentials, versions, settings, and unstorable records.
FOR_GOOD: Final = frozenset(
    {
        10,  # MESSAGE_TOO_LARGE
        12,  # OFFSET_METADATA_TOO_LARGE
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE
        21,  # INVALID_REQUIRED_ACKS
        23,  # INCONSISTENT_GROUP_PROTOCOL
        24,  # INVALID_GROUP_ID
        26,  # INVALID_SESSION_TIMEOUT
        28,  # INVALID_COMMIT_OFFSET_SIZE
        29,  # TOPIC_AUTHORIZATION_FAILED
        30,  # GROUP_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        32,  # INVALID_TIMESTAMP
        33,  # UNSUPPORTED_SASL_MECHANISM
        34,  # ILLEGAL_SASL_STATE
        35,  # UNSUPPORTED_VERSION
        37,  # INVALID_PARTITIONS
        38,  # INVALID_REPLICATION_FACTOR
        39,  # INVALID_REPLICA_ASSIGNMENT
        40,  # INVALID_CONFIG
        42,  # INVALID_REQUEST
        43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        44,  # POLICY_VIOLATION
        50,  # INVALID_TRANSACTION_TIMEOUT
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        54,  # SECURITY_DISABLED
        58,  # SASL_AUTHENTICATION_FAILED
        73,  # TOPIC_DELETION_DISABLED
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        82,  # FENCED_INSTANCE_ID
        87,  # INVALID_RECORD
    }
)

#: Errors of fencing: another producer has the transactional id, or the broker timed out the transaction.
FENCED: Final = frozenset({47, 90})

#: aiokafka's text for a code that it does not know.
UNKNOWN_CODE: Final = "an error code that the client library does not know"

#: Codes that a bridge may meet and aiokafka maps to `UnknownError`: name, whether Kafka's clients retry it,
#: whether they ask for the metadata again first.
_UNMAPPED: Final[Mapping[int, tuple[str, bool, bool]]] = {
    73: ("TOPIC_DELETION_DISABLED", False, False),
    74: ("FENCED_LEADER_EPOCH", True, True),
    75: ("UNKNOWN_LEADER_EPOCH", True, False),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", False, False),
    77: ("STALE_BROKER_EPOCH", True, False),
    78: ("OFFSET_NOT_AVAILABLE", True, False),
    81: ("GROUP_MAX_SIZE_REACHED", False, False),
    82: ("FENCED_INSTANCE_ID", False, False),
    83: ("ELIGIBLE_LEADERS_NOT_AVAILABLE", True, True),
    85: ("NO_REASSIGNMENT_IN_PROGRESS", False, False),
    86: ("GROUP_SUBSCRIBED_TO_TOPIC", False, False),
    87: ("INVALID_RECORD", False, False),
    88: ("UNSTABLE_OFFSET_COMMIT", True, False),
    89: ("THROTTLING_QUOTA_EXCEEDED", True, False),
    90: ("PRODUCER_FENCED", False, False),
    91: ("RESOURCE_NOT_FOUND", False, False),
    100: ("UNKNOWN_TOPIC_ID", True, True),
    103: ("INCONSISTENT_TOPIC_ID", True, True),
    106: ("FETCH_SESSION_TOPIC_ID_ERROR", True, False),
    120: ("TRANSACTION_ABORTABLE", False, False),
}


def teach_aiokafka() -> None:
    """Give the codes that aiokafka maps to `UnknownError` a class each, so that errors keep their names.

    docs/kafka-traps.md 11: OFFSET_NOT_AVAILABLE after a change of leader looked like an error for good.
    """
    for code, (name, retriable, stale) in _UNMAPPED.items():
        body = {"errno": code, "message": name, "retriable": retriable, "invalid_metadata": stale}
        errors.kafka_errors.setdefault(code, type(_class_name(name), (errors.BrokerResponseError,), body))


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Error"
