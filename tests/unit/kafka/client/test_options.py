"""Which client gets which option; the settings' table against aiokafka's own signatures."""

from __future__ import annotations

import inspect
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from bridge.kafka.client import connection
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import TokenUnusable
from bridge.kafka.client.known_options import (
    COMMIT_TIMEOUT_MS,
    KAFKA_OPTIONS,
    OWN_KAFKA_OPTIONS,
    UNUSABLE_KAFKA_OPTIONS,
)
from bridge.kafka.client.options import kafka_connection, split
from bridge.kafka.client.security import MAX_TOKEN_BYTES, SecurityUnusable, TokenFile
from bridge.settings.connectors import Connector, Kafka

#: Arguments that are no options: objects, and what a call gives.
NO_OPTIONS = {"self", "topics", "loop", "partition-assignment-strategy"}
#: Values that a type of option may have.
EXAMPLES: Mapping[type, Any] = {int: 30_000, bool: True, str: "gzip"}


def arguments(client: type) -> dict[str, inspect.Parameter]:
    """The arguments of a client, as settings would write them."""
    found = inspect.signature(client).parameters
    return {name.replace("_", "-"): parameter for name, parameter in found.items()}


CONSUMER = arguments(aiokafka.AIOKafkaConsumer)
PRODUCER = arguments(aiokafka.AIOKafkaProducer)


def connection_of(kafka: Mapping[str, Any], directory: Path = Path(), **connector: Any) -> KafkaConnection:
    table = {"url": "kafka://a:9092,b:9092", "kafka": dict(kafka), **connector}
    return kafka_connection("us", Connector.model_validate(table, context={"directory": directory}))


def test_every_option_of_aiokafka_is_set_refused_or_known() -> None:
    of_the_settings = {field.alias for field in Kafka.model_fields.values()}
    known = {*KAFKA_OPTIONS, *UNUSABLE_KAFKA_OPTIONS, *OWN_KAFKA_OPTIONS, *of_the_settings, *NO_OPTIONS}
    assert {*CONSUMER, *PRODUCER} - known == set()


@pytest.mark.parametrize("key", KAFKA_OPTIONS)
def test_an_option_goes_to_the_clients_that_have_it(key: str) -> None:
    option = KAFKA_OPTIONS[key]
    assert (option.consumer, option.producer) == (key in CONSUMER, key in PRODUCER)


@pytest.mark.parametrize("client", [AIOKafkaAdminClient, AIOKafkaClient])
def test_what_consumer_and_producer_share_every_client_has(client: type) -> None:
    """Such options are arguments of all clients, so that one client id and one patience hold for all."""
    shared = {key for key, option in KAFKA_OPTIONS.items() if option.consumer and option.producer}
    assert shared
    assert shared <= set(arguments(client))


@pytest.mark.parametrize("key", KAFKA_OPTIONS)
def test_an_option_has_the_type_of_aiokafka_s_default(key: str) -> None:
    defaults = [found[key].default for found in (CONSUMER, PRODUCER) if key in found]
    for default in defaults:
        assert default is None or type(default) is KAFKA_OPTIONS[key].kind, default


def test_none_is_in_two_tables() -> None:
    assert not set(KAFKA_OPTIONS) & OWN_KAFKA_OPTIONS
    assert not set(KAFKA_OPTIONS) & set(UNUSABLE_KAFKA_OPTIONS)


def test_a_request_outlives_a_commit() -> None:
    """docs/kafka-traps.md 3: an operator's request-timeout-ms is held to the bridge's own limit."""
    assert connection.END_TRANSACTION_TIMEOUT_MS == COMMIT_TIMEOUT_MS
    assert KAFKA_OPTIONS["request-timeout-ms"].least > COMMIT_TIMEOUT_MS
    assert KAFKA_OPTIONS["request-timeout-ms"].least <= connection.REQUEST_TIMEOUT_MS


def test_options_are_told_apart() -> None:
    common, consumer, producer = split({"client-id": "x", "fetch-max-bytes": 5, "linger-ms": 0})
    assert (common, consumer, producer) == ({"client_id": "x"}, {"fetch_max_bytes": 5}, {"linger_ms": 0})


async def test_clients_take_every_option() -> None:
    made = connection_of({key: EXAMPLES[option.kind] for key, option in KAFKA_OPTIONS.items()})
    clients = [made.consumer(), made.producer("t"), made.admin(), made.client()]
    for client in clients:
        await (client.stop() if hasattr(client, "stop") else client.close())


def test_what_keeps_the_guarantee_is_not_in_the_operator_s_hands() -> None:
    with pytest.raises(KeyError):
        connection_of({"isolation-level": "read_uncommitted"})


def test_a_connector_becomes_a_connection() -> None:
    made = connection_of({}, identity="east")
    assert (made.name, made.brokers, made.identity) == ("us", "a:9092,b:9092", "east")
    assert made.security == {"security_protocol": "PLAINTEXT"}


def test_passwords_are_not_shown() -> None:
    credentials = {"sasl-plain-username": "u", "sasl-plain-password": "s3cret"}
    made = connection_of({"security-protocol": "SASL_PLAINTEXT", **credentials})
    assert made.security["sasl_plain_password"] == "s3cret"
    assert made.security["sasl_mechanism"] == "PLAIN"
    assert "s3cret" not in repr(made)


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``one`` and ``two``: certificates that sign themselves; the key of ``one`` is locked with "s3cret"."""
    folder = tmp_path_factory.mktemp("pems")
    for name in ("one", "two"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        command += ["-passout", "pass:s3cret"] if name == "one" else ["-noenc"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "no.pem").write_text("nothing")
    return folder


def test_the_system_s_authorities_are_trusted_where_none_are_given() -> None:
    context = connection_of({"security-protocol": "SSL"}).security["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_own_authorities_are_trusted_alone_and_host_names_may_pass(pems: Path) -> None:
    table = {"security-protocol": "SASL_SSL", "ssl-cafile": "two.pem", "ssl-check-hostname": False}
    context = connection_of(table, pems).security["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert [dict(item[0] for item in found["subject"]) for found in context.get_ca_certs()] == [
        {"commonName": "two"}
    ]


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"ssl-cafile": "no.pem"}, "connectors.us.kafka.ssl-cafile"),
        ({"ssl-certfile": "one.pem", "ssl-keyfile": "one.key", "ssl-password": "wr0ng"}, "ssl-keyfile"),
        ({"ssl-certfile": "one.pem", "ssl-keyfile": "one.key"}, "ssl-keyfile"),  # asks no terminal
        ({"ssl-certfile": "one.pem", "ssl-keyfile": "two.key"}, "ssl-keyfile"),
        ({"ssl-certfile": "no.pem", "ssl-keyfile": "two.key"}, "ssl-keyfile"),
    ],
)
def test_certificates_that_cannot_be_used_are_named_and_no_password(
    pems: Path, keys: dict[str, str], place: str
) -> None:
    with pytest.raises(SecurityUnusable) as refused:
        connection_of({"security-protocol": "SSL", **keys}, pems)
    assert place in str(refused.value)
    assert any(name in str(refused.value) for name in keys.values())
    assert "wr0ng" not in str(refused.value)


def test_a_locked_key_is_opened_with_its_password(pems: Path) -> None:
    keys = {"ssl-certfile": "one.pem", "ssl-keyfile": "one.key", "ssl-password": "s3cret"}
    assert connection_of({"security-protocol": "SSL", **keys}, pems).security["ssl_context"]


# ---------------------------------------------------------------- tokens


async def test_the_token_is_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    table = {
        "security-protocol": "SASL_SSL",
        "sasl-mechanism": "OAUTHBEARER",
        "sasl-oauth-token-file": "token",
    }
    provider = connection_of(table, tmp_path).security["sasl_oauth_token_provider"]
    path.write_text("first\n")
    assert await provider.token() == "first"
    path.write_text("second")
    assert await provider.token() == "second"


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"\xc3\xa4", b"x" * (MAX_TOKEN_BYTES + 1), None]
)
async def test_a_file_without_a_token_is_named_and_not_shown(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TokenUnusable) as refused:
        await TokenFile(path).token()
    assert str(path) in str(refused.value)
    assert "sasl-oauth-token-file" in str(refused.value)
    assert "words" not in str(refused.value).replace("visible", "")
    assert len(str(refused.value)) < 500
