"""What Kafka's errors mean: try again or not, and what the operator is told."""

from __future__ import annotations

import ssl

import pytest
from aiokafka import TopicPartition, errors

from bridge.errors import (
    BridgeError,
    Fenced,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
)
from bridge.kafka.client.error_codes import FOR_GOOD, HINTS
from bridge.kafka.client.errors import (
    NoBroker,
    TokenRefused,
    TokenUnusable,
    Unanswered,
    code_of,
    explained,
    is_for_good,
)
from bridge.kafka.client.known_options import KAFKA_OPTIONS
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Kafka

#: Codes that Kafka's own clients retry (`RetriableException` in Errors of Kafka 4.3).
RETRIED_BY_KAFKA = [
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75),
    *(78, 80, 83, 84, 88, 89, 100, 103, 106),
]
#: Of those, what aiokafka knows by another name, or nobody meets.
NAMELESS = {13, 80, 84}


def as_bridge_error(
    error: BaseException, operation: str = "Write", resource: str = "topic orders"
) -> BridgeError:
    return explained(error, side="target", connector="us", operation=operation, resource=resource)


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


# ---------------------------------------------------------------- again, or for good


@pytest.mark.parametrize("code", RETRIED_BY_KAFKA)
def test_what_kafka_s_own_clients_retry_is_tried_again(code: int) -> None:
    error = errors.for_code(code)()
    assert type(as_bridge_error(error)) is TargetUnavailable
    source = explained(error, side="source", connector="eu", operation="Read", resource="topic x")
    assert type(source) is SourceUnavailable


@pytest.mark.parametrize("code", sorted(FOR_GOOD))
def test_what_no_second_attempt_changes_is_for_good(code: int) -> None:
    error = errors.for_code(code)()
    assert type(as_bridge_error(error)) is TargetRefused
    source = explained(error, side="source", connector="eu", operation="Read", resource="topic x")
    assert type(source) is SourceRefused


def test_kafka_retries_nothing_that_is_for_good() -> None:
    assert not FOR_GOOD & set(RETRIED_BY_KAFKA)


@pytest.mark.parametrize("code", sorted({*FOR_GOOD, *HINTS, *RETRIED_BY_KAFKA} - NAMELESS))
def test_every_code_keeps_its_name(code: int) -> None:
    """docs/kafka-traps.md 11: aiokafka maps what it does not know to one error without a number."""
    error = errors.for_code(code)
    assert error is not errors.UnknownError
    assert code_of(error()) == code
    assert f"{error.message} ({code})" in str(as_bridge_error(error()))


def test_an_unmapped_code_after_a_leader_change_is_retried_by_the_client_too() -> None:
    """docs/kafka-traps.md 11."""
    offset_not_available = errors.for_code(78)
    assert (offset_not_available.message, offset_not_available.retriable) == ("OFFSET_NOT_AVAILABLE", True)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionRefusedError(111, "Connection refused"),
        errors.KafkaConnectionError("broken"),
        errors.KafkaTimeoutError(),
        errors.NodeNotReadyError(),
        errors.RequestTimedOutError(),
        errors.StaleMetadata(),
        errors.UnknownError(),
        errors.for_code(31_000)(),
        errors.CommitFailedError(),
        errors.RebalanceInProgressError(),
        errors.KafkaError("Unexpected error during batch delivery"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        TokenUnusable("sasl-oauth-token-file: token is empty"),
        TokenRefused("the broker did not take the token"),
        Unanswered("the broker closed the connection without a word", "see security-protocol"),
        ssl.SSLError("EOF occurred in violation of protocol"),
        KeyError("a race in the library"),
    ],
)
def test_what_passes_by_itself_is_tried_again(error: BaseException) -> None:
    assert type(as_bridge_error(error)) is TargetUnavailable


@pytest.mark.parametrize(
    "error",
    [
        errors.IncompatibleBrokerVersion("too old"),
        errors.UnsupportedCodecError("zstd"),
        ValueError("Unknown compression type"),
        TypeError("unexpected argument"),
        ssl.SSLCertVerificationError("self-signed certificate"),
        ssl.SSLError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required"),
        ssl.SSLError("[SSL: WRONG_VERSION_NUMBER] wrong version number"),
    ],
)
def test_what_the_operator_must_mend_is_for_good(error: BaseException) -> None:
    assert type(as_bridge_error(error)) is TargetRefused


@pytest.mark.parametrize(
    "error", [errors.ProducerFenced(), errors.InvalidProducerEpoch(), errors.for_code(90)()]
)
def test_a_producer_that_another_has_replaced_is_fenced(error: BaseException) -> None:
    assert type(as_bridge_error(error)) is Fenced
    assert type(as_bridge_error(caused(errors.KafkaError("in a transaction"), error))) is Fenced


def test_an_error_of_the_bridge_s_own_stays_as_it_is() -> None:
    error = TargetRefused("known already")
    assert as_bridge_error(error) is error


# ---------------------------------------------------------------- what is said


def test_a_missing_right_is_named_with_its_resource() -> None:
    text = str(as_bridge_error(errors.TopicAuthorizationFailedError("orders")))
    assert text == (
        "connector us: Write topic orders: TOPIC_AUTHORIZATION_FAILED (29): orders; "
        "needs the ACL Write on topic orders"
    )


@pytest.mark.parametrize(
    ("error", "operation", "resource", "needed"),
    [
        (29, "Create", "topic orders", "the ACL Create on topic orders"),
        (29, "fetch", "topic orders", "the ACL Describe on topic orders"),
        (30, "Read", "group core-bridge.x", "the ACL Read on group core-bridge.x"),
        (31, "Create", "cluster", "the ACL Create on cluster"),
        (53, "Write", "transactional id x.0.1", "the ACL Write on transactional id x.0.1"),
        (53, "InitProducerId", "transactional id x.0.1", "the ACL Write on transactional id x.0.1"),
    ],
)
def test_each_kind_of_right_is_asked_for(error: int, operation: str, resource: str, needed: str) -> None:
    refused = as_bridge_error(errors.for_code(error)(), operation, resource)
    assert str(refused).endswith(f"needs {needed}")
    assert refused.key == resource


def test_a_right_that_was_missed_on_the_way_is_named_and_not_what_was_asked_for() -> None:
    """Committing an offset reads the topic; committing a transaction writes to it."""
    error = errors.TopicAuthorizationFailedError({"payments", "orders"})
    assert str(as_bridge_error(error, "Read", "group core-bridge.x")).endswith(
        "needs the ACL Read on topic orders, payments"
    )


def test_of_many_topics_those_are_named_that_it_is_about() -> None:
    error = errors.TopicAuthorizationFailedError({"payments"})
    assert str(as_bridge_error(error, "Read", "topics ['orders', 'payments']")).endswith(
        "needs the ACL Read on topic payments"
    )


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (33, "sasl-mechanism"),
        (34, "security-protocol"),
        (38, "topic-replication-factor"),
        (50, "transaction-timeout-ms"),
        (58, "sasl-plain-password"),
        (3, "create-topics"),
        (17, "forwarding-address"),
        (76, "compression-type"),
        (26, "session-timeout-ms"),
        (37, "add-partitions"),
        (32, "message.timestamp.after.max.ms"),
        (10, "max.message.bytes"),
    ],
)
def test_the_setting_that_mends_it_is_named(code: int, setting: str) -> None:
    assert setting in str(as_bridge_error(errors.for_code(code)()))


def test_settings_that_are_named_exist() -> None:
    known = {field.alias for table in (Bridge, Kafka) for field in table.model_fields.values()} | set(
        KAFKA_OPTIONS
    )
    named = {
        word.strip(".,:;()")
        for hint in HINTS.values()
        for word in hint.split()
        if "-" in word.strip("-") and "." not in word.strip(".,:;")
    }
    assert named - known == set()
    assert "topic-replication-factor" in named


def test_a_cause_that_the_library_has_wrapped_is_what_is_told() -> None:
    """aiokafka raises KafkaError(repr(...)) from a failed look-up of a coordinator."""
    cause = errors.TransactionalIdAuthorizationFailed("x.0.1")
    text = str(
        as_bridge_error(
            caused(errors.KafkaError("FindCoordinator"), cause), "Write", "transactional id x.0.1"
        )
    )
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)" in text


def test_a_chain_of_causes_has_an_end() -> None:
    error = errors.KafkaError("again")
    error.__cause__ = error
    assert type(as_bridge_error(error)) is TargetUnavailable


def test_a_time_out_says_so_though_it_has_no_text() -> None:
    assert str(as_bridge_error(TimeoutError(), "Write", "transactional id t")) == (
        "connector us: Write transactional id t: timed out"
    )


def test_objects_of_the_library_are_not_shown() -> None:
    text = str(as_bridge_error(errors.for_code(34)(object()), "Describe", "cluster"))
    assert "object" not in text
    assert "ILLEGAL_SASL_STATE (34);" in text


def test_partitions_are_shown_by_their_names() -> None:
    assert "orders/3" in str(
        as_bridge_error(errors.UnknownTopicOrPartitionError(TopicPartition("orders", 3)))
    )
    assert "orders/3" in str(as_bridge_error(errors.OffsetOutOfRangeError({TopicPartition("orders", 3): 17})))


# ---------------------------------------------------------------- no broker


def test_no_broker_says_why_for_each() -> None:
    password = errors.for_code(58)("Authentication failed: Invalid username or password")
    error = NoBroker([("a:9092", password), ("b:9092", ConnectionRefusedError(111, "Connection refused"))])
    refused = as_bridge_error(error, "Describe", "cluster")
    assert str(refused) == (
        "connector us: Describe cluster: "
        "a:9092: SASL_AUTHENTICATION_FAILED (58): Authentication failed: Invalid username or password; "
        "b:9092: [Errno 111] Connection refused; "
        "see sasl-mechanism, sasl-plain-username and sasl-plain-password"
    )
    assert type(refused) is TargetUnavailable  # the one that is down may take the password


def test_no_broker_is_for_good_where_all_refuse() -> None:
    password = errors.for_code(58)("Invalid username or password")
    assert is_for_good(NoBroker([("a:9092", password), ("b:9092", password)]))


def test_a_certificate_for_another_name_is_told_from_an_unknown_authority() -> None:
    name = ssl.SSLCertVerificationError("no")
    name.verify_message = "IP address mismatch, certificate is not valid for '127.0.0.1'."
    assert "ssl-check-hostname" in str(as_bridge_error(name))
    authority = ssl.SSLCertVerificationError("no")
    authority.verify_message = "self-signed certificate in certificate chain"
    assert "ssl-cafile" in str(as_bridge_error(authority))
