"""A process with a Kafka target, to be killed at a crash point: ``BOOTSTRAP BRIDGE TOPIC [without]``.

Delivers six batches of ten messages, one after the other, and says after each how many are confirmed.
`without`: without transactions.
"""

from __future__ import annotations

import asyncio
import sys

from tests.kafka.cluster.reachable import Running
from tests.kafka.target.rig import batch, deliver, kafka_stream, numbered, opened, rig

BATCHES, MESSAGES = 6, 10


async def main(bootstrap: str, bridge: str, topic: str, transactions: str = "with") -> None:
    stream = kafka_stream(topic)
    options = {"transactions": transactions == "with"}
    async with rig(Running(bootstrap), bridge, options=options) as made:
        target = made.target()
        position = (await opened(target, stream)).next or 0
        while position < BATCHES * MESSAGES:
            upto = position + MESSAGES
            await deliver(target, batch(stream, numbered(position, upto - 1), from_=position))
            position = upto
            print(position, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
