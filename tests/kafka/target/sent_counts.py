"""Records that a bridge sends to brokers, counted where the client makes its Produce requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aiokafka.producer import sender


@contextmanager
def produced() -> Iterator[Counter[str]]:
    """Records sent to brokers in this process, by topic: each attempt counts."""
    counts: Counter[str] = Counter()
    create = sender.SendProduceReqHandler.create_request

    def counted(handler: Any) -> Any:
        for place, batch in handler._batches.items():
            counts[place.topic] += batch.record_count
        return create(handler)

    with mock.patch.object(sender.SendProduceReqHandler, "create_request", counted):
        yield counts
