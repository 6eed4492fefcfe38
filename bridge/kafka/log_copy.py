"""A copy of a node's delivery log in a Kafka topic (`kafka-connector` in `[delivery-log]`).

The files remain the truth. The copy is read from them, so an unavailable topic delays no relay and costs no
memory: lines that it lacks wait in the files, for as long as they are kept. A line may arrive twice, as it
may stand in the files twice: equal lines are one event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, UnknownTopicOrPartitionError, for_code

from bridge.delivery_log import SegmentWriter, Tail
from bridge.kafka.client import producers
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import ClusterClient
from bridge.runtime.repeated_task import RepeatedTask

#: How often the task looks for new lines.
LOOK_INTERVAL_MS: Final = 1_000
#: The pause after a failure.
RETRY_INTERVAL_MS: Final = 5_000
#: Longest that the brokers may take to store what was read at once.
SEND_TIMEOUT_MS: Final = 30_000
#: Longest that stopping waits for the last lines.
STOP_TIMEOUT_MS: Final = 2_000

_TOO_LARGE: Final = "MESSAGE_TOO_LARGE: the topic takes no such line"


class LogCopy:
    """One task that reads, sends and remembers. Records: key the node's name, value a line; one partition."""

    def __init__(
        self, connection: KafkaConnection, topic: str, segments: SegmentWriter, *, node: str
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._tail = Tail(segments, self._lacks)
        self._key = node.encode()
        self._producer: Any = None
        self._stop = asyncio.Event()
        #: Whether the last turn has begun, after the stop.
        self._is_last = False
        self._copying = RepeatedTask("delivery-log-copy", self._turn, until=lambda: self._is_last)
        self._failing = False
        self._log = structlog.get_logger().bind(connector=connection.name, topic=topic)

    def start(self) -> None:
        """Start copying, beginning with what has not been copied yet."""
        self._copying.begin()

    async def stop(self) -> None:
        """Copy the remaining lines, if that is quick, and disconnect; the next start copies the rest."""
        self._stop.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self._copying.ended()
        await self._copying.end()
        await self._disconnect()

    async def _turn(self) -> None:
        self._is_last = self._stop.is_set()  # the last lines were written before the stop
        wait_ms = LOOK_INTERVAL_MS
        try:
            await self._copy()
            self._failing = False
        except (KafkaError, OSError, TimeoutError) as error:
            await self._disconnect()
            wait_ms = RETRY_INTERVAL_MS
            if not self._failing:
                reason = str(error) or type(error).__name__
                self._log.warning("delivery-log-copy-waits", reason=reason)
            self._failing = True
        if not self._is_last:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._stop.wait()

    async def _copy(self) -> None:
        """Copy all lines that the files hold. Raises: KafkaError, OSError, TimeoutError."""
        while lines := await asyncio.to_thread(self._tail.read):
            async with asyncio.timeout(SEND_TIMEOUT_MS / 1000):
                await self._send(lines)
            await asyncio.to_thread(self._tail.advance)

    async def _send(self, lines: Sequence[bytes]) -> None:
        if self._producer is None:
            await self._look()
            self._producer = await producers.started_without_transactions(self._connection)
        sent = [await self._sent(line) for line in lines]
        answers = await asyncio.gather(*filter(None, sent), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, MessageSizeTooLargeError):
                self._lacks(_TOO_LARGE)
            elif isinstance(answer, BaseException):
                raise answer

    async def _look(self) -> None:
        """Check that the topic exists: a producer would wait for it, and in the end not say for what."""
        async with ClusterClient(self._connection) as client:
            found = (await client.cluster([self._topic])).topics.get(self._topic)
        if found is None or found.error:
            raise for_code(found.error if found else UnknownTopicOrPartitionError.errno)(
                f"topic {self._topic}"
            )

    async def _sent(self, line: bytes) -> asyncio.Future[Any] | None:
        """Send the line; returns the pending send, None: this client can never send this line."""
        try:
            sent: asyncio.Future[Any] = await self._producer.send(self._topic, line, self._key)
        except MessageSizeTooLargeError:
            self._lacks(_TOO_LARGE)
            return None
        return sent

    def _lacks(self, reason: str) -> None:
        self._log.warning("delivery-log-copy-lacks", reason=reason)

    async def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producers.discard(producer)
