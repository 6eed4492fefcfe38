"""Errors of Kafka clients at the source, turned into the bridge's own where they leave the Kafka end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.errors import KafkaError

from bridge.kafka.errors import explained


@contextmanager
def explaining(connector: str, operation: str, resource: str) -> Iterator[None]:
    """What fails inside is `explained`; the bridge's own errors pass as they are.

    Raises: SourceUnavailable, SourceRefused.
    """
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise explained(
            error, side="source", connector=connector, operation=operation, resource=resource
        ) from error
