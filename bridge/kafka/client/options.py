"""Makes a connection from `[connectors.NAME]`: gives each client its options of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.diagnosis import Connection
from bridge.kafka.client.known_options import KAFKA_OPTIONS
from bridge.kafka.client.security import security_options
from bridge.settings.connectors import Connector, Kafka
from bridge.settings.urls import KAFKA_SCHEME


def kafka_connection(name: str, connector: Connector) -> KafkaConnection:
    """The connection to the cluster of the connector called `name`. Opens nothing but certificate files.

    Raises:
        SecurityUnusable: a certificate or key that cannot be used; names the setting and the file.
        KeyError: an option that the settings would have refused.
    """
    kafka = connector.kafka or Kafka()
    common, consumer, producer = split(kafka.model_extra or {})
    return Connection(
        name=name,
        brokers=connector.url.removeprefix(KAFKA_SCHEME).rstrip("/"),
        identity=connector.identity,
        security={**common, **security_options(name, kafka)},
        consumer_options=consumer,
        producer_options=producer,
    )


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of every client, of the consumer and of the producer, under aiokafka's names."""
    common: dict[str, Any] = {}
    consumer: dict[str, Any] = {}
    producer: dict[str, Any] = {}
    for key, value in options.items():
        option = KAFKA_OPTIONS[key]
        match option.consumer, option.producer:
            case True, True:
                clients = common
            case True, False:
                clients = consumer
            case _:
                clients = producer
        clients[key.replace("-", "_")] = value
    return common, consumer, producer
