"""Honours what brokers say about their quotas, as Kafka's own clients do and aiokafka does not.

A broker that a client sends too much to, or fetches too much from, answers at once, says for how long it will
read nothing more from that connection, and then does so (KIP-219). What aiokafka sends meanwhile waits in the
socket and times out, whatever it is: a broker that throttles looks like one that is dead, and all that was
sent comes again (docs/kafka-traps.md 22). So requests that carry records have connections of their own here,
and wait before they are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol.api import Request

#: The group of the connections that carry records, beside aiokafka's own two.
RECORDS: Final = 2


class Throttle:
    """The waits that the brokers have asked of one client. Times in ms, by the clock of the running loop."""

    def __init__(self) -> None:
        #: By node id: the time until which nothing is sent there.
        self._until_ms: dict[int, float] = {}
        #: The sum of all waits that brokers have asked for.
        self.asked_ms = 0.0

    def record(self, node: int, throttle_ms: int) -> None:
        """Record that a broker has answered that it reads nothing more for `throttle_ms`."""
        if throttle_ms > 0:
            self._until_ms[node] = _now_ms() + throttle_ms
            self.asked_ms += throttle_ms

    def left_ms(self, node: int | None = None) -> float:
        """The time until no request has to wait: at this broker, or (None) at any."""
        until = self._until_ms.values() if node is None else (self._until_ms.get(node, 0.0),)
        return max(0.0, max(until, default=0.0) - _now_ms())

    async def over(self, node: int | None = None) -> None:
        """Wait until no request has to wait."""
        while (left_ms := self.left_ms(node)) > 0:  # noqa: ASYNC110 - it is a time that is waited for
            await asyncio.sleep(left_ms / 1000)


def honour(
    client: AIOKafkaClient, kind: type[Request[Any]], heard: Callable[[Any], None] = lambda _answer: None
) -> Throttle:
    """Make requests of one kind wait as brokers ask, over connections of their own.

    `heard` gets each answer before the caller does. `throttle_of` returns the same throttle.
    """
    send, throttle = client.send, Throttle()

    async def sent(node: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        if not isinstance(request, kind):
            return await send(node, request, group=group)
        await throttle.over(node)
        answer = await send(node, request, group=RECORDS)
        throttle.record(node, answer.throttle_time_ms)
        heard(answer)
        return answer

    client.send = sent
    client.throttle = throttle
    return throttle


def throttle_of(client: Any) -> Throttle:
    """The throttle of a client that `honour` was called for."""
    found: Throttle = client.throttle
    return found


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
