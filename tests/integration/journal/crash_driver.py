"""A process that works on a journal until it is killed, and says on stdout what it was answered.

Usage: crash_driver.py DIRECTORY. One line an answer, written at once: what was not written was not answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bridge.journal.journal import Journal
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import read_movable
from bridge.journal.sqlite import reserve, vacuum
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.routing import Destination, Placement, Routing
from tests.fakes.routing import Routed
from tests.integration.journal.helpers import (
    QUEUE,
    acknowledgement,
    batch,
    bodies,
    deliver,
    lease,
    open_stream,
    send,
    submission,
    target,
    transact,
)

ROUNDS = 15
#: The logs that get each message for the first of them.
NEWS = ("news", "news-b", "news-c")
#: Enough for pages to become free when messages go.
PADDING = "." * 20_000


def say(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


def names(padded: list[str]) -> list[str]:
    return [body.rstrip(".") for body in padded]


async def work(journal: Journal) -> AsyncIterator[None]:
    """Sends, transactions, deliveries, moves and acknowledgements, several in each commit."""
    await journal.create_queue("orders", QUEUE, "earliest")
    for address in ("parked", *NEWS):
        await journal.create_queue(address, QUEUE, "earliest")
    end = target(journal)
    first = (await open_stream(end, address="bridged")).next or 0
    for place in range(first, first + ROUNDS):
        await asyncio.gather(
            one_send(journal, f"single-{place}"),
            one_send(journal, f"single-{place}"),
            one_transaction(journal, place),
            one_batch(end, place),
            one_send(journal, f"parked-{place}", "parked"),
            one_move(journal),
            one_send(journal, f"news-{place}", "news"),
        )
        yield
        page = await lease(journal, most=2 if place % 2 else 8, lease_ms=10**9)
        read = names(bodies(page.messages))
        say("leased", bodies=read)
        await journal.acknowledge(acknowledgement(page))
        say("acknowledged", bodies=read)
        await one_reader_of_news(journal, NEWS[place % len(NEWS)])
        yield


async def one_send(journal: Journal, name: str, address: str = "orders") -> None:
    answer = await send(journal, name + PADDING, name, address)
    say("sent" if address == "orders" else address, bodies=[name], stored=answer.stored)


async def one_reader_of_news(journal: Journal, log: str) -> None:
    """Read all but the last of what waits in one of its logs."""
    page = await lease(journal, log, lease_ms=10**9)
    *read, _ = names(bodies(page.messages))
    say(f"reads {log}", bodies=read)
    if read:
        await journal.acknowledge(acknowledgement(page, page.messages[-2].position, log))


async def one_move(journal: Journal) -> None:
    """Move what is free at the address `parked` to `moved`."""
    to = Destination("moved")
    found = await journal.look(read_movable, ("parked", QUEUE), to, journal.identity.incarnation)
    moved = await journal.submit(MoveCommand, address="parked", queue=QUEUE, messages=found.messages)
    say("moved", count=len(moved))


async def one_transaction(journal: Journal, place: int) -> None:
    pair = [f"pair-{place}-{half}" for half in "ab"]
    answer = await transact(
        journal, *(submission(name + PADDING) for name in pair), duplicate_id=f"pair-{place}".encode()
    )
    say("pair", bodies=pair, stored=answer.stored)


async def one_batch(end: JournalTarget, place: int) -> None:
    (receipt,) = await deliver(end, batch({place: f"bridged-{place}"}, upto=place + 1))
    say("delivered", next=receipt.next)


def route(routing: Routing) -> Sequence[Placement] | None:
    """Each message for the first of `NEWS` is for all of them."""
    if routing.address != NEWS[0]:
        return None
    return [Placement(Destination(log), routing.indices) for log in NEWS]


async def main(directory: Path) -> None:
    # What a long life brings, in a short one: a checkpoint and a step of shrinking at every turn.
    for module, limit in (
        (reserve, "CHECKPOINT_BYTES"),
        (vacuum, "SLACK_BYTES"),
        (vacuum, "_LOOK_MS"),
        (vacuum, "_PAUSE_MS"),
    ):
        setattr(module, limit, 0)
    journal = await Journal.open(JournalOptions(directory, router=Routed(route)))
    async for _ in work(journal):
        pass
    say("done")
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
