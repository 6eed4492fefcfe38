"""TLS, SASL and ACLs against a real broker: what works, and what an operator reads where it does not.

No text may hold a secret: passwords, key passwords, tokens.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import TopicPartition

from bridge.errors import BridgeError, SourceRefused, TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explained
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.client.options import kafka_connection
from bridge.settings.connectors import Connector
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.secured import (
    KEY_PASSWORD,
    PASSWORD,
    USER,
    allowed,
    secured_cluster,
    unsecured_token,
)

WRONG_PASSWORD: Final = "wr0ng-s3cret"
#: A read of what is there already.
FETCH_TIMEOUT_MS: Final = 20_000

TLS: Final = {"ssl-cafile": "authority.pem"}
CERTIFICATE: Final = {"ssl-certfile": "client.pem", "ssl-keyfile": "client.key"}
LOCKED: Final = {**CERTIFICATE, "ssl-keyfile": "client-locked.key", "ssl-password": KEY_PASSWORD}
STRANGER: Final = {"ssl-certfile": "stranger.pem", "ssl-keyfile": "stranger.key"}
LOGIN: Final = {"sasl-plain-username": USER, "sasl-plain-password": PASSWORD}
WRONG_LOGIN: Final = {"sasl-plain-username": USER, "sasl-plain-password": WRONG_PASSWORD}
TOKEN: Final = {"sasl-mechanism": "OAUTHBEARER", "sasl-oauth-token-file": "token"}
#: What the broker calls the one whose certificate is shown.
HOLDER: Final = "CN=client"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates and the token file."""
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def secured(directory: Path) -> Iterator[Cluster]:
    with secured_cluster(directory) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture, directory: Path) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    yield
    token = directory / "token"
    secrets = [PASSWORD, WRONG_PASSWORD, KEY_PASSWORD, *([token.read_text()] if token.exists() else [])]
    # At DEBUG aiokafka logs every byte it sends; `bridge.runtime.logs` takes nothing of libraries below
    # WARNING.
    lines = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert not [line for line in lines if any(secret and secret in line for secret in secrets)]


class Rig:
    """Connections to the secured cluster."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def connection(self, listener: str, protocol: str, **kafka: Any) -> KafkaConnection:
        table = {"url": f"kafka://{self.cluster.bootstrap_of(listener)}"}
        table["kafka"] = {"security-protocol": protocol, **kafka}  # type: ignore[assignment]
        return kafka_connection("us", Connector.model_validate(table, context={"directory": self.directory}))

    def as_alice(self) -> KafkaConnection:
        """A user who has only the rights that a test gives."""
        return self.connection("SASL_PLAINTEXT", "SASL_PLAINTEXT", **LOGIN)

    def write_token(self, text: str) -> None:
        (self.directory / "token").write_text(text)


@pytest.fixture
def rig(secured: Cluster, directory: Path) -> Rig:
    return Rig(secured, directory)


@pytest.fixture
def topic(secured: Cluster) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    secured.create_topic(name)
    return name


async def pass_through(connection: KafkaConnection, topic: str, value: bytes) -> bytes:
    """Write in a transaction, and read it back as the bridge reads."""
    producer = connection.producer(f"{topic}.0.0")
    try:
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()
    consumer = connection.consumer()
    try:
        await consumer.start()
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        records = await consumer.getmany(timeout_ms=FETCH_TIMEOUT_MS)
    finally:
        await consumer.stop()
    (record,) = records[place]
    return bytes(record.value)


async def refused(
    connection: KafkaConnection, operation: str = "Describe", resource: str = "cluster"
) -> BridgeError:
    """What the operator is told when the bridge asks what the cluster is."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever aiokafka makes of it
        async with ClusterClient(connection) as client:
            await client.cluster(())
    return as_bridge_error(raised.value, operation, resource)


def as_bridge_error(error: BaseException, operation: str, resource: str) -> BridgeError:
    """`error` as the target's end tells it; without secrets."""
    bridge_error = explained(error, side="target", connector="us", operation=operation, resource=resource)
    for secret in (PASSWORD, WRONG_PASSWORD, KEY_PASSWORD):
        assert secret not in str(bridge_error)
    return bridge_error


# ---------------------------------------------------------------- what works


@pytest.mark.parametrize(
    ("listener", "protocol", "keys"),
    [
        ("PLAINTEXT", "PLAINTEXT", {}),
        ("SSL", "SSL", TLS),
        ("SSL", "SSL", {**TLS, "ssl-check-hostname": False}),
        ("MUTUAL", "SSL", {**TLS, **CERTIFICATE}),
        ("MUTUAL", "SSL", {**TLS, **LOCKED}),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", LOGIN),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", {**LOGIN, "sasl-mechanism": "SCRAM-SHA-256"}),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", TOKEN),
        ("SASL_SSL", "SASL_SSL", {**TLS, **LOGIN}),
        ("SASL_SSL", "SASL_SSL", {**TLS, **LOGIN, "sasl-mechanism": "SCRAM-SHA-256"}),
        ("SASL_SSL", "SASL_SSL", {**TLS, **LOGIN, "sasl-mechanism": "SCRAM-SHA-512"}),
        ("SASL_SSL", "SASL_SSL", {**TLS, **TOKEN}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "none",
)
async def test_a_message_passes(
    rig: Rig, topic: str, listener: str, protocol: str, keys: dict[str, Any]
) -> None:
    rig.write_token(unsecured_token())
    rights = [("topic", topic, "Write"), ("topic", topic, "Read"), ("transactional id", f"{topic}*", "Write")]
    with allowed(rig.cluster, *rights), allowed(rig.cluster, *rights, user=HOLDER):
        value = await pass_through(rig.connection(listener, protocol, **keys), topic, b"kept")
    assert value == b"kept"


# ---------------------------------------------------------------- credentials


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_for_good_and_says_so(rig: Rig, mechanism: str) -> None:
    """aiokafka hides it behind "Unable to bootstrap", which would be tried for ever."""
    keys = {**TLS, **WRONG_LOGIN, "sasl-mechanism": mechanism}
    error = await refused(rig.connection("SASL_SSL", "SASL_SSL", **keys))
    assert isinstance(error, TargetRefused)
    assert "connector us: Describe cluster: 127.0.0.1:" in str(error)
    assert "SASL_AUTHENTICATION_FAILED (58)" in str(error)
    assert str(error).endswith("see sasl-mechanism, sasl-plain-username and sasl-plain-password")


async def test_a_consumer_a_producer_and_an_admin_say_it_too(rig: Rig) -> None:
    connection = rig.connection("SASL_PLAINTEXT", "SASL_PLAINTEXT", **WRONG_LOGIN)
    for client in (connection.consumer(), connection.producer("t"), connection.admin()):
        with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as raised:
            await client.start()
        assert isinstance(as_bridge_error(raised.value, "Write", "topic orders"), TargetRefused)
        await (client.close() if hasattr(client, "close") else client.stop())


async def test_a_listener_without_sasl_is_named(rig: Rig) -> None:
    error = await refused(rig.connection("PLAINTEXT", "SASL_PLAINTEXT", **LOGIN))
    assert isinstance(error, TargetRefused)
    assert "ILLEGAL_SASL_STATE (34); the listener does no SASL: see security-protocol" in str(error)


async def test_a_token_that_is_refused_is_read_again_at_the_next_attempt(rig: Rig) -> None:
    """aiokafka takes the broker's refusal for a yes, and then finds a cluster without brokers."""
    expired = unsecured_token(lifetime_s=-3600)
    rig.write_token(expired)
    connection = rig.connection("SASL_SSL", "SASL_SSL", **TLS, **TOKEN)
    error = await refused(connection)
    assert isinstance(error, TargetUnavailable)
    assert "the broker did not take the token" in str(error)
    assert "see sasl-oauth-token-file" in str(error)
    assert expired not in str(error)
    rig.write_token(unsecured_token())
    async with ClusterClient(connection) as client:
        assert (await client.cluster(())).brokers


@pytest.mark.parametrize("content", ["", None])
async def test_a_token_file_without_a_token_is_named(rig: Rig, directory: Path, content: str | None) -> None:
    path = directory / "token"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    error = await refused(rig.connection("SASL_PLAINTEXT", "SASL_PLAINTEXT", **TOKEN))
    assert isinstance(error, TargetUnavailable)
    assert f"sasl-oauth-token-file: {path}" in str(error)


# ---------------------------------------------------------------- TLS


@pytest.mark.parametrize("keys", [{"ssl-cafile": "stranger.pem"}, {}], ids=["another", "the system's"])
async def test_another_authority_is_for_good(rig: Rig, keys: dict[str, str]) -> None:
    error = await refused(rig.connection("SSL", "SSL", **keys))
    assert isinstance(error, TargetRefused)
    assert "certificate verify failed" in str(error)
    assert "see ssl-cafile" in str(error)


@pytest.mark.parametrize("keys", [{}, STRANGER], ids=["none", "a stranger's"])
async def test_a_client_certificate_that_is_not_taken_is_named(rig: Rig, keys: dict[str, str]) -> None:
    error = await refused(rig.connection("MUTUAL", "SSL", **TLS, **keys))
    assert isinstance(error, TargetRefused)
    assert "the broker does not take this client's certificate: see ssl-certfile" in str(error)


@pytest.mark.parametrize(
    ("listener", "protocol", "keys", "hint"),
    [
        ("SSL", "PLAINTEXT", {}, "the listener may want TLS: see security-protocol"),
        ("SASL_SSL", "SASL_PLAINTEXT", LOGIN, "the listener may want TLS: see security-protocol"),
        ("PLAINTEXT", "SSL", TLS, "the listener may speak no TLS: see security-protocol"),
        ("SASL_PLAINTEXT", "PLAINTEXT", {}, "the listener may want SASL: see security-protocol"),
        ("SASL_SSL", "SSL", TLS, "the listener may want SASL: see security-protocol"),
    ],
)
async def test_a_listener_of_another_protocol_is_guessed(
    rig: Rig, listener: str, protocol: str, keys: dict[str, str], hint: str
) -> None:
    """The broker closes the connection without a word, so it may pass; but it is said."""
    error = await refused(rig.connection(listener, protocol, **keys))
    assert isinstance(error, TargetUnavailable)
    assert hint in str(error)


async def test_brokers_that_are_down_are_named_with_the_reason(rig: Rig) -> None:
    table = {"url": "kafka://127.0.0.1:1,127.0.0.1:2"}
    error = await refused(kafka_connection("us", Connector.model_validate(table)))
    assert isinstance(error, TargetUnavailable)
    assert "127.0.0.1:1: " in str(error)
    assert "127.0.0.1:2: " in str(error)
    assert "Unable to bootstrap" not in str(error)


# ---------------------------------------------------------------- rights


async def test_a_missing_right_to_write_names_topic_and_right(rig: Rig, topic: str) -> None:
    rights = [("topic", topic, "Describe"), ("transactional id", f"{topic}*", "Write")]
    with allowed(rig.cluster, *rights), pytest.raises(Exception) as raised:  # noqa: PT011
        await pass_through(rig.as_alice(), topic, b"x")
    error = as_bridge_error(raised.value, "Write", f"topic {topic}")
    assert isinstance(error, TargetRefused)
    assert str(error).endswith(f"needs the ACL Write on topic {topic}")


async def test_a_missing_right_to_a_transactional_id_names_it(rig: Rig, topic: str) -> None:
    with allowed(rig.cluster, ("topic", topic, "Write")), pytest.raises(Exception) as raised:  # noqa: PT011
        await pass_through(rig.as_alice(), topic, b"x")
    error = as_bridge_error(raised.value, "Write", f"transactional id {topic}.0.0")
    assert isinstance(error, TargetRefused)
    assert str(error).endswith(f"needs the ACL Write on transactional id {topic}.0.0")


async def test_a_missing_right_to_read_names_topic_and_right(rig: Rig, topic: str) -> None:
    consumer = rig.as_alice().consumer()
    place = TopicPartition(topic, 0)
    with allowed(rig.cluster, ("topic", topic, "Describe")):
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            with pytest.raises(Exception) as raised:  # noqa: PT011
                await consumer.getmany(timeout_ms=FETCH_TIMEOUT_MS)
        finally:
            await consumer.stop()
    resource = f"topic {topic}"
    error = explained(raised.value, side="source", connector="eu", operation="Read", resource=resource)
    assert isinstance(error, SourceRefused)
    assert str(error).endswith(f"needs the ACL Read on topic {topic}")


async def test_a_missing_right_to_a_group_names_it(rig: Rig, topic: str) -> None:
    group = f"core-bridge.{topic}.progress"
    consumer = rig.as_alice().consumer(group_id=group)
    with allowed(rig.cluster, ("topic", topic, "Read")):
        try:
            await consumer.start()
            consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(Exception) as raised:  # noqa: PT011
                await consumer.commit({TopicPartition(topic, 0): 0})
        finally:
            await consumer.stop()
    error = as_bridge_error(raised.value, "Read", f"group {group}")
    assert isinstance(error, TargetRefused)
    assert str(error).endswith(f"needs the ACL Read on group {group}")
