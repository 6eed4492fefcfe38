"""How much a consumer fetches at a time, by how long its fetches take.

A fetch is taken when all of it has come. So over a slow line it is small: a stream that has little to send
does not wait behind the megabytes of another, and what was under way when a connection broke is little. While
it is smaller than the partitions' parts together, chance says which of them it has (docs/kafka-traps.md 21).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest

from bridge.kafka.client import line
from bridge.kafka.client.throttling import RECORDS, throttle_of

#: Time that the answer to a fetch should take on the line, ms, besides the round trips below.
AIM_MS: Final = 2_000
#: Round trips that it takes in any case, until TCP knows what the line carries.
ROUND_TRIPS: Final = 8
#: Bytes of a first fetch; later ones grow while they are quick.
FIRST_BYTES: Final = 16 * 1024
#: Least bytes of a fetch: a record batch that is larger comes whole all the same.
LEAST_BYTES: Final = 8 * 1024
#: The factor by which fetches grow while they take less than this part of `AIM_MS`...
GROW: Final = 4
#: ...and by which the next one is smaller than one without an answer in time.
SHRINK: Final = 4


class FetchSize:
    """The bytes of a consumer's fetches. Pure."""

    def __init__(self, most: int) -> None:
        """`most`: bytes of a fetch over a line that is fast enough."""
        self._most = most
        self._least = min(most, LEAST_BYTES)
        self.bytes = min(most, FIRST_BYTES)

    def took(self, took_ms: float, size: int, round_trip_ms: float) -> None:
        """Take account of a fetch whose answer had `size` bytes."""
        line_ms = took_ms - ROUND_TRIPS * round_trip_ms
        if line_ms > AIM_MS:
            self.bytes = max(self._least, min(self.bytes, round(size * AIM_MS / line_ms)))
        elif 2 * size >= self.bytes and GROW * line_ms < AIM_MS:
            self.bytes = min(self._most, self.bytes * GROW)

    def timed_out(self) -> None:
        """Take account of a fetch without an answer in time."""
        self.bytes = max(self._least, self.bytes // SHRINK)


def fit_fetches(consumer: Any) -> None:
    """Make the fetches of a consumer that has not started follow what the line carries, within its limits.

    Called after `bridge.kafka.client.throttling.honour`.
    """
    client, part = consumer._client, consumer._max_partition_fetch_bytes  # noqa: SLF001
    size, send = FetchSize(consumer._fetch_max_bytes), client.send  # noqa: SLF001

    async def sent(node: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await send(node, request, **options)
        now, before = asyncio.get_running_loop().time, _received(client, node)
        began = now() + throttle_of(client).left_ms(node) / 1000
        try:
            answer = await send(node, request, **options)
        except RequestTimedOutError:
            size.timed_out()
            raise
        else:
            came = _received(client, node) - before
            size.took((now() - began) * 1000, came, line.round_trip_ms(client))
        finally:
            fit(consumer._fetcher)  # noqa: SLF001
        return answer

    def fit(takes: Any) -> None:
        takes._fetch_max_bytes = size.bytes  # noqa: SLF001
        takes._max_partition_fetch_bytes = min(part, size.bytes)  # noqa: SLF001

    client.send = sent
    fit(consumer)


def _received(client: Any, node: int) -> int:
    """The bytes of the answers that have come from this broker over its connection for records."""
    connection = client._conns.get((node, RECORDS))  # noqa: SLF001
    return 0 if connection is None else int(connection.received)


def is_receiving(consumer: Any) -> bool:
    """Whether one answer has been coming for a while, and is not there yet."""
    connections = consumer._client._conns.items()  # noqa: SLF001
    return any(one.is_receiving for (_node, group), one in connections if group == RECORDS)
