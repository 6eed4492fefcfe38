"""A process that owns lanes and says which; tests kill, stop and question it.

``python -m tests.kafka.lanes.worker BOOTSTRAP GROUP TOPIC LANES``. On stdout one JSON object a line:
``{"owned": [0, 1]}`` at each change, ``{"confirmed": 0}`` or ``{"refused": CODE, "lane": 0}`` for each
``confirm LANE`` on stdin. It leaves the group when stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from bridge.errors import BridgeError
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.lanes.groups import JournalTopicOwnership
from bridge.relay.ownership import Ownership

#: The shortest that brokers take by default.
SESSION_TIMEOUT_MS = 6_000


def connection(bootstrap: str, **options: Any) -> KafkaConnection:
    return KafkaConnection(
        "cluster", bootstrap, consumer_options={"session_timeout_ms": SESSION_TIMEOUT_MS, **options}
    )


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def answer(ownership: Ownership) -> None:
    """Confirm what is asked for until stdin ends."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        lane = int(line.split()[1])
        try:
            await ownership.confirmed(lane)
        except BridgeError as error:
            say(refused=error.code, lane=lane)
        else:
            say(confirmed=lane)


async def report(ownership: Ownership) -> None:
    """Say what is owned until cancelled."""
    owned = ownership.owned
    while True:
        say(owned=sorted(owned))
        owned = await ownership.changed(owned)


async def work(bootstrap: str, group: str, topic: str, lanes: int) -> None:
    ownership = JournalTopicOwnership(connection(bootstrap), group=group, topic=topic, lanes=lanes)
    try:
        await ownership.open()
        reporting = asyncio.create_task(report(ownership))
        await answer(ownership)
        reporting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reporting
    finally:
        await ownership.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
